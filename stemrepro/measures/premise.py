"""What a token alone tells of a published model's up-projections: metrics of recipes/premise.yaml.

A published model has no seeds. Intervals are over the held-out sequences: each is left out once (jackknife).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import ClassVar

import numpy as np

from stemrepro.measures.base import Measure
from stemrepro.measures.inputs import Inputs
from stemrepro.measures.metric import Field, metric
from stemrepro.measures.reading import read_table
from stemrepro.model.config import layers_of
from stemrepro.verdicts.contrast import Contrast, jackknife

WHAT = {"up": "W_u x", "gate": "W_g x", "out": "FFN output"}
HALF = 50.0
OVER = "sequences"


def layers_named(name: str, depth: int) -> list[int]:
    """Return the layers of a set: those that an arm replaces, or the first or the last third of all."""
    if name in ("early", "late"):
        third = depth // 3
        return list(range(third) if name == "early" else range(depth - third, depth))
    return list(layers_of(name, depth))


class Premise(Measure):
    """Shares of variance that rows explain, and what reading them costs."""

    study, over = "premise", "held-out sequences of text"
    fields: ClassVar[dict[str, Field]] = {"what": WHAT, "layers": ("third", "full", "early", "late")}

    def __init__(self, inputs: Inputs) -> None:
        import pandas as pd  # a second that reading recipes can do without

        super().__init__(inputs)
        home = inputs.folder / self.study
        names = sorted(path.stem for path in home.glob("shares-*.parquet")) or ["shares"]
        self.shares = pd.concat([read_table(home, name) for name in names])
        self.costs = read_table(home, "costs")
        self.budgets = sorted(self.shares["budget"].unique())

    @cached_property
    def depth(self) -> int:
        """Number of layers."""
        return int(self.shares["layer"].max()) + 1

    def layers(self, name: str) -> list[int]:
        """Return the layers of a set."""
        return layers_named(name, self.depth)

    def explained(self, what: str, address: str, budget: int | None = None) -> np.ndarray:
        """Return sums of squares around the mean and around a row, by layer and sequence [2, layers, n]."""
        rows = self.shares[self.shares["budget"] == (budget or self.budgets[-1])]
        rows = rows[(rows["what"] == what) & (rows["address"] == address)]
        return np.stack(
            [rows.pivot(index="layer", columns="sequence", values=name).to_numpy() for name in ("total", "left")]
        )

    def share(self, what: str, address: str, layers: list[int], budget: int | None = None) -> Contrast:
        """Return the mean over layers of the share that a row explains, in percent."""
        return jackknife(*self._of(what, address, layers, budget), OVER)

    def _of(self, what: str, address: str, layers: list[int], budget: int | None = None) -> tuple[Callable, np.ndarray]:
        sums = self.explained(what, address, budget)[:, layers]
        return lambda kept: 100 * float(np.mean(1 - kept[1].sum(axis=-1) / kept[0].sum(axis=-1))), sums

    @metric(
        "explained:{what}:{layers}", "share that the first arm's rows explain, in percent, less half of the variance"
    )
    def over_half(self, high: str, low: str, what: str, layers: str) -> Contrast:
        statistic, sums = self._of(what, high, self.layers(layers))
        return jackknife(lambda kept: statistic(kept) - HALF, sums, OVER)

    @metric("over-gate:{layers}", "share of W_u x that rows explain, in points over that of W_g x")
    def over_gate(self, high: str, low: str, layers: str) -> Contrast:
        (up, first), (gate, second) = (
            self._of(WHAT[what], arm, self.layers(layers)) for what, arm in (("up", high), ("gate", low))
        )
        return jackknife(lambda kept: up(kept[:2]) - gate(kept[2:]), np.concatenate([first, second]), OVER)

    @metric("falls:{what}", "share that rows explain in the first third of the layers, in points over the last third")
    def falls(self, high: str, low: str, what: str) -> Contrast:
        (early, first), (late, second) = (self._of(what, high, self.layers(layers)) for layers in ("early", "late"))
        return jackknife(lambda kept: early(kept[:2]) - late(kept[2:]), np.concatenate([first, second]), OVER)

    @metric("cost:{layers}", "what the loss rises by where one layer reads its rows, in the mean over layers")
    def cost(self, high: str, low: str, layers: str) -> Contrast:
        return self.cost_of(self.layers(layers))

    def cost_of(self, layers: list[int], of: str = "loss") -> Contrast:
        """Return what rows of one layer cost in the mean over layers: the rise of the loss, or "kl", nats per token."""
        rows = self.costs[self.costs["layer"].isin(layers)]
        rows = rows.assign(loss=rows["nats"] - rows["dense"])
        sums = np.stack(
            [rows.pivot(index="layer", columns="sequence", values=name).to_numpy() for name in (of, "tokens")]
        )
        return jackknife(lambda kept: float(np.mean(kept[0].sum(axis=-1) / kept[1].sum(axis=-1))), sums, OVER)
