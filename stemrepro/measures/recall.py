"""Recall in context: metrics of recipes/associative_recall.yaml.

Accuracies are in points. The documents are the same for every arm and seed.
"""

from typing import Literal

import numpy as np

from stemrepro.common.errors import UserError
from stemrepro.measures.base import Level, condition, on_scale
from stemrepro.measures.losses import slope
from stemrepro.measures.reading import arm_table, array
from stemrepro.measures.scores import Scores
from stemrepro.verdicts.effect import Effect, of_shares
from stemrepro.verdicts.rule import TOO_SMALL

SOLVED = 90.0
"""Points that dense must reach with the fewest pairs at the trained length: below them there is no recall to change."""
Where = Literal["trained", "longer", "longer-most"]
"""At the trained length; at the longest documents; there with the most pairs that training has."""


def pairs_in(scores: Scores, length: int) -> list[int]:
    """Return the numbers of pairs in documents of a length."""
    assert scores.scale.recall is not None
    return [pairs for pairs in scores.scale.recall.pairs if 4 * pairs <= length]


def level(scores: Scores, arm: str, length: int, pairs: list[int]) -> Level:
    """Return points of right values by seed, the mean over numbers of pairs, with the number of queries."""
    rows = arm_table(scores, "recall", arm)
    rows = rows[rows["pairs"].isin(pairs) & (rows["length"] == length)]
    if rows.empty:
        raise UserError(f"{scores.folder}/recall.parquet: {arm} has no documents of {pairs} pairs and {length} tokens")
    right, queries = (array(rows, name, "seed", "pairs").astype(float) for name in ("right", "queries"))
    return Level((100 * (right / queries)).mean(axis=1), queries.sum(axis=1))


def _documents(scores: Scores, where: Where) -> tuple[int, list[int]]:
    """Return their length and numbers of pairs."""
    trained = scores.scale.model.sequence
    pairs = pairs_in(scores, trained)
    if where == "trained" or scores.scale.recall is None:
        return trained, pairs
    return max(scores.scale.recall.lengths), pairs if where == "longer" else pairs[-1:]


def _levels(scores: Scores, where: Where = "trained") -> list[Level]:
    return [level(scores, "dense", *_documents(scores, where))]


@on_scale(_levels)
def recalled(scores: Scores, high: str, low: str, where: Where = "trained") -> Effect:
    """Points of right values, mean over numbers of pairs."""
    one, other = (level(scores, arm, *_documents(scores, where)) for arm in (high, low))
    return of_shares(one.percent, other.percent, one.items)


def pairs_slope(scores: Scores, high: str, low: str) -> Effect:
    """How an arm's lead over the other changes with each doubling of the number of pairs, points."""
    length, steps = _documents(scores, "trained")
    one, other = ([level(scores, arm, length, [pairs]).percent for pairs in steps] for arm in (high, low))
    return Effect(slope(np.array(steps), np.subtract(one, other)))


@condition(TOO_SMALL, ("dense",))
def dense_recalls(scores: Scores) -> str | None:
    """Dense says 90% of the values right with the fewest pairs."""
    length, (fewest, *_) = _documents(scores, "trained")
    if (share := level(scores, "dense", length, [fewest])).below(SOLVED):
        return f"dense says {share.words} of the values right with {fewest} pairs; {SOLVED:g} are needed"
    return None
