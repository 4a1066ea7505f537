"""Angles between a published model's rows, and between its up-projections' outputs: metrics of model_spread.yaml.

They are 95th percentiles of |cos|, in the mean over all layers but the first. A published model has no seeds. Intervals
are over groups of held-out sequences, each with its own places and pairs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from stemrepro.measures.scores import Scores
from stemrepro.measures.study import rows
from stemrepro.model.config import layers_of
from stemrepro.verdicts.effect import Effect

if TYPE_CHECKING:
    import pandas as pd

STUDY, OVER = "spread", "groups of held-out sequences"
COSINES, DENSITY, GROUPS = "cosines", "density", "groups"
What = Literal["up", "gated"]


def by_layer(scores: Scores, side: str, what: str, centred: bool = False) -> pd.DataFrame:
    """Return the 95th percentile of |cos| of a side's vectors: a row per group, a column per layer."""
    found = rows(scores, STUDY, COSINES, side=side, what=what, centred=centred)
    return found.pivot(index="group", columns="layer", values="p95")


def _mean(scores: Scores, side: str, what: str, centred: bool) -> pd.Series:
    layers = by_layer(scores, side, what, centred)
    return layers[list(layers_of("full", len(layers.columns)))].mean(axis=1)


def p95(scores: Scores, high: str, low: str, what: What, centred: bool = False) -> Effect:
    """95th percentile of |cos| of the first arm's vectors less that of the second's."""
    difference = _mean(scores, high, what, centred) - _mean(scores, low, what, centred)
    return Effect(difference.to_numpy(), over=GROUPS)


def over(scores: Scores, high: str, low: str, what: What, centred: bool = False) -> Effect:
    """95th percentile of |cos| of the first arm's vectors over that of the second's, less 1."""
    ratio = _mean(scores, high, what, centred) / _mean(scores, low, what, centred)
    return Effect(ratio.to_numpy() - 1, over=GROUPS)
