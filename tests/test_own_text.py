"""A user's text at a user's scale: every recipe is planned, and each planned stage runs, on runs of ten steps.

Of the analyses, only the benchmarks' is drawn, as such text has none; test_analyses.py draws the others.
"""

import json
import pkgutil
import shutil

import pandas as pd
import pytest
import yaml

from stemrepro.cli.making import data
from stemrepro.common.files import read_rows
from stemrepro.config.address import MAIN, Address
from stemrepro.config.scores import SCORE_KINDS
from stemrepro.data.archives import SAMPLE
from stemrepro.measures import store
from stemrepro.measures.catalog import load
from stemrepro.pipeline.plan import make_plan
from stemrepro.pipeline.runs import runs_of
from stemrepro.pipeline.score import pending, write_scores
from stemrepro.pipeline.text import counts, text_steps
from stemrepro.report.analyse import analyse
from stemrepro.training.train import train
from tests.conftest import ROOT, TINY, quiet
from tests.test_analyses import SHORT

pytestmark = pytest.mark.slow

MINE = {"kind": "hub", "dataset": "own", "megabytes": 1, "licence": "CC0", "attribution": "nobody"}
BLEND = {"kind": "blend", "own": 0.6, "parts": {"other": {"share": 0.4, "mix": MINE | {"dataset": "other"}}}}


@pytest.fixture
def project(tmp_path, monkeypatch):
    """recipes/, analysis/, and two folders of text files."""
    for name in ("recipes", "analysis"):
        shutil.copytree(ROOT / name, tmp_path / name)
    for number, row in enumerate(read_rows(SAMPLE)):
        place = tmp_path / ("own" if number % 2 else "other")
        place.mkdir(exist_ok=True)
        (place / f"{number}.txt").write_text("\n\n".join(row["passages"]), encoding="utf-8")
    scale = TINY | {"data": "mine", "mid": "mine-and-other", "training": TINY["training"] | SHORT}
    (tmp_path / "recipes/scales/tiny.yaml").write_text(yaml.safe_dump(scale))
    with open(tmp_path / "recipes/mixes.yaml", "a") as file:
        file.write(yaml.safe_dump({"mine": MINE, "mine-and-other": BLEND}))
    (tmp_path / "recipes/mid_training.yaml").write_text(
        (ROOT / "recipes/mid_training.yaml").read_text().replace("scales: [", "scales: [tiny, ")
    )
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_all_recipes_are_planned_and_what_is_planned_runs(project):
    catalog, plan = load(), make_plan("tiny")
    assert plan.blend is not None
    assert set(catalog.at("tiny").recipes) >= {"benchmark_scores", "mid_training", "retrofit"}
    data(None, mix=None, scale="tiny")
    assert not any(step.do() for step in text_steps(plan))
    (project / "other/more.txt").write_text("One line more.", encoding="utf-8")
    assert [step.name for step in text_steps(plan) if step.do()] == ["mid"]  # files of one's own count
    counts(plan, text_steps(plan)[2]).do()
    chosen = [Address(MAIN, arm) for arm in catalog.recipes["benchmark_scores"].arms]
    for run in runs_of(plan, chosen):
        train(run, quiet)
    for part in SCORE_KINDS:
        score = pkgutil.resolve_name(f"stemrepro.evaluation.{part}:score")
        for members, given, out, key, _ in pending(plan, part, chosen):
            write_scores(part, members, [score(run, quiet, **given) for run in members], given, out, key)
    assert {kind for kind, _, _ in store.protocol(project / "scores/tiny")} >= {"losses", "benchmarks", "geometry"}
    assert (project / "scores/tiny/text").is_dir()
    analyse("benchmark_scores", "tiny", project / "scores", project / "results")
    rows = pd.read_csv(project / "results/tiny/benchmark_scores/data.csv")
    reasons = set(rows.loc[rows["panel"] == "estimates", "reason"])
    assert reasons == {"this scale has no items of it"}


def test_a_large_text_is_trained_on_and_scored(project, capsys):
    large = MINE | {"sample": 60, "document": "line"}
    mixes = yaml.safe_load((project / "recipes/mixes.yaml").read_text())
    (project / "recipes/mixes.yaml").write_text(yaml.safe_dump(mixes | {"mine": large}))
    plan = make_plan("tiny")
    for step in (None, "check"):
        data(step, mix=None, scale="tiny")
    assert "all files are those that were written" in capsys.readouterr().out
    run = runs_of(plan, [Address(MAIN, "dense")])[0]
    train(run, quiet)
    index = json.loads((project / "data/tiny/blocks/index.json").read_text())
    sampled = json.loads((project / "data/mine/corpus/corpus.json").read_text())["kept"]["hub"]["train"]["bytes"]
    read = json.loads((project / "data/mine/raw/hub.json").read_text())["bytes"]
    assert sampled < index["splits"]["train"]["text_by_source"]["hub"]["bytes"] < read
    score = pkgutil.resolve_name("stemrepro.evaluation.losses:score")
    scored = score(run, quiet, plan.scale.evaluation, ["losses"])
    assert set(scored["buckets"].source) == {"hub"}
