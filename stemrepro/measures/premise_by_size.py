"""What a token alone tells of W_u x in our own dense models: metrics of recipes/premise_by_size.yaml."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from stemrepro.common.files import damaged
from stemrepro.config.address import MAIN
from stemrepro.measures.comparison import Comparison
from stemrepro.measures.inputs import Inputs
from stemrepro.measures.metric import Field, metric
from stemrepro.measures.premise import HALF, WHAT, Premise, layers_named
from stemrepro.measures.reading import read_table
from stemrepro.verdicts.contrast import Contrast, unpaired

if TYPE_CHECKING:
    import pandas as pd

    from stemrepro.config.catalog import Catalog
    from stemrepro.config.recipe import Recipe


def _places(catalog: Catalog, recipe: Recipe) -> tuple[str, ...]:
    return (MAIN, *recipe.variants)


class PremiseBySize(Comparison):
    """Shares of variance that the token's row explains, by seed; two sizes or budgets are two samples."""

    study = "sizes"
    fields: ClassVar[dict[str, Field]] = {
        "what": {"up": WHAT["up"], "gate": WHAT["gate"]}, "layers": ("third", "full", "early", "late"),
        "first": _places, "second": _places,
    }  # fmt: skip

    @cached_property
    def table(self) -> pd.DataFrame:
        """Sums of squares by variant, what, address, layer and seed."""
        table = read_table(self.inputs.folder / self.study, "shares")
        return table.set_index(["variant", "what", "address", "layer", "seed"]).sort_index()

    @cached_property
    def depth(self) -> int:
        """Number of layers."""
        return self.inputs.scale.model.layers

    def explained(self, variant: str, what: str = WHAT["up"], address: str = "token") -> np.ndarray:
        """Return the share that a row explains, in percent, by layer and seed [layers, seeds]."""
        try:
            rows = self.table.loc[variant, what, address]
        except KeyError as error:
            raise damaged(self.inputs.folder / self.study / "shares.parquet", f"nothing of {error}") from error
        return 100 * (1 - rows["left"] / rows["total"]).unstack("seed").to_numpy()

    @cached_property
    def published(self) -> list[float]:
        """The same share of the published model with endless text for its rows, by layer; none without its tables."""
        catalog = self.inputs.catalog
        name = next(name for name, scale in catalog.scales.items() if scale.published)
        folder = self.inputs.folder.parent / name
        if not [*(folder / Premise.study).glob("shares-*.parquet")]:
            return []
        premise = Premise(Inputs("premise", catalog, name, folder))
        return [premise.share(WHAT["up"], "limit", [layer]).mean for layer in range(premise.depth)]

    def share(self, variant: str, what: str, layers: str) -> np.ndarray:
        """Return the mean of that over layers, by seed."""
        return self.explained(variant, what)[layers_named(layers, self.depth)].mean(axis=0)

    @metric("explained:{what}:{layers}[@{variant}]", "share that the token's row explains, in percent, less half")
    def over_half(self, high: str, low: str, what: str, layers: str, variant: str = MAIN) -> Contrast:
        return Contrast(self.share(variant, what, layers) - HALF)

    @metric("lost:{what}:{layers}@{first}>{second}", "that share at one place, in points over that at another")
    def lost(self, high: str, low: str, what: str, layers: str, first: str, second: str) -> Contrast:
        return unpaired(self.share(first, what, layers), self.share(second, what, layers))
