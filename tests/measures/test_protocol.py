"""Scores of two plans are never compared: the sentence names both, what differs, and the command."""

import pytest

from stemrepro.common.errors import UserError
from stemrepro.config.address import Address
from stemrepro.measures.base import measured
from stemrepro.measures.inputs import Inputs
from tests.made_up import write_summary

PLAN = {"tokens of training": 409600, "start of the embeddings": "a", "settings of scoring": "b"}


def write(inputs: Inputs, address: str, part: str = "losses", factor: float = 1.0, **more: object) -> None:
    """An arm's summary at a variant, and as many steps of training as the variant plans, times `factor`."""
    place = Address.parse(address)
    folder, at = inputs.folder / part / place.path, inputs.catalog.variant(place.variant).at(inputs.scale)
    extends = inputs.catalog.variant(place.variant).extends
    about = {"data_hash": "d of mid" if extends and extends.text == "mid" else "d"}
    if part == "losses":
        about["steps"] = round(factor * at.training.tokens / (at.training.batch * at.model.sequence))
        about["seed_numbers"] = list(range(5))
    write_summary(folder, 5, **about | more)


def made_up(catalog, tmp_path, recipe: str, **more: object) -> Inputs:
    """All scores of a recipe, of one plan."""
    inputs = Inputs(recipe, catalog, "laptop", tmp_path / "scores/laptop")
    for address, parts in inputs.recipe.scored().items():
        for part in parts:
            write(inputs, str(address), part, **more)
    measured(inputs)
    return inputs


@pytest.mark.parametrize("plan", [{}, {"plan": PLAN}])
@pytest.mark.parametrize(
    ("recipe", "changed", "words"),
    [
        ("validation_loss", [("dense", "losses", {"data_hash": "new"})],
         r"losses of dense and losses of stem-third at .* \(text: new and d\)"),
        ("validation_loss", [("stem-full@official-start", "losses", {"data_hash": "new"})],
         r"losses of dense and losses of stem-full@official-start .* \(text: d and new\)"),
        ("mid_training", [("stem-full@mid-anew", "losses", {"data_hash": "d"})],
         r"dense@mid and losses of stem-full@mid-anew .* \(text: d of mid and d\)"),
        ("benchmark_scores", [("stem-full", "benchmarks", {"data_hash": "new"})],
         "benchmarks of dense and benchmarks of stem-full"),
        ("validation_loss", [("stem-full", "losses", {"factor": 0.5})],
         r"dense and losses of stem-full .* \(steps of training: 800 and 400\)"),
        ("validation_loss", [
            ("dense", "losses", {"unigram_nats_per_token": 5.0}),
            ("stem-full", "losses", {"unigram_nats_per_token": 6.0}),
        ], "loss of token frequencies in the validation text: 5.0 and 6.0"),
        ("training_stability", [
            (f"{arm}@rate-16", "losses", {"factor": 2.0})
            for arm in ("dense", "stem-third", "hash-moe", "topk-moe", "token-only")
        ], r"losses of .* and losses of dense@rate-16 .* \(steps of training: 800 and 200, planned 800 and 100\)"),
        ("retrofit", [("dense@second-half", "losses", {"factor": 2.0})],
         r"dense@second-half and losses of stem-third@second-half .*: 800 and 400\)"),
    ],
)  # fmt: skip
def test_text_and_budget_of_scores_with_and_without_a_plan(catalog, tmp_path, plan, recipe, changed, words):
    inputs = made_up(catalog, tmp_path, recipe, **plan)
    for address, part, more in changed:
        write(inputs, address, part, **plan | more)
    with pytest.raises(UserError, match=words) as error:
        measured(inputs)
    assert "are of two plans and can't be compared" in str(error.value)
    assert str(error.value).endswith("run 'make reproduce SCALE=laptop'")


@pytest.mark.parametrize(
    ("address", "part", "what", "refused"),
    [
        ("stem-full", "losses", "tokens of training", True),
        ("stem-full", "losses", "settings of scoring", True),
        ("stem-full", "losses", "start of the embeddings", True),
        ("stem-full@own-rate", "losses", "start of the embeddings", False),  # each family's own
        ("stem-full@own-rate", "losses", "settings of scoring", True),
        ("stem-full@own-rate", "losses", "tokens of training", True),
    ],
)
def test_settings_that_arms_share(catalog, tmp_path, address, part, what, refused):
    inputs = made_up(catalog, tmp_path, "ablation_graveyard", plan=PLAN)
    write(inputs, address, part, plan=PLAN | {what: "other"})
    if refused:
        with pytest.raises(UserError, match=rf"losses of {address} at scale .*\({what}: .* and other\)"):
            measured(inputs)
    else:
        measured(inputs)


def test_an_arm_of_another_shape_may_differ_in_width(catalog, tmp_path):
    inputs = made_up(catalog, tmp_path, "size_ladder", plan=PLAN | {"settings of training": "c"})
    wider = {"plan": PLAN | {"settings of training": "of its width", "start of the embeddings": "of its width"}}
    write(inputs, "dense-equal-size", **wider)
    measured(inputs)
    write(inputs, "input-add", **wider)
    with pytest.raises(UserError, match=r"settings of training|start of the embeddings"):
        measured(inputs)
