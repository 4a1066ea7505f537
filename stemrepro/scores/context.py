"""Reads an arm's losses by position and context."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from stemrepro.evaluation.buckets import CONTEXTS, position_edges
from stemrepro.files import damaged
from stemrepro.scores.losses import ArmLosses
from stemrepro.scores.reading import SEEDS, Array, read_npz

EDGES = position_edges(2**30)
ARRAYS = {
    "seeds": SEEDS,
    "source": Array("labels", "documents"),
    "by_position_tokens": Array("whole numbers", "documents positions"),
    "by_position": Array("numbers", "seeds documents positions"),
    "by_target_tokens": Array("whole numbers", "documents offsets"),
    "by_target": Array("numbers", "seeds contexts documents offsets"),
}


class ArmContext:
    """context.npz of an arm's losses, of its first `count` seeds.

    Raises:
        UserError: the file is missing or damaged.
    """

    def __init__(self, folder: Path, count: int | None = None) -> None:
        self.folder, self.losses = folder, ArmLosses(folder, count)
        if not self.losses.diverged:
            _ = self.arrays

    @cached_property
    def arrays(self) -> dict[str, np.ndarray]:
        """What ARRAYS names, of the seeds that are read; Unmeasured where a run diverged."""
        path = self.losses.whole().folder / "context.npz"
        arrays = read_npz(path, ARRAYS, contexts=len(CONTEXTS))
        kept = np.isin(arrays["seeds"], self.losses.scored)
        if kept.sum() != len(self.losses.scored):
            raise damaged(path, f"seeds are missing; scored are {self.losses.scored}")
        if not arrays["by_target_tokens"].shape[1] < arrays["by_position_tokens"].shape[1] <= len(EDGES):
            raise damaged(path, "positions must be in more buckets than offsets, and in 21 at most")
        return arrays | {name: arrays[name][kept] for name in ("seeds", "by_position", "by_target")}

    @property
    def summary(self) -> dict:
        """Costs and hashes of the runs."""
        return self.losses.summary


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
    at = np.array(EDGES[: tokens.shape[1]])
    chosen = (at >= low) & (at < high)
    return Part(nats[:, :, chosen].sum(axis=2), tokens[:, chosen].sum(axis=1))


def half(arm: ArmContext) -> int:
    """Position at which a block's second half begins."""
    return 2 ** (arm.arrays["by_position_tokens"].shape[1] - 2)
