"""What recipes ask of a scale."""

from collections import Counter

import pytest

from stemrepro.cli import estimate
from stemrepro.common.errors import UserError
from stemrepro.config.address import MAIN, Address
from stemrepro.config.arm import run_settings
from stemrepro.config.scale import Scale
from stemrepro.model.cost import parameter_counts
from stemrepro.pipeline import plan
from stemrepro.training.module import MOST_EPOCHS


def only(catalog, *names):
    """A catalog of some recipes."""
    return catalog.model_copy(update={"recipes": {name: catalog.recipes[name] for name in names}})


def runs(catalog, scale="laptop"):
    return plan.make_plan(scale, (), catalog).runs


def test_an_address_has_the_seeds_of_the_recipe_that_takes_most(catalog):
    graveyard = catalog.recipes["ablation_graveyard"]
    more = graveyard.model_copy(update={"more_seeds": graveyard.more_seeds | {"dense": 8}})
    planned = runs(catalog.model_copy(update={"recipes": catalog.recipes | {"ablation_graveyard": more}}))
    assert planned[Address(MAIN, "dense")].seeds["losses"] == tuple(range(8))
    assert planned[Address(MAIN, "dense")].trained == tuple(range(8))
    assert planned[Address(MAIN, "dense")].seeds["benchmarks"] == tuple(range(5))  # extra seeds are for losses
    assert planned[Address(MAIN, "stem-half")].seeds["benchmarks"] == tuple(range(3))  # and fewer are for all
    assert planned[Address(MAIN, "token-only")].trained == tuple(range(5))
    assert "benchmarks" not in planned[Address(MAIN, "topk-moe")].seeds
    assert runs(catalog, "smoke")[Address(MAIN, "dense")].trained == (0,)


def test_a_plan_of_one_recipe_makes_no_less_than_one_of_all(catalog):
    """An address has one folder of scores; a recipe planned alone once removed what others had scored there."""
    whole = runs(catalog)
    for name in catalog.at("laptop").recipes:
        for address, alone in plan.make_plan("laptop", (name,), catalog).runs.items():
            assert alone.losses in ((), whole[address].losses)
            assert alone.seeds.items() <= whole[address].seeds.items()
            assert set(alone.seeds) <= set(catalog.recipes[name].wanted()[address]) | {"losses"}


def test_no_run_is_trained_for_two_recipes(catalog):
    """rivals and ablation_graveyard meet at the official initialisation; each run has one folder."""
    shared = {Address("official-start", arm) for arm in ("dense", "stem-full", "stem-frozen")}
    assert shared <= set(catalog.recipes["rivals"].wanted())
    assert shared <= set(catalog.recipes["ablation_graveyard"].wanted())
    settings = [(arm.model, arm.training, arm.before, arm.people, arm.text) for arm in runs(catalog).values()]
    assert max(Counter(map(repr, settings)).values()) == 1


def test_variants_change_what_they_name(catalog):
    planned, base = runs(catalog), catalog.scale("laptop")
    half, official = planned[Address("half", "stem-full")], planned[Address("official-start", "stem-full")]
    assert (official.model.embedding_std, official.model.head_std) == (None, None)
    assert official.training.embedding_rate_factor == official.training.embedding_decay_factor == 1
    assert half.training.tokens == base.training.tokens // 2
    assert half.training.evals == base.training.evals // 2
    assert (half.training.learning_rate, half.trained) == (base.learning_rate, (0, 1, 2, 3, 4))
    tables = plan.make_plan("tables", (), catalog)
    assert tables.runs[Address("vocab-4", "dense")].model.vocab == 4096
    assert tables.vocabularies == (4096,)


def test_a_blend_is_planned_for_the_variant_with_most_tokens(catalog):
    assert plan.make_plan("laptop", ("rivals",), catalog).blend[1] == 81920
    later = catalog.variants["mid"].model_copy(update={"tokens": 0.25})
    more = catalog.model_copy(update={"variants": catalog.variants | {"mid": later}})
    assert plan.make_plan("laptop", (), more).blend == (catalog.mixes["mid"], 204800)
    assert plan.make_plan("needle", (), catalog).blend is None


def test_a_variant_that_needs_a_blend_needs_a_scale_with_one(catalog):
    scales = catalog.scales | {"laptop": catalog.scale("laptop").model_copy(update={"mid": None})}
    with pytest.raises(UserError, match=r"'mid' in recipes/scales/laptop\.yaml"):
        plan.make_plan("laptop", (), catalog.model_copy(update={"scales": scales}))


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


def test_the_estimate_counts_variants_disk_and_cores(catalog, monkeypatch):
    tokens = catalog.scale("laptop").training.tokens
    monkeypatch.setattr(estimate, "cores", lambda: 2)
    costs = estimate.estimate(plan.make_plan("laptop", (), only(catalog, "validation_loss")))
    count = 5 * 5 + 3  # five seeds, of STEM 1/2 three
    assert (costs["runs"], costs["tokens"]) == (count, count * tokens)
    largest = max(parameter_counts(arm.model)["total"] for arm in runs(only(catalog, "validation_loss")).values())
    assert 0 < costs["disk"] < costs["runs"] * 8 * largest
    monkeypatch.setattr(estimate, "cores", lambda: 1)
    slower = estimate.estimate(plan.make_plan("laptop", (), only(catalog, "validation_loss")))
    assert slower["seconds"] == pytest.approx(2 * costs["seconds"])
    half = estimate.estimate(plan.make_plan("tables", (), only(catalog, "table_design")))
    assert half["runs"] == 3 * (15 + 1 + 3 + 2)
    assert half["tokens"] == pytest.approx(tokens / 2 * half["runs"])


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
        plan.make_plan(scale, (), catalog.model_copy(update={"scales": catalog.scales | {scale: other}}))


def test_a_scale_may_name_the_tasks_that_are_scored(catalog):
    """Of those that a recipe names the others are left out; a name that no recipe has is refused."""

    def tasks(*names):
        scale = catalog.scale("laptop")
        benchmarks = scale.benchmarks.model_copy(update={"tasks": names or None})
        scales = catalog.scales | {"laptop": scale.model_copy(update={"benchmarks": benchmarks})}
        return plan.make_plan(
            "laptop", ("benchmark_scores",), catalog.model_copy(update={"scales": scales})
        ).benchmarks.tasks

    assert tasks("agreement", "cloze") == ("cloze", "agreement")
    assert {"cloze", "piqa", "gloss_word"} <= set(tasks())
    with pytest.raises(UserError, match=r"benchmarks\.tasks names 'cloz', of which mix 'text-8' has no items"):
        tasks("cloz")


def test_no_more_passes_are_planned_than_training_takes():
    assert plan.PASSES == MOST_EPOCHS


def test_what_a_run_reads_includes_the_runs_that_it_resumes_from(catalog):
    """As training counts it; of a blend it is nothing."""
    planned, tokens = runs(catalog), catalog.scale("laptop").training.tokens
    assert planned[Address(MAIN, "dense")].read == tokens
    later = planned[Address("further-80", "stem-full")]
    assert later.read == tokens + later.training.tokens > tokens
    assert planned[Address("mid", "dense")].read == 0


def test_made_text_is_as_long_as_its_mix_says(catalog):
    recall, invented = catalog.mixes["recall"], catalog.mixes["invented"]
    assert plan.most_tokens(recall) == 16000 * 65
    assert plan.most_tokens(invented) == 384 * 264 * 11
    assert plan.most_tokens(invented, 96) == 96 * 264 * 11
    assert plan.most_tokens(catalog.mixes["text-8"]) is None
    scale = catalog.scale("recall")
    training = scale.training.model_copy(update={"tokens": 5 * scale.training.tokens})
    longer = catalog.scales | {"recall": scale.model_copy(update={"training": training})}
    with pytest.raises(
        UserError, match=r"mix 'recall' of recipes/mixes.yaml has 1,040,000 tokens at most; .*larger mix"
    ):
        plan.make_plan("recall", (), catalog.model_copy(update={"scales": longer}))
