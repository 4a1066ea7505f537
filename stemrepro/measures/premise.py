"""What a token alone tells of a published model's up-projections: metrics of recipes/premise.yaml.

A published model has no seeds. Intervals are over the held-out sequences: each is left out once (jackknife).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np

from stemrepro.measures.scores import Scores, kept
from stemrepro.measures.study import rows, table
from stemrepro.model.config import layers_of
from stemrepro.verdicts.effect import Effect, jackknife

if TYPE_CHECKING:
    import pandas as pd

STUDY, OVER, SHARES = "premise", "held-out sequences of text", "shares"
WHAT = {"up": "W_u x", "gate": "W_g x", "out": "FFN output"}
HALF, UNITS = 50.0, "sequences"
What = Annotated[str, tuple(WHAT)]
Layers = Literal["third", "full", "early", "late"]


def layers_named(name: str, depth: int) -> list[int]:
    """Return the layers of a set: those that an arm replaces, or the first or the last third of all."""
    if name in ("early", "late"):
        third = depth // 3
        return list(range(third) if name == "early" else range(depth - third, depth))
    return list(layers_of(name, depth))


def every_layer(scores: Scores) -> range:
    """Return all layers."""
    return range(int(table(scores, STUDY, SHARES)["layer"].max()) + 1)


def budgets(scores: Scores) -> list[int]:
    """Return the tokens of the rows' text, ascending."""
    return sorted(table(scores, STUDY, SHARES)["budget"].unique().tolist())


def layers_of_set(scores: Scores, name: str) -> list[int]:
    """Return the layers of a set."""
    return layers_named(name, len(every_layer(scores)))


def _by_layer(rows: pd.DataFrame, *columns: str) -> np.ndarray:
    """Return columns by layer and sequence [columns, layers, n]."""
    return np.stack([rows.pivot(index="layer", columns="sequence", values=name).to_numpy() for name in columns])


@kept
def squares(scores: Scores, what: str, address: str, budget: int | None = None) -> np.ndarray:
    """Return sums of squares around the mean and around a row, by layer and sequence [2, layers, n]."""
    found = rows(scores, STUDY, SHARES, budget=budget or budgets(scores)[-1], what=WHAT[what], address=address)
    return _by_layer(found, "total", "left")


def _percent(sums: np.ndarray) -> float:
    """Return the mean over layers of the share that a row explains [2, layers, n]."""
    return 100 * float(np.mean(1 - sums[1].sum(axis=-1) / sums[0].sum(axis=-1)))


def share(
    scores: Scores, what: str, address: str, of: Iterable[int], budget: int | None = None, less: float = 0.0
) -> Effect:
    """Return the mean over layers of the share that a row explains, in percent."""
    sums = squares(scores, what, address, budget)[:, list(of)]
    return jackknife(lambda left: _percent(left) - less, sums, UNITS)


def _less(first: np.ndarray, second: np.ndarray) -> Effect:
    both = np.concatenate([first, second])
    return jackknife(lambda left: _percent(left[:2]) - _percent(left[2:]), both, UNITS)


def explained(scores: Scores, high: str, low: str, what: What, layers: Layers) -> Effect:
    """Share that the first arm's rows explain, in percent, less half of the variance."""
    return share(scores, what, high, layers_of_set(scores, layers), less=HALF)


def over_gate(scores: Scores, high: str, low: str, layers: Layers) -> Effect:
    """Share of W_u x that rows explain, in points over that of W_g x."""
    chosen = layers_of_set(scores, layers)
    return _less(squares(scores, "up", high)[:, chosen], squares(scores, "gate", low)[:, chosen])


def falls(scores: Scores, high: str, low: str, what: What) -> Effect:
    """Share that rows explain in the first third of the layers, in points over the last third."""
    sums = squares(scores, what, high)
    return _less(*(sums[:, layers_of_set(scores, name)] for name in ("early", "late")))


def cost_of(scores: Scores, layers: Iterable[int]) -> Effect:
    """Return what rows of one layer cost in the mean over layers: the rise of the loss, nats per token."""
    costs = table(scores, STUDY, "costs")
    costs = costs[costs["layer"].isin(list(layers))].assign(loss=lambda each: each["nats"] - each["dense"])
    sums = _by_layer(costs, "loss", "tokens")
    return jackknife(lambda left: float(np.mean(left[0].sum(axis=-1) / left[1].sum(axis=-1))), sums, UNITS)


def cost(scores: Scores, high: str, low: str, layers: Layers) -> Effect:
    """What the loss rises by where one layer reads its rows, in the mean over layers."""
    return cost_of(scores, layers_of_set(scores, layers))
