"""How much models hold: metrics of recipes/knowledge_capacity.yaml.

Bits are those of attributes drawn by chance, from log-probabilities. Arms are not paired here: what two of them hold is
uncorrelated over seeds, so that pairing would cost degrees of freedom and buy nothing.
"""

from typing import Literal

import numpy as np

from stemrepro.config.address import MAIN, Address
from stemrepro.config.arm import run_settings
from stemrepro.measures.base import Level, condition, on_scale
from stemrepro.measures.reading import arm_table
from stemrepro.measures.scores import Scores
from stemrepro.model.cost import flops_per_token, parameter_counts
from stemrepro.verdicts.effect import Effect, of_shares, unpaired
from stemrepro.verdicts.rule import TOO_EASY, TOO_SMALL

LEARNT, FULL = 50.0, 90.0
"""Percent of the bits that dense must know of the fewest people, and must not know of the most."""


def by_people(scores: Scores) -> list[str]:
    """Return the variants by their number of people, from few to many."""
    return sorted((MAIN, *scores.recipe.variants), key=lambda name: scores.catalog.variant(name).people)


def level(scores: Scores, arm: str, variant: str) -> Level:
    """Return the percentage of the bits that an arm knows."""
    rows = arm_table(scores, "capacity", arm, variant)
    return Level((100 * rows["known"] / rows["bits"]).to_numpy(), rows["facts"].to_numpy(float))


def costs(scores: Scores, arm: str) -> dict[str, float]:
    """Return the "total" and "active" parameters of an arm, and its forward FLOPs per token ("flop")."""
    catalog = scores.catalog
    model, training = run_settings(Address(MAIN, arm), catalog.arms[arm], catalog.variant(MAIN), scores.scale)
    counts = parameter_counts(model)
    return {"total": counts["total"], "active": counts["active"], "flop": flops_per_token(model, training.sequence)}


def _levels(scores: Scores) -> list[Level]:
    return [level(scores, "dense", by_people(scores)[-1])]


@on_scale(_levels)
def known(scores: Scores, high: str, low: str) -> Effect:
    """Percent of the bits known of the most people."""
    one, other = (level(scores, arm, by_people(scores)[-1]) for arm in (high, low))
    return of_shares(one.percent, other.percent, one.items, paired=False)


def known_per(scores: Scores, high: str, low: str, cost: Literal["total", "active", "flop"]) -> Effect:
    """Bits known of the most people per parameter, per active one or per forward FLOP per token, in doublings."""
    most = by_people(scores)[-1]
    bits = [arm_table(scores, "capacity", arm, most)["known"].to_numpy() for arm in (high, low)]
    per = [costs(scores, arm)[cost] for arm in (high, low)]
    return unpaired(*(np.log2(np.where(of >= 1, of, np.nan) / by) for of, by in zip(bits, per, strict=True)))


@condition(TOO_SMALL, ("dense",))
def dense_learns(scores: Scores) -> str | None:
    """Dense knows 50% of the fewest people's bits."""
    if (few := level(scores, "dense", by_people(scores)[0])).below(LEARNT):
        return f"dense knows {few.words} of the bits of the fewest people; {LEARNT:g} are needed"
    return None


@condition(TOO_EASY, ("dense",))
def dense_is_full(scores: Scores) -> str | None:
    """Dense knows less than 90% of the bits of the most people."""
    if (many := level(scores, "dense", by_people(scores)[-1])).above(FULL):
        return f"dense knows {many.words} of the bits of the most people, so that its capacity isn't reached"
    return None
