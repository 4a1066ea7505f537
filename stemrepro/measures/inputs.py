"""What every measure is made from: a recipe and the scores of its arms."""

from dataclasses import dataclass
from pathlib import Path

from stemrepro.config.catalog import Catalog
from stemrepro.config.recipe import Recipe
from stemrepro.config.scale import Scale


@dataclass(frozen=True)
class Inputs:
    """What a measure is made from.

    Attributes:
        scale_name: whose scores are read.
        folder: `scores/<scale>`.
    """

    name: str
    catalog: Catalog
    scale_name: str
    folder: Path

    @property
    def recipe(self) -> Recipe:
        """The recipe itself."""
        return self.catalog.recipes[self.name]

    @property
    def scale(self) -> Scale:
        """The scale itself."""
        return self.catalog.scale(self.scale_name)
