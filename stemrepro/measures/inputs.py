"""The inputs of every measure: a recipe and the scores of its arms."""

from dataclasses import dataclass
from pathlib import Path

from stemrepro.config.address import MAIN, Address
from stemrepro.config.catalog import Catalog
from stemrepro.config.recipe import Recipe
from stemrepro.config.scale import Scale


@dataclass(frozen=True)
class Inputs:
    """The inputs of a measure."""

    name: str
    catalog: Catalog
    scale_name: str
    folder: Path

    @property
    def recipe(self) -> Recipe:
        return self.catalog.recipes[self.name]

    @property
    def scale(self) -> Scale:
        return self.catalog.scale(self.scale_name)

    def scores(self, part: str, arm: str, variant: str = MAIN) -> Path:
        return self.folder / part / Address(variant, arm).path

    def places(self) -> list[Address]:
        """Return every arm at the scale itself, then the recipe's variants with their arms."""
        variants = [Address(variant, arm) for variant in self.recipe.variants for arm in self.recipe.arms_at(variant)]
        return [Address(MAIN, arm) for arm in self.recipe.arms] + variants
