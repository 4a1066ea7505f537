"""plan/ follows from recipes/, dvc.yaml too, and what was planned is read back."""

import io
import re
from collections import Counter

import pytest
import yaml
from rich.console import Console

from stemrepro.cli import estimate
from stemrepro.common.errors import UserError
from stemrepro.common.paths import PARAMS
from stemrepro.config.address import MAIN, Address
from stemrepro.config.arm import run_settings
from stemrepro.config.catalog import RESERVED
from stemrepro.config.scale import Scale
from stemrepro.measures.catalog import load
from stemrepro.model.cost import parameter_counts
from stemrepro.pipeline import plan
from stemrepro.pipeline.runs import read_params
from stemrepro.pipeline.stages import DRAWING, PIPELINE, TARGETS, drawing, pipeline, pipeline_texts, targets
from tests.conftest import ROOT


@pytest.fixture
def planned(tmp_path):
    plan.write("laptop", (), ROOT / "recipes", tmp_path)
    return tmp_path / PARAMS


@pytest.fixture
def check(planned):
    return lambda: plan.check(ROOT / "recipes", planned.parent.parent)


def only(catalog, *names):
    """A catalog of some recipes."""
    return catalog.model_copy(update={"recipes": {name: catalog.recipes[name] for name in names}})


def runs(catalog, scale="laptop"):
    return plan.make_params(catalog, scale).planned(scale)


@pytest.mark.parametrize("scale", ["laptop", "smoke", "ladder"])
def test_what_git_holds_follows_from_the_recipes_whatever_is_planned(catalog, scale):
    assert pipeline_texts(catalog, scale)[DRAWING] == (ROOT / DRAWING).read_text(), "run 'stemrepro plan'"


def test_dvc_draws_what_is_committed_and_no_more(catalog):
    """Every verdict below results/ has one stage in dvc.yaml, and every stage there a verdict."""
    stages = {(scale, name) for name, stage in drawing(catalog).items() for scale in stage["matrix"]["scale"]}
    committed = {path.parent.parts[-2:] for path in ROOT.glob("results/*/*/verdicts.json")}
    scales = {name for name, scale in catalog.scales.items() if scale.scoreboard == "results"}
    drawn = {(scale, name) for scale, name in stages if name in catalog.recipes}
    assert drawn == {(scale, name) for scale, name in committed if scale in scales}
    assert {name for _, name in stages - drawn} == {"metrics", "report"}


def test_a_plan_draws_only_what_dvc_yaml_does_not(catalog):
    assert not set(pipeline(catalog, "laptop")) & {*catalog.recipes, "metrics", "report"}
    assert {*catalog.at("smoke").recipes, "metrics", "report"} <= set(pipeline(catalog, "smoke"))


def test_the_targets_of_dvc(catalog):
    assert targets(catalog, "laptop", ("rivals",)) == ["rivals@laptop"]
    assert targets(catalog, "smoke", ("rivals", "needle")) == [
        "plan/dvc.yaml:rivals@smoke",
        "plan/dvc.yaml:needle@smoke",
    ]
    assert targets(catalog, "smoke", ()) == ["plan/dvc.yaml"]
    assert targets(catalog, "ladder", ()) == ["plan/dvc.yaml", "token_ladder@ladder", "metrics@ladder", "report@laptop"]


def test_what_is_planned_does_not_depend_on_results(catalog, tmp_path, monkeypatch):
    """A kill while results are drawn takes them away. No other scale's page waits for that of the ladder."""
    for name in ("analysis", "recipes", "stemrepro"):
        (tmp_path / name).symlink_to(ROOT / name)
    monkeypatch.chdir(tmp_path)
    texts = pipeline_texts(catalog, "smoke")
    assert texts[DRAWING] == (ROOT / DRAWING).read_text()
    assert "results/ladder" not in texts[PIPELINE]


def test_what_is_written_is_read_back(planned, catalog):
    assert read_params(planned) == plan.make_params(catalog, "laptop")
    assert read_params(planned).text() == planned.read_text()


def test_planning_again_leaves_the_files_alone(planned, check):
    home = planned.parent.parent
    files = [home / path for path in (PARAMS, PIPELINE, TARGETS, DRAWING)]
    before = [path.stat().st_mtime_ns for path in files]
    plan.write("laptop", (), ROOT / "recipes", home)
    assert [path.stat().st_mtime_ns for path in files] == before
    check()


@pytest.mark.slow
def test_a_stale_plan_is_refused_by_key(planned, check, monkeypatch):
    values = yaml.safe_load(planned.read_text())
    values["run"]["laptop"]["main"]["stem-full"]["training"]["learning_rate"] = 7.0
    planned.write_text(yaml.safe_dump(values))
    monkeypatch.delenv("DVC_EXP_NAME", raising=False)
    rate = load(ROOT / "recipes").scale("laptop").learning_rate
    key = rf"run\.laptop\.main\.stem-full\.training\.learning_rate: 7\.0, planned {re.escape(str(rate))}"
    with pytest.raises(UserError, match=rf"no longer follows from .*{key}.*run 'stemrepro plan --scale laptop'"):
        check()
    assert yaml.safe_load(planned.read_text()) == values


def test_a_stale_pipeline_is_refused(planned, check):
    file = planned.with_name("dvc.yaml")
    file.write_text(file.read_text().replace("stemrepro train", "stemrepro plan"))
    with pytest.raises(UserError, match=r"plan/dvc\.yaml no longer follows from .*run 'stemrepro plan"):
        check()


def test_inside_an_experiment_the_difference_is_the_experiment(planned, check, monkeypatch, capsys):
    planned.write_text(planned.read_text().replace("weight_decay: 0.1", "weight_decay: 0.2", 1))
    monkeypatch.setenv("DVC_EXP_NAME", "trial")
    check()
    assert "run.laptop.main.dense.training.weight_decay: 0.2" in capsys.readouterr().out


def test_no_recipe_takes_the_place_of_a_stage(catalog):
    stages = {name for scale in catalog.scales for name in pipeline(catalog, scale)} | set(drawing(catalog))
    assert stages - set(catalog.recipes) <= set(RESERVED)


def test_a_plan_of_one_recipe_stays_one(catalog, tmp_path):
    """Planned for a recipe, `plan --check` compares with that recipe's plan."""
    plan.write("laptop", ("table_design",), ROOT / "recipes", tmp_path)
    params = plan.check(ROOT / "recipes", tmp_path)
    assert set(params.planned("laptop")) == set(catalog.recipes["table_design"].wanted())


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("scales: [laptop\nmixes: {", r"params\.yaml is not valid YAML.*write it anew with 'stemrepro plan'"),
        ("", "must hold keys and values"),
        ("scales: []", r"params\.yaml: scales: .*at least 1 item"),
        ("scales: [a, b]", r"params\.yaml: scales: .*at most 1 item"),
        ("scales: ['../x']", r"params\.yaml: scales\.0: "),
        ("run: 3", r"params\.yaml: "),
    ],
)
def test_a_garbled_params_file(tmp_path, content, words):
    (tmp_path / "params.yaml").write_text(content)
    with pytest.raises(UserError, match=words):
        read_params(tmp_path / "params.yaml")


def test_a_missing_params_file_says_how_to_write_it(tmp_path):
    with pytest.raises(UserError, match=r"missing; write it with 'stemrepro plan --scale laptop'"):
        read_params(tmp_path / "params.yaml")


def test_every_planned_run_has_the_settings_of_its_address(planned, catalog):
    params, scale = read_params(planned), catalog.scale("laptop")
    for address, arm in params.planned("laptop").items():
        settings = run_settings(address, catalog.arms[address.arm], catalog.variant(address.variant), scale)
        assert (arm.model, arm.training) == settings
    with pytest.raises(UserError, match=r"planned for scale 'laptop'; run 'stemrepro plan --scale smoke'"):
        params.planned("smoke")


def test_an_address_has_the_seeds_of_the_recipe_that_takes_most(catalog):
    graveyard = catalog.recipes["ablation_graveyard"]
    more = graveyard.model_copy(update={"more_seeds": graveyard.more_seeds | {"dense": 8}})
    planned = runs(catalog.model_copy(update={"recipes": catalog.recipes | {"ablation_graveyard": more}}))
    assert planned[Address(MAIN, "dense")].seeds["losses"] == tuple(range(8))
    assert planned[Address(MAIN, "dense")].trained == tuple(range(8))
    assert planned[Address(MAIN, "dense")].seeds["benchmarks"] == tuple(range(5))  # extra seeds are for losses
    assert planned[Address(MAIN, "blend")].seeds["benchmarks"] == tuple(range(3))  # and fewer are for all
    assert planned[Address(MAIN, "stem-half")].trained == tuple(range(5))
    assert "benchmarks" not in planned[Address(MAIN, "topk-moe")].seeds
    assert runs(catalog, "smoke")[Address(MAIN, "dense")].trained == (0,)


def test_a_plan_of_one_recipe_makes_no_less_than_one_of_all(catalog):
    """An address has one folder of scores; a recipe planned alone once removed what others had scored there."""
    whole = plan.make_params(catalog, "laptop").planned("laptop")
    for name in catalog.at("laptop").recipes:
        for address, alone in plan.make_params(catalog, "laptop", (name,)).planned("laptop").items():
            assert alone.losses in ((), whole[address].losses)
            assert alone.seeds.items() <= whole[address].seeds.items()
            assert set(alone.seeds) <= set(catalog.recipes[name].wanted()[address]) | {"losses"}


def test_no_run_is_trained_for_two_recipes(catalog):
    """rivals and ablation_graveyard meet at the official initialisation; each run has one folder."""
    shared = {Address("official-start", arm) for arm in ("dense", "stem-full", "token-only")}
    assert shared <= set(catalog.recipes["rivals"].wanted())
    assert shared <= set(catalog.recipes["ablation_graveyard"].wanted())
    settings = [
        arm.model_dump(include={"model", "training", "init_from", "people", "text"}) for arm in runs(catalog).values()
    ]
    assert max(Counter(map(repr, settings)).values()) == 1


def test_variants_change_what_they_name(catalog):
    planned, base = runs(catalog), catalog.scale("laptop")
    half, official = planned[Address("half", "stem-full")], planned[Address("official-start", "stem-full")]
    assert (official.model.embedding_std, official.model.head_std) == (None, None)
    assert official.training.embedding_rate_factor == official.training.embedding_decay_factor == 1
    assert half.training.tokens == base.training.tokens // 2
    assert half.training.evals == base.training.evals // 2
    assert (half.training.learning_rate, half.trained) == (base.learning_rate, (0, 1, 2, 3, 4))
    assert planned[Address("rate-16-unclipped", "stem-third")].training.clip == 1e9
    assert planned[Address("half-vocab-4", "dense")].model.vocab == 4096
    assert plan.make_params(catalog, "laptop").scale["laptop"].vocabularies == (4096,)


def test_a_blend_is_planned_for_the_variant_with_most_tokens(catalog):
    assert plan.make_params(catalog, "laptop", ("rivals",)).scale["laptop"].mid.tokens == 81920
    later = catalog.variants["mid"].model_copy(update={"tokens": 0.25})
    more = catalog.model_copy(update={"variants": catalog.variants | {"mid": later}})
    planned = plan.make_params(more, "laptop").scale["laptop"].mid
    assert (planned.name, planned.tokens, planned.mix) == ("mid", 204800, catalog.mixes["mid"])
    assert plan.make_params(catalog, "needle").scale["needle"].mid is None


def test_a_blend_in_shards_is_made_of_the_scales_own_blocks(catalog):
    def depends(scale):
        return yaml.safe_load(pipeline_texts(catalog, scale)[PIPELINE])["stages"]["mid"]["deps"]

    assert "data/${item.scale}/blocks" in depends("paper-1b")
    assert "data/${item.scale}/blocks" not in depends("laptop")


def test_a_variant_that_needs_a_blend_needs_a_scale_with_one(catalog):
    scales = catalog.scales | {"laptop": catalog.scale("laptop").model_copy(update={"mid": None})}
    with pytest.raises(
        UserError, match=r"variant 'mid' reads a blend; name one under 'mid' in recipes/scales/laptop\.yaml"
    ):
        plan.make_params(catalog.model_copy(update={"scales": scales}), "laptop")


def test_tuned_rates_are_those_of_the_family(catalog):
    best = {"stem-full": {"learning_rate": 0.5, "table_rate_factor": 3.0}}
    scale = Scale.model_validate(catalog.scale("laptop").model_dump() | {"tuned": best})

    def rates(arm, variant):
        training = run_settings(Address(variant, arm), catalog.arms[arm], catalog.variant(variant), scale)[1]
        return training.learning_rate, training.table_rate_factor

    assert rates("stem-third", "own-rate") == (0.5, 3.0)
    assert rates("gate-replaced", "own-rate") == (scale.learning_rate, 1.0)  # it has no tuned rate
    assert rates("stem-third", "rate-16-own") == (16 * 0.5, 3.0)
    assert rates("stem-third", "rate-16") == (16 * scale.learning_rate, 1.0)
    assert rates("stem-fast", MAIN) == (scale.learning_rate, 8.0)


def test_the_estimate_counts_variants_disk_and_cores(catalog):
    tokens = catalog.scale("laptop").training.tokens
    costs = estimate.estimate(plan.make_params(only(catalog, "validation_loss"), "laptop"), cores=2)
    count = 6 * 5 + 3 + 6 * 3  # five seeds, shuffled rows, and the official initialisation
    assert (costs["runs"], costs["tokens"]) == (count, count * tokens)
    largest = max(parameter_counts(arm.model)["total"] for arm in runs(only(catalog, "validation_loss")).values())
    assert 0 < costs["disk"] < costs["runs"] * 8 * largest
    slower = estimate.estimate(plan.make_params(only(catalog, "validation_loss"), "laptop"), cores=1)
    assert slower["seconds"] == pytest.approx(2 * costs["seconds"])
    half = estimate.estimate(plan.make_params(only(catalog, "table_design"), "laptop"))
    assert half["runs"] == 3 * (15 + 1 + 3 + 2)
    assert half["tokens"] == pytest.approx(tokens / 2 * half["runs"])


def test_a_recipe_with_a_base_asks_for_no_runs_at_the_scale(catalog):
    planned = runs(only(catalog, "table_design"))
    assert {address.variant for address in planned} == set(catalog.recipes["table_design"].variants)
    assert sum(len(arm.trained) for arm in planned.values()) == 3 * (15 + 1 + 3 + 2)


def test_the_plan_prints_layers_and_an_estimate(catalog):
    console = Console(file=io.StringIO(), width=120)
    estimate.show(catalog, plan.make_params(catalog, "laptop"), console)
    shown = " ".join(console.file.getvalue().split())
    assert "1, 3, 5" in shown
    assert f"{sum(len(arm.trained) for arm in runs(catalog).values())} runs ({len(runs(catalog))} addresses at" in shown
    assert re.search(r"about [\d h]+ min of training on this machine's CPU", shown)
    assert "H100" not in shown
    assert [estimate.ranges(layers) for layers in ((), (3,), (1, 2, 4, 7, 8, 9))] == ["none", "3", "1-2, 4, 7-9"]


def test_the_estimate_of_a_large_plan_is_in_days_of_a_gpu(catalog, monkeypatch):
    monkeypatch.setattr(
        estimate, "estimate", lambda _: {"runs": 4, "tokens": 1, "flops": 2.7e22, "seconds": 3.4e11, "disk": 1}
    )
    console = Console(file=io.StringIO(), width=200)
    estimate.show(catalog, plan.make_params(only(catalog, "paper_audit"), "smoke"), console)
    assert "about 10,800 years of training on this machine's CPU, or 781.2 days of one H100" in console.file.getvalue()
    # 2.7e22 / 4e14 / 86,400


@pytest.mark.parametrize(
    ("scale", "sequence", "words"),
    [
        ("recall", 64, r"a document has 65 tokens, a sequence of the scale 64"),
        ("capacity", 64, r"the scale's sequence of 64 must be a multiple of it"),
    ],
)
def test_documents_of_made_text_fill_training_sequences(catalog, scale, sequence, words):
    """Else models would be asked at positions of which training has none."""
    settings = catalog.scale(scale)
    other = settings.model_copy(update={"model": settings.model.model_copy(update={"sequence": sequence})})
    with pytest.raises(UserError, match=words):
        plan.make_params(catalog.model_copy(update={"scales": catalog.scales | {scale: other}}), scale)
