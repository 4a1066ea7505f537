"""Scores of two plans are never compared: the sentence names both, what differs, and the command."""

import pytest

from stemrepro.common.errors import UserError
from stemrepro.config.address import Address
from stemrepro.measures.protocol import check_one_plan
from stemrepro.measures.scores import Scores
from tests.made_up import made, write_many, write_scores

PLAN = {"tokens of training": 409600, "start of the embeddings": "a", "settings of scoring": "b"}


def about(scores: Scores, address: Address, kind: str = "losses", factor: float = 1.0, **more: object) -> dict:
    """What is known of an arm's scores, with as many steps of training as the variant plans, times `factor`."""
    variant = scores.catalog.variant(address.variant)
    at, extends = variant.at(scores.scale), variant.extends
    told = {"data_hash": "d of mid" if extends and extends.text == "mid" else "d"}
    if kind == "losses":
        told["steps"] = round(factor * at.training.tokens / (at.training.batch * at.model.sequence))
    return told | more


def write(scores: Scores, address: str, kind: str = "losses", **fields: object) -> None:
    """Other protocol of an arm; the fields are those of `about`."""
    write_scores(scores.folder, kind, address, 5, **about(scores, Address.parse(address), kind, **fields))


def made_up(catalog, tmp_path, recipe: str, **more: object) -> Scores:
    """All scores of a recipe, of one plan."""
    at = catalog.recipes[recipe].scales or ("laptop",)
    scores, by_kind = made(catalog, recipe, tmp_path, training=catalog.scale(at[0]).training), {}
    for address, kinds in scores.recipe.scored().items():
        for kind in kinds:
            by_kind.setdefault(kind, {})[str(address)] = (5, {}, about(scores, address, kind, **more))
    for kind, arms in by_kind.items():
        write_many(tmp_path, kind, arms)
    check_one_plan(scores)
    return scores


@pytest.mark.parametrize("plan", [{}, {"plan": PLAN}])
@pytest.mark.parametrize(
    ("recipe", "changed", "words"),
    [
        ("validation_loss", [("dense", "losses", {"data_hash": "new"})],
         r"losses of dense and losses of stem-third at .* \(text: new and d\)"),
        ("ablation_graveyard", [("stem-full@official-start", "losses", {"data_hash": "new"})],
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
        ("training_stability", [("dense@rate-16", "losses", {"factor": 2.0})],
         r"losses of .* and losses of dense@rate-16 .* \(steps of training: 800 and 200, planned 800 and 100\)"),
        ("retrofit", [("dense@second-half", "losses", {"factor": 2.0})],
         r"dense@second-half and losses of stem-full@second-half .*: 800 and 400\)"),
    ],
)  # fmt: skip
def test_text_and_budget_of_scores_with_and_without_a_plan(catalog, tmp_path, plan, recipe, changed, words):
    scores = made_up(catalog, tmp_path, recipe, **plan)
    for address, kind, more in changed:
        write(scores, address, kind, **plan | more)
    with pytest.raises(UserError, match=words) as error:
        check_one_plan(scores)
    assert "are of two plans and can't be compared" in str(error.value)
    assert str(error.value).endswith("run 'make reproduce SCALE=laptop'")


@pytest.mark.parametrize(
    ("address", "kind", "what", "refused"),
    [
        ("stem-full", "losses", "tokens of training", True),
        ("stem-full", "losses", "settings of scoring", True),
        ("stem-full", "losses", "start of the embeddings", True),
        ("stem-full@own-rate", "losses", "start of the embeddings", False),  # each family's own
        ("stem-full@own-rate", "losses", "settings of scoring", True),
        ("stem-full@own-rate", "losses", "tokens of training", True),
    ],
)
def test_settings_that_arms_share(catalog, tmp_path, address, kind, what, refused):
    scores = made_up(catalog, tmp_path, "ablation_graveyard", plan=PLAN)
    write(scores, address, kind, plan=PLAN | {what: "other"})
    if refused:
        with pytest.raises(UserError, match=rf"losses of {address} at scale .*\({what}: .* and other\)"):
            check_one_plan(scores)
    else:
        check_one_plan(scores)


def test_an_arm_of_another_shape_may_differ_in_width(catalog, tmp_path):
    scores = made_up(catalog, tmp_path, "size_ladder", plan=PLAN | {"settings of training": "c"})
    wider = {"plan": PLAN | {"settings of training": "of its width", "start of the embeddings": "of its width"}}
    write(scores, "dense-equal-size", **wider)
    check_one_plan(scores)
    write(scores, "input-add", **wider)
    with pytest.raises(UserError, match=r"settings of training|start of the embeddings"):
        check_one_plan(scores)
