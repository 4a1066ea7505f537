"""The figure and verdicts of the ladder of widths, on made-up losses whose leads follow a given law."""

from zlib import crc32

import numpy as np
import pandas as pd
import pytest

from stemrepro.config.arm import run_settings
from stemrepro.measures.catalog import load
from stemrepro.model.cost import parameter_counts
from stemrepro.report.analyse import analyse
from tests.conftest import ROOT
from tests.made_up import write_arms

LEAD = {"dense": 0.0, "stem-third": 3.0, "stem-half": 4.5, "stem-full": 6.0, "input-add": 4.0, "dense-equal-size": 8.0}
"""In % at width 32; it falls by a fifth a doubling of the width and grows by a quarter a doubling of the vocabulary."""


@pytest.fixture(scope="module")
def made_up(tmp_path_factory):
    """scores/width of every arm and size."""
    folder, catalog = tmp_path_factory.mktemp("width"), load(ROOT / "recipes")
    scale, recipe, arms = catalog.scale("width"), catalog.recipe("size_ladder"), {}
    for address, parts in recipe.wanted().items():
        variant, count = catalog.variant(address.variant), max(parts.values())
        lead = LEAD[address.arm] * 0.8 ** np.log2(variant.width) * 1.25 ** np.log2(variant.vocab)
        lead *= 1 + 0.3 * (variant.table_rate > 1)
        rng = np.random.default_rng(crc32(address.arm.encode()))  # an arm's seeds have the same luck at every size
        prose = {seed: 3.5 * (1 - lead * (1 + 0.02 * rng.standard_normal()) / 100) for seed in range(count)}
        model, _ = run_settings(address, catalog.arms[address.arm], variant, scale)
        more = {"parameters": parameter_counts(model)["total"], "steps": round(variant.tokens * 20)}
        arms[str(address)] = {"prose": prose} | more
    write_arms(folder / "scores/width", arms)
    return folder


@pytest.mark.slow
def test_the_ladder_is_judged_and_drawn(made_up, monkeypatch):
    monkeypatch.chdir(ROOT)
    rows = {row["claim"]: row for row in analyse("size_ladder", "width", made_up / "scores", made_up / "results")}
    folder = made_up / "results/width/size_ladder"
    assert rows["fades-full"]["ours"] == pytest.approx(-np.log2(0.8), abs=0.03)
    assert rows["stays-full"]["ours"] == pytest.approx(0, abs=0.03)
    assert rows["table-rate-full"]["ours"] == pytest.approx(0.3 * 6 * 0.8, abs=0.25)
    assert rows["equal-size"]["ours"] == pytest.approx(0.02 * 3.5, abs=0.02)
    assert rows["equal-size-wide"]["ours"] == pytest.approx(0.02 * 0.8 * 3.5, abs=0.02)
    assert (rows["widest-full"]["seeds"], rows["fades-full"]["seeds"]) == (5, 3)  # the three widest have three
    data = pd.read_csv(folder / "data.csv")
    leads = data[data["panel"].str.startswith("lead, ")]
    assert data["x"].astype(float).max() == 1.5e9  # nothing is drawn beyond what was measured, by us or others
    assert leads["x"].astype(float).max() == 1_296_000
    assert (data["panel"] == "lead, vocab").sum() == 2 * 4 + 1  # four vocabularies, and STEM 1/2 at the scale's own
    assert (data["panel"] == "lead, layers").sum() == 2 * 4  # the same, and the deepest without STEM 1/3
    re_runs = data[data["panel"] == "re-runs"]["value"].round(1).tolist()
    assert re_runs == [2.5, 0.7, 0.4]
    paper = data[data["panel"] == "paper"].set_index("what")["value"]
    assert paper["stem-third"].round(2).tolist() == [1.85, 1.65]
    compared = data[data["panel"] == "compared"].groupby("what").size().to_dict()
    assert compared == {"input-add": 2, "stem-full": 2, "dense-equal-size": 2}


def test_the_lead_grows_with_depth_as_the_pages_say():
    rows = pd.read_csv(ROOT / "results/width/size_ladder/data.csv").query("what == 'stem-full'")
    layers = rows[rows["panel"] == "lead, layers"]
    assert len(layers) == 4
    assert (layers["ci_low"].to_numpy()[1:] > layers["ci_high"].to_numpy()[:-1]).all()
