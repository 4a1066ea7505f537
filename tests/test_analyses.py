"""Every recipe of the comparison on runs of seconds: all its arms and points are trained, scored, drawn and judged in this process."""

import json
import runpy
import shutil
import sys

import pytest
import yaml
from stemrepro.training.spec import Run

from stemrepro import plan
from stemrepro.claims import VERDICTS
from stemrepro.data.vocabularies import own_text, write_vocabularies
from stemrepro.evaluation import benchmarks, losses
from stemrepro.recipe import load
from stemrepro.training.train import train
from tests.conftest import ROOT, TINY, quiet

RECIPES = ("ablation_graveyard", "training_roi", "training_stability", "rivals", "table_design", "scaling_ladder")
SHORT = {"tokens": 32 * 4 * 10, "marks": 2, "mark_tokens": 64, "snapshots": [], "save_every": 100}
BEST = {"dense": {"learning_rate": 0.01}, "stem-full": {"learning_rate": 0.02, "table_rate_factor": 2.0}}


@pytest.fixture(scope="module")
def scored(sample, tmp_path_factory):
    """A folder with recipes/ and the scores of all arms that the recipes read, at a scale of ten steps and one seed."""
    folder = tmp_path_factory.mktemp("analyses")
    shutil.copytree(ROOT / "recipes", folder / "recipes")
    training = TINY["training"] | SHORT
    tiny = TINY | {"training": training, "best_rates": BEST, "evaluation": {"tokens": 128, "batch": 4}}
    (folder / "recipes/scales/tiny.yaml").write_text(yaml.safe_dump(tiny))
    book = load(folder / "recipes")
    book = book.model_copy(update={"recipes": {name: book.recipes[name] for name in RECIPES}})
    values, data = plan.params(book, "tiny"), folder / "data"
    data.mkdir()
    (data / "blocks").symlink_to(sample / "blocks")
    write_vocabularies(sample / "corpus" / "corpus.parquet", values["vocabularies"], data / "vocabularies")

    def run(name, scale, arm, rate, place):
        scale, *text = own_text(scale, data)
        made = Run(name, 0, arm, scale, rate, folder / "runs" / place / "seed0", *text)
        train(made, quiet)
        return made

    for name in values["arms"]:
        made, out = run(name, *plan.scale_and_arm(values, "tiny", name), name), folder / "scores/tiny" / name
        losses.write_scores([made], [losses.score(made, quiet, context=False)], out / "losses")
        if name in values["benchmark_arms"]:
            found = benchmarks.score(made, sample / "tokenizer.json", sample / "items", quiet)
            benchmarks.write_scores([made], [found], out / "benchmarks")
    for name in values["points"]:
        what, points = plan.points_of(values, "tiny", name)
        for point, settings in points.items():
            made, out = run("x", *settings, f"{name}/{point}"), folder / "scores/tiny" / name / point / "losses"
            if what == "steps":
                losses.write_steps([made], [losses.steps(made)], out)
            else:
                losses.write_scores([made], [losses.score(made, quiet, context=False)], out)
    return folder


@pytest.fixture
def judge(scored, monkeypatch):
    """judge(name) runs a recipe's analysis and gives its verdicts by claim."""

    def run(name):
        monkeypatch.chdir(scored)
        monkeypatch.setattr(sys, "argv", ["analysis", "--scale", "tiny"])
        runpy.run_path(str(ROOT / "analysis" / f"{name}.py"), run_name="__main__")
        rows = json.loads((scored / "results/tiny" / name / "verdicts.json").read_text())
        return {row["claim"]: row for row in rows}

    return run


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_is_drawn_and_judged(scored, book, name, judge):
    rows, folder = judge(name), scored / "results/tiny" / name
    assert list(rows) == list(book.recipes[name].claims)
    assert {row["verdict"] for row in rows.values()} <= {VERDICTS[-1], VERDICTS[-2]}  # one seed is never enough
    assert all((folder / f"figure.{kind}").stat().st_size > 10_000 for kind in ("pdf", "svg", "png"))
    before = (folder / "figure.svg").read_bytes()
    judge(name)
    assert (folder / "figure.svg").read_bytes() == before


def test_contrasts_at_own_rates_stand_beside_those_at_the_common_rate(judge):
    """Dense's best is the common rate here; the gate's place has a best of its own, which is not known."""
    rows = judge("ablation_graveyard")
    assert rows["up-over-dense"]["own_rate"] is not None
    assert rows["up-over-dense"]["own_rate"] != rows["up-over-dense"]["ours"]
    assert rows["blend-not-better"]["own_rate"] is None
    assert rows["gate-average"]["own_rate"] is None
