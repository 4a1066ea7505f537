"""params.yaml follows from recipes/, and dvc.yaml from both."""

import io

import pytest
import yaml
from rich.console import Console

from stemrepro import plan
from stemrepro.errors import UserError
from stemrepro.model.cost import parameter_counts
from stemrepro.recipe import model_config
from tests.conftest import ROOT


@pytest.fixture
def planned(tmp_path):
    path = tmp_path / "params.yaml"
    plan.write("laptop", ROOT / "recipes", path)
    return path


def test_the_committed_params_follow_from_the_recipes():
    name = plan.read_params(ROOT / "params.yaml")["scales"][0]
    assert (ROOT / "params.yaml").read_text() == plan.text(plan.load(ROOT / "recipes"), name)


def test_planning_again_leaves_the_file_alone(planned):
    before = planned.stat().st_mtime_ns
    plan.write("laptop", ROOT / "recipes", planned)
    assert planned.stat().st_mtime_ns == before
    plan.check(planned, ROOT / "recipes")


def test_a_stale_params_file_is_refused_by_key(planned, monkeypatch):
    values = yaml.safe_load(planned.read_text())
    values["arm"]["laptop"]["stem-full"]["learning_rate"] = 7.0
    planned.write_text(yaml.safe_dump(values))
    monkeypatch.delenv("DVC_EXP_NAME", raising=False)
    with pytest.raises(
        UserError,
        match=r"no longer follows from .*arm\.laptop\.stem-full\.learning_rate: 7\.0, planned .*run 'stemrepro plan",
    ):
        plan.check(planned, ROOT / "recipes")
    assert yaml.safe_load(planned.read_text()) == values


def test_inside_an_experiment_the_difference_is_the_experiment(planned, monkeypatch, capsys):
    planned.write_text(planned.read_text().replace("weight_decay: 0.1", "weight_decay: 0.2"))
    monkeypatch.setenv("DVC_EXP_NAME", "trial")
    plan.check(planned, ROOT / "recipes")
    assert "scale.laptop.training.weight_decay: 0.2" in capsys.readouterr().out


def test_a_garbled_params_file(tmp_path):
    (tmp_path / "params.yaml").write_text("scales: [laptop\nmixes: {")
    with pytest.raises(UserError, match=r"params\.yaml is not valid YAML"):
        plan.read_params(tmp_path / "params.yaml")


def test_mixes_are_checked(planned):
    values = plan.read_params(planned)
    assert plan.mix(values, "text").kind == "archives"
    with pytest.raises(UserError, match=r"unknown data mix 'poems': params\.yaml has text"):
        plan.mix(values, "poems")


@pytest.mark.parametrize("content", ["", "scales: []", "scales: [a, b]"])
def test_a_params_file_without_a_scale(tmp_path, content):
    (tmp_path / "params.yaml").write_text(content)
    with pytest.raises(UserError, match="names no scale"):
        plan.read_params(tmp_path / "params.yaml")


def test_params_give_back_scale_arm_and_rate(planned, book):
    values = plan.read_params(planned)
    for name in plan.needed_arms(book):
        scale, arm, rate = plan.scale_and_arm(values, "laptop", name)
        assert arm == book.arms[name]
        assert rate == book.scales["laptop"].learning_rate
        assert scale.training == book.scales["laptop"].training
    with pytest.raises(UserError, match="plan that scale"):
        plan.scale_and_arm(values, "smoke", "dense")


def test_the_estimate_counts_runs_tokens_and_disk(book):
    cost, scale = plan.estimate(book, "laptop", cores=2), book.scales["laptop"]
    tokens = scale.steps * scale.training.batch * scale.model.sequence
    assert cost["runs"] == len(scale.seeds) * len(plan.needed_arms(book))
    assert cost["tokens"] == cost["runs"] * tokens
    largest = parameter_counts(model_config(scale, book.arms["stem-full"]))["total"]
    assert cost["disk"] < cost["runs"] * 8 * largest
    assert plan.estimate(book, "laptop", cores=1)["minutes"] == pytest.approx(2 * cost["minutes"])


def test_the_plan_prints_layers(book):
    console = Console(file=io.StringIO(), width=120)
    plan.show(book, "laptop", console)
    assert "1, 3, 5" in console.file.getvalue()


def test_each_analysis_stage_names_its_recipe_and_the_scores_of_its_arms(book):
    """DVC can't expand a list into several deps, so dvc.yaml repeats the recipe's arms."""
    stages = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]
    for name, recipe in book.recipes.items():
        deps = stages[name]["deps"]
        assert {f"recipes/{name}.yaml", f"analysis/{name}.py", "recipes/paper.yaml"} <= set(deps)
        scores = {d.removeprefix("scores/${item.scale}/") for d in deps if d.startswith("scores/")} - {"text"}
        wanted = {f"{arm}/{part}" for arm in recipe.arms for part in recipe.scores}
        wanted |= {f"{name}.{arm}" for arm in recipe.point_arms}
        elsewhere = {f"ablation_graveyard.{arm}" for arm in ("stem-full", "token-only")} if name == "rivals" else set()
        assert scores == wanted | elsewhere
        assert {f"results/${{item.scale}}/{name}/{file}" for file in ("verdicts.json", "figure.svg")} <= set(
            stages["report"]["deps"]
        )


def test_make_figures_redraws_every_recipe(book):
    makefile = (ROOT / "Makefile").read_text()
    assert all(f"{name}@$(SCALE)" in makefile for name in book.recipes)
