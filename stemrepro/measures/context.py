"""The worth of more context to each arm, and counts in the text: metrics of recipes/long_context_capacity.yaml."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np

from stemrepro.common.files import damaged
from stemrepro.config.buckets import CONTEXTS, position_edges
from stemrepro.measures.base import Precondition
from stemrepro.measures.bootstrap import bootstrap_error
from stemrepro.measures.losses import ArmLosses
from stemrepro.measures.metric import metric
from stemrepro.measures.reading import check_same, read_npz
from stemrepro.measures.text import CountsText
from stemrepro.verdicts.contrast import Contrast
from stemrepro.verdicts.rule import TOO_SMALL

EDGES = position_edges(2**30)
ARRAYS = ("seeds", "source", "by_position_tokens", "by_position", "by_target_tokens", "by_target")


class ArmContext:
    """context.npz of an arm's losses, of its first `count` seeds; UserError where the file is missing or damaged."""

    def __init__(self, folder: Path, count: int | None = None) -> None:
        self.folder, self.losses = folder, ArmLosses(folder, count)
        if not self.losses.diverged:
            _ = self.arrays

    @cached_property
    def arrays(self) -> dict[str, np.ndarray]:
        """The arrays of ARRAYS, of the seeds that are read; Unmeasured where a run diverged."""
        path = self.losses.whole().folder / "context.npz"
        arrays = read_npz(path, *ARRAYS)
        kept = np.isin(arrays["seeds"], self.losses.scored)
        if kept.sum() != len(self.losses.scored):
            raise damaged(path, f"seeds are missing; scored are {self.losses.scored}")
        return arrays | {name: arrays[name][kept] for name in ("seeds", "by_position", "by_target")}

    @property
    def summary(self) -> dict:
        return self.losses.summary


@dataclass(frozen=True)
class Part:
    """Sums that a mean loss is made of: nats [seeds, documents] and tokens [documents]."""

    nats: np.ndarray
    tokens: np.ndarray


def part(arm: ArmContext, what: str, low: int = 0, high: int = 2**30) -> Part:
    """Return losses at positions (or offsets in the second half) from `low` up to `high`.

    Args:
        what: "position", or one of CONTEXTS for the second half's targets.
    """
    name = "by_position" if what == "position" else "by_target"
    tokens = arm.arrays[f"{name}_tokens"]
    nats = arm.arrays[name] if what == "position" else arm.arrays[name][:, CONTEXTS.index(what)]
    at = np.array(EDGES[: tokens.shape[1]])
    chosen = (at >= low) & (at < high)
    return Part(nats[:, :, chosen].sum(axis=2), tokens[:, chosen].sum(axis=1))


def half(arm: ArmContext) -> int:
    """Return the position at which a block's second half begins."""
    return 2 ** (arm.arrays["by_position_tokens"].shape[1] - 2)


EARLY = (1, 8)
"""Positions that count as early: the first, and the one after the last."""
CONTEXT_WORTH = 0.02
"""Nats that dense must gain from the first half for a context effect to be testable."""


def parts(arm: ArmContext, growth: Literal["position", "prefix", "order"]) -> tuple[Part, Part]:
    """Return the two conditions whose difference a growth is: with more context and with less."""
    if growth == "position":
        return part(arm, "position", half(arm)), part(arm, "position", *EARLY)
    return part(arm, "intact"), part(arm, "alone" if growth == "prefix" else "shuffled")


def mean_difference(first: Part, second: Part, more: Part | None, fewer: Part | None, source: np.ndarray) -> Contrast:
    """Return mean(first) - mean(second) by seed, less mean(more) - mean(fewer) where these are given.

    Every source counts the same. The error between documents is a bootstrap within each source.
    """
    upper = first.nats - second.nats
    lower = more.nats - fewer.nats if more else np.zeros_like(first.nats)
    tokens, others = first.tokens.astype(float), (more.tokens if more else first.tokens).astype(float)
    by_seed, groups, names = np.zeros(len(upper)), [], np.unique(source)
    for name in names:
        rows = source == name
        by_seed += upper[:, rows].sum(axis=1) / tokens[rows].sum() - lower[:, rows].sum(axis=1) / others[rows].sum()
        groups.append((upper[:, rows].mean(axis=0), tokens[rows], lower[:, rows].mean(axis=0), others[rows]))
    error = bootstrap_error(
        groups, lambda u, t, v, o, axis=-1: u.sum(axis=axis) / t.sum(axis=axis) - v.sum(axis=axis) / o.sum(axis=axis)
    )
    return Contrast(by_seed / len(names), error)


def context_gain(arm: ArmContext) -> Contrast:
    """Return the nats per token that the first half takes off the second half's loss."""
    return mean_difference(part(arm, "alone"), part(arm, "intact"), None, None, arm.arrays["source"])


class Context(CountsText):
    """Growth of a difference of two arms with context, and counts in the text."""

    preconditions: ClassVar[dict[str, Precondition]] = {
        "dense-uses-context": Precondition("half a block of context is worth something to dense", TOO_SMALL, ("dense",))
    }

    @cached_property
    def arms(self) -> dict[str, ArmContext]:
        recipe = self.inputs.recipe
        return {arm: ArmContext(self.inputs.scores("losses", arm), recipe.seeds_of(arm)) for arm in recipe.arms}

    @metric("growth:{growth=position}", "a difference in the second half of a block less that in positions 1 to 7")
    @metric(
        "growth:{growth=prefix}",
        "a difference on the second half's targets after the first half less that after nothing",
    )
    @metric("growth:{growth=order}", "the same after the first half as it is less that after the same tokens shuffled")
    def growth(self, high: str, low: str, growth: str) -> Contrast:
        first, second = self.arms[high], self.arms[low]
        check_same(first, second, "seeds", "by_position_tokens", "by_target_tokens")
        (late, early), (late_low, early_low) = parts(first, growth), parts(second, growth)
        return mean_difference(late, late_low, early, early_low, first.arrays["source"])

    def untestable(self, metric: str, precondition: str) -> str | None:
        if precondition == "dense-uses-context":
            low, high = context_gain(self.arms["dense"]).interval(0.05)
            if high < CONTEXT_WORTH:
                nats = f"{low:.3f} to {high:.3f} nats (95%)"
                return f"half a block of context is worth {nats} to dense; {CONTEXT_WORTH:g} are needed"
        return None
