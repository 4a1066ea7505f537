"""The catalogue of recipes/, read and checked: every claim and estimate is one that its recipe's measure can give."""

from functools import lru_cache
from pathlib import Path

from stemrepro.common.errors import UserError
from stemrepro.common.paths import RECIPES
from stemrepro.config.catalog import Catalog, read_recipes
from stemrepro.measures.base import measure_module, refusal


def load(folder: Path = RECIPES) -> Catalog:
    """Read recipes/ and check that each measure knows the metrics of its recipe; UserError where it doesn't.

    Every figure and page asks for it, so a process parses and checks the same files once.
    """
    return _load(folder, tuple((path, _content(path)) for path in sorted(folder.rglob("*.yaml"))))


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None


@lru_cache(maxsize=4)
def _load(folder: Path, _: tuple[tuple[Path, bytes], ...]) -> Catalog:
    catalog = read_recipes(folder)
    for name, recipe in catalog.recipes.items():
        file = folder / f"{name}.yaml"
        try:
            measure_module(recipe.measure)
        except UserError as error:
            raise UserError(f"{file}: {error}") from error
        for kind, asked in (("claim", recipe.claims), ("estimate", recipe.estimates)):
            for key, one in asked.items():
                if reason := refusal(catalog, recipe, one):
                    raise UserError(f"{file}: {kind} '{key}': {reason}")
    return catalog
