"""params.yaml follows from recipes/, and dvc.yaml from both."""

import io

import pytest
import yaml
from rich.console import Console

from stemrepro import plan
from stemrepro.errors import UserError
from stemrepro.model.cost import parameter_counts
from stemrepro.recipe import model_config
from stemrepro.scale import Scale
from tests.conftest import ROOT

ELSEWHERE = ("rivals", "training_stability")
"""Recipes that take runs at own best rates from the graveyard."""


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
        assert arm.model_dump() == book.arms[name].model_dump()
        assert list(scale.seeds) == plan.seeds_of(book, book.scales["laptop"], name)
        assert rate == book.scales["laptop"].learning_rate
        assert scale.training == book.scales["laptop"].training
    with pytest.raises(UserError, match="plan that scale"):
        plan.scale_and_arm(values, "smoke", "dense")


def test_the_estimate_counts_disk_and_cores(book):
    cost, scale = plan.estimate(book, "laptop", cores=2), book.scales["laptop"]
    largest = parameter_counts(model_config(scale, book.arms["stem-full"]))["total"]
    assert 0 < cost["disk"] < cost["runs"] * 8 * largest
    assert plan.estimate(book, "laptop", cores=1)["minutes"] == pytest.approx(2 * cost["minutes"])


def test_an_arm_has_the_seeds_of_the_recipe_that_takes_most(book):
    scale = book.scales["laptop"]
    assert plan.seeds_of(book, scale, "dense") == list(range(8))
    assert plan.seeds_of(book, scale, "dense", "benchmarks") == list(range(5))  # extra seeds are for losses
    assert plan.seeds_of(book, scale, "stem-half") == list(range(5))
    assert plan.seeds_of(book, scale, "topk-moe", "benchmarks") == []
    assert plan.seeds_of(book, book.scales["smoke"], "dense") == [0]


def test_points_give_back_scale_arm_and_rate(planned, book):
    base = book.scales["laptop"]
    recipe = book.recipes["scaling_ladder"]
    what, points = plan.points_of(plan.read_params(planned), "laptop", "scaling_ladder")
    assert what == "losses"
    assert list(points) == [f"{arm}/{point}" for arm in recipe.arms for point in recipe.points]
    scale, arm, rate = points["stem-full/width-half"]
    assert (scale.model.width, scale.model.ffn_width) == (base.model.width // 2, base.model.ffn_width // 2)
    assert scale.training == points["stem-full/tokens-half"][0].training
    assert scale.training.tokens == base.training.tokens // 2
    assert scale.training.marks == base.training.marks // 2
    assert (rate, list(scale.seeds)) == (base.learning_rate, [0, 1, 2])
    assert arm.model_dump() == book.arms["stem-full"].model_dump()
    with pytest.raises(UserError, match=r"no 'rivals2' for scale 'laptop' and points of 'rivals2'"):
        plan.points_of(plan.read_params(planned), "laptop", "rivals2")


def test_an_arm_without_benchmarks_is_refused_by_name(planned):
    values = plan.read_params(planned)
    with pytest.raises(UserError, match="no recipe reads benchmark scores of arm 'topk-moe'"):
        plan.scale_and_arm(values, "laptop", "topk-moe", "benchmark")


def test_own_rates_are_those_of_the_family(book):
    best = {"stem-full": {"learning_rate": 0.5, "table_rate_factor": 3.0}}
    scale = Scale.model_validate(book.scales["laptop"].model_dump() | {"best_rates": best})
    recipe = book.recipes["ablation_graveyard"]
    third = plan.point_params(book, scale, recipe, "stem-third")["points"]["own-rate"]
    assert (third["learning_rate"], third["table_rate_factor"]) == (0.5, 3.0)
    gate = plan.point_params(book, scale, recipe, "gate-replaced")["points"]["own-rate"]
    assert (gate["learning_rate"], gate["table_rate_factor"]) == (scale.learning_rate, 1.0)  # its best isn't known


def test_the_estimate_counts_points(book):
    alone = book.model_copy(update={"recipes": {"validation_loss": book.recipes["validation_loss"]}})
    found = plan.estimate(alone, "laptop")
    assert (found["runs"], found["tokens"]) == (25, 25 * book.scales["laptop"].training.tokens)
    alone = book.model_copy(update={"recipes": {"scaling_ladder": book.recipes["scaling_ladder"]}})
    base, points = 20, 4 * 4 * 3
    found = plan.estimate(alone, "laptop")
    assert found["runs"] == base + points
    assert found["tokens"] == book.scales["laptop"].training.tokens * (base + 4 * 3 * (0.25 + 3 * 0.5))


def test_a_recipe_with_a_base_asks_for_no_runs_at_the_scale(book):
    alone = book.model_copy(update={"recipes": {"table_design": book.recipes["table_design"]}})
    assert plan.needed_arms(alone) == []
    assert plan.estimate(alone, "laptop")["runs"] == 3 * (12 + 1 + 2)


def test_a_point_may_name_some_of_the_arms(planned, book):
    values = plan.read_params(planned)
    _, points = plan.points_of(values, "laptop", "training_stability")
    dense, third = (
        {place.split("/")[1]: found for place, found in points.items() if place.startswith(f"{arm}/")}
        for arm in ("dense", "stem-third")
    )
    assert set(third) - set(dense) == {f"rate-{rate}-own" for rate in (16, 32, 64, 128)}
    base, best = book.scales["laptop"].learning_rate, book.scales["laptop"].best_rates["stem-full"]
    _, arm, rate = third["rate-16-own"]
    assert (rate, arm.table_rate_factor) == (16 * best.learning_rate, best.table_rate_factor)
    assert (third["rate-16"][2], third["rate-16"][1].table_rate_factor) == (16 * base, 1.0)
    assert third["rate-16-unclipped"][0].training.clip == 1e9


def test_points_with_other_vocabularies_name_them(planned, book):
    values = plan.read_params(planned)
    assert values["vocabularies"] == [4096]
    assert plan.points_of(values, "laptop", "table_design")[1]["dense/vocab-4"][0].model.vocab == 4096


def test_the_plan_prints_layers(book):
    console = Console(file=io.StringIO(), width=120)
    plan.show(book, "laptop", console)
    assert "1, 3, 5" in console.file.getvalue()
    assert [plan.ranges(layers) for layers in ((), (3,), (1, 2, 4, 7, 8, 9))] == ["none", "3", "1-2, 4, 7-9"]


def test_each_analysis_stage_names_its_recipe_and_the_scores_of_its_arms(book):
    """DVC can't expand a list into several deps, so dvc.yaml repeats the recipe's arms."""
    stages = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]
    for name, recipe in book.recipes.items():
        deps = stages[name]["deps"]
        assert {f"recipes/{name}.yaml", f"analysis/{name}.py", "recipes/paper.yaml"} <= set(deps)
        scores = {d.removeprefix("scores/${item.scale}/") for d in deps if d.startswith("scores/")} - {"text"}
        wanted = {f"{arm}/{part}" for arm in recipe.scale_arms for part in recipe.scores}
        assert scores == wanted | ({name} if recipe.points else set()) | (
            {"ablation_graveyard"} if name in ELSEWHERE else set()
        )
        assert {f"results/${{item.scale}}/{name}/{file}" for file in ("verdicts.json", "figure.svg")} <= set(
            stages["report"]["deps"]
        )


def test_make_figures_redraws_every_recipe(book):
    makefile = (ROOT / "Makefile").read_text()
    assert all(f"{name}@$(SCALE)" in makefile for name in book.recipes)
