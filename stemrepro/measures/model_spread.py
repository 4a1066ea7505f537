"""Angles between a published model's rows, and between its up-projections' outputs: metrics of model_spread.yaml.

A published model has no seeds. Intervals are over groups of held-out sequences, each with its own places and pairs.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

from stemrepro.measures.base import Measure
from stemrepro.measures.inputs import Inputs
from stemrepro.measures.metric import Field, metric
from stemrepro.measures.reading import read_table
from stemrepro.model.config import layers_of
from stemrepro.verdicts.contrast import Contrast

if TYPE_CHECKING:
    import pandas as pd

OVER = "groups"


class ModelSpread(Measure):
    """95th percentiles of |cos|, in the mean over all layers but the first."""

    study, over = "spread", "groups of held-out sequences"
    fields: ClassVar[dict[str, Field]] = {"what": ("up", "gated"), "centred": {"centred": True}}

    def __init__(self, inputs: Inputs) -> None:
        super().__init__(inputs)
        self.cosines, self.density = (read_table(inputs.folder / self.study, name) for name in ("cosines", "density"))

    @cached_property
    def depth(self) -> int:
        """Number of layers."""
        return int(self.cosines["layer"].max()) + 1

    @property
    def ranks(self) -> dict[str, int]:
        """The rank that vectors can have: W_u gives as many dimensions as it reads, and a product with the gate any."""
        first = self.cosines.iloc[0]
        return {"up": int(first["width"]), "gated": int(first["ffn_width"])}

    def by_layer(self, side: str, what: str, centred: bool = False) -> pd.DataFrame:
        """Return the 95th percentile of |cos| of a side's vectors: a row per group, a column per layer."""
        rows = self.cosines
        rows = rows[(rows["side"] == side) & (rows["what"] == what) & (rows["centred"] == centred)]
        return rows.pivot(index="group", columns="layer", values="p95")

    def _mean(self, side: str, what: str, centred: bool) -> pd.Series:
        return self.by_layer(side, what, centred)[list(layers_of("full", self.depth))].mean(axis=1)

    @metric("p95:{what}[:{centred}]", "95th percentile of |cos| of the first arm's vectors less that of the second's")
    def between(self, high: str, low: str, what: str, centred: bool = False) -> Contrast:
        difference = self._mean(high, what, centred) - self._mean(low, what, centred)
        return Contrast(difference.to_numpy(), over=OVER)

    @metric(
        "over:{what}[:{centred}]",
        "95th percentile of |cos| of the first arm's vectors over that of the second's, less 1",
    )
    def above(self, high: str, low: str, what: str, centred: bool = False) -> Contrast:
        ratio = self._mean(high, what, centred) / self._mean(low, what, centred)
        return Contrast(ratio.to_numpy() - 1, over=OVER)
