"""What a longer context touches and is worth in a published model: metrics of recipes/model_capacity.yaml.

A published model has no seeds. Intervals are over held-out documents.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from stemrepro.measures.base import condition
from stemrepro.measures.scores import Scores, kept
from stemrepro.measures.study import rows, table
from stemrepro.verdicts.effect import Effect
from stemrepro.verdicts.rule import CONFOUNDED

if TYPE_CHECKING:
    import pandas as pd

STUDY, OVER, COUNTS = "capacity", "held-out documents", "counts"
MODELS = ("dense", "third", "full")


def by_document(values: pd.Series) -> Effect:
    """Return values of documents as an effect over these."""
    return Effect(values.to_numpy(float), over="documents")


@kept
def losses(scores: Scores, model: str) -> pd.DataFrame:
    """Return the loss of the same tokens: a row per document, a column per length of the context."""
    return rows(scores, STUDY, "losses", model=model).pivot(index="document", columns="context", values="nats")


def worth_of(scores: Scores, model: str, context: int) -> pd.Series:
    """Return what so many tokens of context take off the loss after the fewest, by document."""
    by_context = losses(scores, model)
    return by_context[by_context.columns.min()] - by_context[context]


def touched(scores: Scores, high: str, low: str, length: int) -> Effect:
    """Parameters of a table's touched rows over those of the up-projection, less 1."""
    counts = rows(scores, STUDY, COUNTS, length=length)
    return by_document(counts["distinct"] / counts["width"] - 1)


def repeated(scores: Scores, high: str, low: str, length: int) -> Effect:
    """Share by which a document's distinct tokens are fewer than those drawn from its source."""
    counts = rows(scores, STUDY, COUNTS, length=length)
    return by_document(1 - counts["distinct"] / counts["drawn"])


def worth(scores: Scores, high: str, low: str) -> Effect:
    """What the longest context takes off the loss after the shortest, of the first arm less the second's."""
    longest = losses(scores, high).columns.max()
    return by_document(worth_of(scores, high, longest) - worth_of(scores, low, longest))


@condition(CONFOUNDED, ("full",))
def full_reads(scores: Scores) -> str | None:
    """STEM full's loss is below that of a guess at random.

    A model that is worse than a guess may be less so with more context, which says nothing of what context is worth.
    """
    full = losses(scores, "full")
    loss, guess = full[full.columns.min()].mean(), math.log(table(scores, STUDY, COUNTS)["vocab"].iloc[0])
    return f"STEM full's loss is {loss:.1f}, a guess at random has {guess:.1f}" if loss > guess else None
