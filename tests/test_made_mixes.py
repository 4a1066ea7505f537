"""The recipes whose text is made for them, at their smoke scales: data, training, scores, verdicts and figure."""

import json
import pkgutil
import shutil

import matplotlib as mpl
import pytest
import yaml
from typer.testing import CliRunner

from stemrepro.cli import app
from stemrepro.config.scores import SCORE_KINDS
from stemrepro.pipeline.plan import make_plan
from stemrepro.pipeline.runs import runs_of
from stemrepro.pipeline.score import pending, write_scores
from stemrepro.report.analyse import analyse
from stemrepro.training.train import train
from stemrepro.verdicts.rule import NOT_TESTED, UNDECIDED
from tests.conftest import ROOT, copy_recipes, quiet

pytestmark = pytest.mark.slow

SCALES = {
    "atlas-smoke": "knowledge_editing",
    "recall-smoke": "associative_recall",
    "capacity-smoke": "knowledge_capacity",
    "needle-smoke": "needle",
}


@pytest.mark.parametrize(("scale", "recipe"), SCALES.items())
@pytest.mark.usefixtures("few_draws")
def test_a_recipe_of_a_made_mix_runs_to_its_figure(tmp_path, monkeypatch, catalog, scale, recipe):
    monkeypatch.chdir(tmp_path)
    mpl.rcdefaults()
    copy_recipes(tmp_path, recipe)
    (tmp_path / "analysis").mkdir()
    shutil.copy(ROOT / f"analysis/{recipe}.py", "analysis")
    path = tmp_path / f"recipes/scales/{scale}.yaml"
    settings = yaml.safe_load(path.read_text())
    step = catalog.scales[scale].training.batch * catalog.scales[scale].model.sequence
    settings["training"] |= {"tokens": 10 * step, "evals": 1}
    path.write_text(yaml.safe_dump(settings))
    plan = make_plan(scale, (recipe,))
    mix = settings["data"]
    done = CliRunner().invoke(app, ["data", "--scale", scale], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    for run in runs_of(plan):
        train(run, quiet)
    for part in SCORE_KINDS:
        score = pkgutil.resolve_name(f"stemrepro.evaluation.{part}:score")
        for members, given, out, key, _ in pending(plan, part):
            write_scores(part, members, [score(run, quiet, **given) for run in members], given, out, key)
        assert not list(pending(plan, part))
    analyse(recipe, scale, tmp_path / "scores", tmp_path / "results")
    folder = tmp_path / "results" / scale / recipe
    rows = json.loads((folder / "verdicts.json").read_text())
    assert [row["claim"] for row in rows] == list(catalog.recipes[recipe].claims)
    assert {row["verdict"] for row in rows} <= {NOT_TESTED, UNDECIDED}
    assert (folder / "figure.svg").stat().st_size > 10_000
    card = (tmp_path / f"results/{scale}/data_card.md").read_text()
    assert f"mix `{mix}`" in card
    assert ("facts about 20 countries" in card) == (mix == "atlas-sample")


def test_every_recipe_is_run_at_a_smoke_scale(catalog):
    smoke = {name for scale in ("smoke", *SCALES) for name in catalog.at(scale).recipes}
    drawn_elsewhere = {  # other tests draw them
        "token_ladder",
        "size_ladder",
        "premise_by_size",
        "leaderboard",
        "leaderboard_longer",
        "table_design",
        "equal_size",
        "second_text",
        "gpu_width",
    }
    too_large = {"pretraining_350m", "pretraining_1b"}  # the paper's own sizes; their runs begin in tests/distributed
    published = set(catalog.at("smollm2").recipes)  # tests/published has a tiny model
    assert catalog.recipes.keys() - smoke == drawn_elsewhere | too_large | published
