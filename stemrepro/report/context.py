"""Reads losses by position and context, and forms the contrasts of the long_context_capacity recipe."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from stemrepro.claims import Contrast
from stemrepro.errors import UserError
from stemrepro.evaluation.buckets import CONTEXTS, position_edges
from stemrepro.recipe import Claim
from stemrepro.report.bootstrap import bootstrap_error
from stemrepro.report.files import read_json, read_npz
from stemrepro.report.text import TextCounts

EARLY = (1, 8)
"""Positions that count as early, from and up to."""
CONTEXT_WORTH = 0.02
"""Nats that dense must gain from the first half for a context effect to be testable."""


class ArmContext:
    """context.npz and summary.json of an arm's losses, of its first `seeds` seeds."""

    def __init__(self, folder: Path, seeds: int | None = None) -> None:
        self.folder = folder
        summary, arrays = read_json(folder / "summary.json"), read_npz(folder / "context.npz")
        self.summary = summary | {"seeds": min(summary["seeds"], seeds or summary["seeds"])}
        self.arrays = arrays | {name: arrays[name][:seeds] for name in ("seeds", "by_position", "by_target")}


@dataclass(frozen=True)
class Part:
    """Sums that a mean loss is made of: nats [seeds, documents] and tokens [documents]."""

    nats: np.ndarray
    tokens: np.ndarray


def part(arm: ArmContext, what: str, low: int = 0, high: int = 2**30) -> Part:
    """Losses at positions (or offsets in the second half) from `low` up to `high`.

    Args:
        what: "position", or one of CONTEXTS for the second half's targets.
    """
    name = "by_position" if what == "position" else "by_target"
    tokens = arm.arrays[f"{name}_tokens"]
    nats = arm.arrays[name] if what == "position" else arm.arrays[name][:, CONTEXTS.index(what)]
    at = np.array(position_edges(2**30)[: tokens.shape[1]])
    chosen = (at >= low) & (at < high)
    return Part(nats[:, :, chosen].sum(axis=2), tokens[:, chosen].sum(axis=1))


def half(arm: ArmContext) -> int:
    """Position at which a block's second half begins."""
    return 2 ** (arm.arrays["by_position_tokens"].shape[1] - 2)


def parts(arm: ArmContext, growth: str) -> tuple[Part, Part]:
    """The two conditions whose difference a growth is: late and early, behind more and less."""
    if growth == "position":
        return part(arm, "position", half(arm)), part(arm, "position", *EARLY)
    if growth == "prefix":
        return part(arm, "intact"), part(arm, "alone")
    if growth == "order":
        return part(arm, "intact"), part(arm, "shuffled")
    raise UserError(f"growth '{growth}' is unknown; there are position, prefix, order")


def mean_difference(first: Part, second: Part, more: Part | None, fewer: Part | None, source: np.ndarray) -> Contrast:
    """mean(first) - mean(second) by seed, less mean(more) - mean(fewer) where these are given; every source counts the same.
    The error between documents is a bootstrap within each source, as for whole sources."""
    upper, lower = first.nats - second.nats, (more.nats - fewer.nats if more else np.zeros_like(first.nats))
    tokens, others = first.tokens.astype(float), (more.tokens if more else first.tokens).astype(float)
    by_seed, groups, names = np.zeros(len(upper)), [], np.unique(source)
    for name in names:
        own = source == name
        by_seed += upper[:, own].sum(axis=1) / tokens[own].sum() - lower[:, own].sum(axis=1) / others[own].sum()
        groups.append((upper[:, own].mean(axis=0), tokens[own], lower[:, own].mean(axis=0), others[own]))
    error = bootstrap_error(
        groups, lambda u, t, v, o, axis=-1: u.sum(axis=axis) / t.sum(axis=axis) - v.sum(axis=axis) / o.sum(axis=axis)
    )
    return Contrast(by_seed / len(names), *error)


def contrast(arms: dict[str, ArmContext], high: str, low: str, metric: str) -> Contrast:
    """How much more loss(high) - loss(low) is under the first condition of a growth than under the second.

    Raises:
        UserError: an unknown metric, or arms scored on different seeds or documents.
    """
    kind, _, growth = metric.partition(":")
    if kind != "growth":
        raise UserError(f"metric '{metric}': it must be growth:position, growth:prefix or growth:order")
    first, second = arms[high], arms[low]
    for name in ("seeds", "by_position_tokens", "by_target_tokens"):
        if not np.array_equal(first.arrays[name], second.arrays[name]):
            raise UserError(f"{first.folder} and {second.folder} were scored on different seeds or documents")
    (late, early), (late_low, early_low) = parts(first, growth), parts(second, growth)
    return mean_difference(late, late_low, early, early_low, first.arrays["source"])


def worth(arm: ArmContext) -> Contrast:
    """Nats a token that the first half takes off the second half's loss."""
    return mean_difference(part(arm, "alone"), part(arm, "intact"), None, None, arm.arrays["source"])


def failed_precondition(claim: Claim, arms: dict[str, ArmContext]) -> str | None:
    """Why a claim can't be tested at this scale, or None. dense-uses-context: the first half of a block must be worth CONTEXT_WORTH
    nats a token to dense on the second half's targets."""
    if claim.precondition == "dense-uses-context":
        found = worth(arms["dense"]).mean
        if found < CONTEXT_WORTH:
            return f"half a block of context is worth {found:.3f} nats to dense; {CONTEXT_WORTH:g} are needed"
    return None


@dataclass(frozen=True)
class Measure:
    """What `report.results.verdicts` asks: contrasts of arms, and counts in the text."""

    text: TextCounts

    contrast = staticmethod(contrast)
    failed_precondition = staticmethod(failed_precondition)

    def value(self, _: dict, metric: str) -> float:
        """The number of an exact claim."""
        return self.text.value(metric)
