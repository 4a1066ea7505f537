"""The worth of more context to each arm, and counts in the text: metrics of recipes/long_context_capacity.yaml."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from stemrepro.common.errors import UserError
from stemrepro.common.files import damaged
from stemrepro.measures.base import condition
from stemrepro.measures.losses import arm_losses, bootstrap_error
from stemrepro.measures.reading import array
from stemrepro.measures.scores import Scores, kept
from stemrepro.measures.text import cache_below, not_sublinear, touches_more
from stemrepro.verdicts.effect import Effect
from stemrepro.verdicts.rule import TOO_SMALL

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["cache_below", "dense_uses_context", "growth", "not_sublinear", "touches_more"]
READS_TEXT = True
EARLY = (1, 8)
"""Positions that count as early: the first, and the one after the last."""
CONTEXT_WORTH = 0.02
"""Nats that dense must gain from the first half for a context effect to be testable."""


class Part(NamedTuple):
    """Sums that an arm's mean loss is made of: nats [seeds, documents], of so many tokens of a source [documents]."""

    arm: str
    seeds: np.ndarray
    source: np.ndarray
    tokens: np.ndarray
    nats: np.ndarray


def sums(arm: str, rows: pd.DataFrame, low: int = 0, high: int = 2**30) -> Part:
    """Return sums over lines (seed, document, at, source, tokens, nats) whose `at` goes from `low` up to `high`."""
    rows = rows[(rows["at"] >= low) & (rows["at"] < high)]
    source, tokens, nats = (array(rows, name, "seed", "document", "at") for name in ("source", "tokens", "nats"))
    return Part(arm, rows["seed"].unique(), source[0, :, 0], tokens[0].sum(axis=1), nats.sum(axis=2).astype(float))


@kept
def context_lines(scores: Scores, arm: str) -> dict[str, pd.DataFrame]:
    """Return an arm's lines of the table "context" by `what`: "position", or one of CONTEXTS; of its first seeds."""
    losses = arm_losses(scores, arm).whole()
    rows = losses.of_scored("context")
    if rows["seed"].nunique() != len(losses.scored):
        raise damaged(scores.folder / "context.parquet", f"of {losses} seeds are missing; scored are {losses.scored}")
    return dict(list(rows.groupby("what", sort=False)))


def part(scores: Scores, arm: str, what: str, low: int = 0, high: int = 2**30) -> Part:
    """Return losses at positions from `low` up to `high`, or by one of CONTEXTS at such offsets in the second half."""
    return sums(arm, context_lines(scores, arm)[what], low, high)


def half(scores: Scores, arm: str) -> int:
    """Return the position at which a block's second half begins."""
    return int(context_lines(scores, arm)["position"]["at"].max())


def mean_difference(first: Part, second: Part, more: Part | None = None, fewer: Part | None = None) -> Effect:
    """Return mean(first) - mean(second) by seed, less mean(more) - mean(fewer) where these are given.

    Every source counts the same. The error between documents is a bootstrap within each source.
    """
    for one, other in ((first, second), (more, fewer)):
        axes = ("seeds", "source", "tokens")
        if one and other and not all(np.array_equal(getattr(one, name), getattr(other, name)) for name in axes):
            raise UserError(f"{one.arm} and {other.arm} were scored on different seeds or targets; score them anew")
    tokens = others = first.tokens.astype(float)
    upper = first.nats - second.nats
    lower = np.zeros_like(upper)
    if more and fewer:
        lower, others = more.nats - fewer.nats, more.tokens.astype(float)
    by_seed, groups, names = np.zeros(len(upper)), [], np.unique(first.source)
    for name in names:
        rows = first.source == name
        by_seed += upper[:, rows].sum(axis=1) / tokens[rows].sum() - lower[:, rows].sum(axis=1) / others[rows].sum()
        groups.append((upper[:, rows].mean(axis=0), tokens[rows], lower[:, rows].mean(axis=0), others[rows]))
    return Effect(by_seed / len(names), bootstrap_error(groups, _growth_of_means))


def _growth_of_means(
    upper: np.ndarray, tokens: np.ndarray, lower: np.ndarray, others: np.ndarray, axis: int = -1
) -> np.ndarray:
    return upper.sum(axis=axis) / tokens.sum(axis=axis) - lower.sum(axis=axis) / others.sum(axis=axis)


def context_gain(scores: Scores, arm: str) -> Effect:
    """Return the nats per token that the first half takes off the second half's loss."""
    return mean_difference(part(scores, arm, "alone"), part(scores, arm, "intact"))


def growth(scores: Scores, high: str, low: str, of: Literal["position", "prefix", "order"]) -> Effect:
    """Growth of a difference of losses with the position, after a prefix, or after one in order; nats per token.

    "position": in the second half of a block less that in positions 1 to 7. "prefix": on the second half's targets
    after the first half less that after nothing. "order": the same, less that after the first half's tokens shuffled.
    """
    if of == "position":
        settings: list[tuple[Any, ...]] = [(of, half(scores, high)), (of, *EARLY)]
    else:
        settings = [("intact",), ("alone" if of == "prefix" else "shuffled",)]
    late, early = ([part(scores, arm, *chosen) for arm in (high, low)] for chosen in settings)
    return mean_difference(*late, *early)


@condition(TOO_SMALL, ("dense",))
def dense_uses_context(scores: Scores) -> str | None:
    """Half a block of context is worth something to dense."""
    low, high = context_gain(scores, "dense").interval(0.05)
    if high < CONTEXT_WORTH:
        nats = f"{low:.3f} to {high:.3f} nats (95%)"
        return f"half a block of context is worth {nats} to dense; {CONTEXT_WORTH:g} are needed"
    return None
