"""Everything under recipes/, read and checked, each file by itself and all against each other.

The files are the single source of truth. Every error is one sentence with the file, the key and the value.
"""

import itertools
import re
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ConfigDict, Field

from stemrepro.common.errors import UserError, checked, unknown
from stemrepro.common.paths import NO_RECIPES, RECIPES
from stemrepro.common.yaml_records import Record, Strict, checked_name, parse, read_yaml
from stemrepro.config.address import MAIN, Address
from stemrepro.config.arm import Arm, run_settings, shaped
from stemrepro.config.mixes import BlendMix, Mix, is_large, parse_mix
from stemrepro.config.paper import Cells, Paper
from stemrepro.config.recipe import Claim, Estimate, Recipe
from stemrepro.config.retrofit import KINDS, check
from stemrepro.config.scale import NUMBERS, Scale, Shape, Variant, as_ratios, own_numbers
from stemrepro.config.scores import SCORE_KINDS

STAGES = "check fetch corpus items tokenizer blocks vocabularies people mid counts train metrics report sweeps data"
RESERVED = (*STAGES.split(), *SCORE_KINDS)
"""Names of the pipeline's stages and of folders of results; a recipe can't have them."""
KEY = re.compile(r"[a-z0-9][a-z0-9-]*")
"""Names of scales and mixes, which DVC reads as parts of dotted keys."""
MODULE = re.compile(r"[a-z0-9][a-z0-9_.-]*")
"""Names of recipes, which Python files share."""
Asked = TypeVar("Asked", Claim, Estimate)


class Catalog(Strict):
    """All that recipes/ says."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    mixes: dict[str, Mix | BlendMix]
    arms: dict[str, Arm]
    scales: dict[str, Scale]
    variants: dict[str, Variant]
    recipes: dict[str, Recipe] = Field(description="in the paper's order")
    shapes: dict[str, Shape] = Field(description="published models, for the cost model")
    paper: Paper

    def scale(self, name: str) -> Scale:
        """Return a scale by name; UserError names the choices."""
        return self.scales[checked("scale", name, self.scales, "recipes/scales/")]

    def text(self, scale: Scale) -> Mix:
        """Return the scale's own text."""
        mix = self.mixes[scale.data]
        assert not isinstance(mix, BlendMix)  # see read_recipes
        return mix

    def at(self, scale: str) -> "Catalog":
        """Return the same with the recipes that are run at a scale; UserError names the scales."""
        found = self.scale(scale)
        kept = {name: recipe for name, recipe in self.recipes.items() if recipe.runs_at(scale, found)}
        return self.model_copy(update={"recipes": kept})

    def recipe(self, name: str) -> Recipe:
        """Return a recipe by name; UserError names the choices."""
        return self.recipes[checked("recipe", name, self.recipes, "recipes/")]

    def variant(self, name: str) -> Variant:
        """Return a variant by name; "main" is the scale itself."""
        return Variant() if name == MAIN else self.variants[name]

    def known(self, address: Address) -> Address:
        """Return an address whose arm and variant there are; UserError for another."""
        checked("arm", address.arm, self.arms, "recipes/arms.yaml")
        if address.variant != MAIN:
            checked("variant", address.variant, self.variants, "recipes/variants.yaml")
        return address

    def before(self, address: Address) -> Address | None:
        """Return the address whose finished runs the runs of another address resume from, or None.

        Raises:
            UserError: it is unknown, is of another model or text, or is itself a second stage after the pretraining.
        """
        extends = self.variant(address.variant).extends
        if extends is None:
            return None
        place = self.known(Address(extends.after, extends.arm or address.arm))
        parent = self.variant(place.variant)
        if parent.changed:
            rule = "tokens, learning rate and clip alone may differ there"
            raise UserError(f"it resumes from '{place.variant}', which has '{min(parent.changed)}'; {rule}")
        if stage := parent.extends:
            first = self.variants.get(stage.after)
            if extends.arm or stage.arm or (first and first.extends):
                rule = "two stages of the same arm may follow a run, and a retrofit stands alone"
                raise UserError(f"it resumes from '{place.variant}', which resumes from '{stage.after}'; {rule}")
        return place


def _records(model: type[Record], file: Path) -> dict[str, Record]:
    return {checked_name(name, file): parse(model, value, file, name) for name, value in read_yaml(file).items()}


def _variants(file: Path, scales: dict[str, Scale], mixes: dict[str, Mix | BlendMix]) -> dict[str, Variant]:
    """Read the variants, whose numbers hold at the scale that each names under `at`."""
    variants = {}
    for name, value in read_yaml(file).items():
        if checked_name(name, file) == MAIN:
            raise UserError(f"{file}: '{MAIN}' is the scale itself; give the variant another name")
        fields = value if isinstance(value, dict) else {}
        if (at := str(fields.pop("at", ""))) and at not in scales:
            raise UserError(f"{file}: {name}.at: {unknown('scale', at, scales, 'recipes/scales/')}")
        if at:
            own = own_numbers(scales[at], getattr(mixes.get(scales[at].data), "people", None))
            value = as_ratios(fields, own)
        elif numbers := [key for key in NUMBERS if key in {*fields, *(fields.get("extends") or ())}]:
            raise UserError(f"{file}: {name}.{numbers[0]}: say at which scale it is so, as in 'at: laptop'")
        variants[name] = parse(Variant, value, file, name)
    return variants


def merged(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Merge changes into a base as RFC 7396 does: mappings key by key; null takes a key away, all else replaces."""
    result = dict(base)
    for key, value in changes.items():
        below = base.get(key)
        result[key] = merged(below if isinstance(below, dict) else {}, value) if isinstance(value, dict) else value
    return {key: value for key, value in result.items() if value is not None or key not in changes}


def read_scales(folder: Path = RECIPES / "scales") -> dict[str, Scale]:
    """Read every scale, merged into the scale that its `inherits` names."""
    files = {checked_name(path.stem, path, KEY): path for path in sorted(folder.glob("*.yaml"))}
    values = {name: read_yaml(path) for name, path in files.items()}
    scales: dict[str, Scale] = {}
    # Bases first: a mistake in one is its file's.
    for name in sorted(files, key=lambda name: "inherits" in values[name]):
        path, base = files[name], values[name].get("inherits")
        if base is None:
            scales[name] = parse(Scale, values[name], path)
            continue
        if str(base) not in files:
            raise UserError(f"{path}: inherits: {unknown('scale', str(base), files, 'recipes/scales/')}")
        if "inherits" in values[base]:
            raise UserError(f"{path}: inherits: '{base}' inherits from another itself; name a scale that doesn't")
        try:
            scales[name] = parse(Scale, merged(values[base], values[name]), path)
        except UserError as error:
            raise UserError(f"{error}; it inherits {files[base]}") from error
    return {name: scales[name] for name in files}


def _check_recipe(recipe: Recipe, file: Path, catalog: Catalog) -> Recipe:
    """Return the recipe with the cells of claims and estimates as numbers; UserError for an unknown name in it."""
    for what, names, there, source in (
        ("arm", recipe.arms, catalog.arms, "recipes/arms.yaml"),
        ("variant", recipe.variants, catalog.variants, "recipes/variants.yaml"),
        ("scale", recipe.scales, catalog.scales, "recipes/scales/"),
    ):
        if strange := [name for name in names if name not in there]:
            raise UserError(f"{file}: {unknown(what, strange[0], there, source)}")
    scales = {name: scale for name, scale in catalog.scales.items() if recipe.runs_at(name, scale)}
    seeds = {address: max(counts.values()) for address, counts in recipe.wanted().items()}
    for address, (where, scale) in itertools.product(seeds, scales.items()):
        try:
            variant = catalog.variant(address.variant)
            model, _ = run_settings(address, catalog.arms[address.arm], variant, scale)
            place = catalog.before(address)
            if place and (asked := seeds.get(place, 0)) < seeds[address]:
                lack = f"of which the recipe asks for {asked}; ask for as many there"
                raise UserError(f"its {seeds[address]} seeds resume from those of {place}, {lack}")
            if place and variant.extends and variant.extends.arm:
                dense, _ = run_settings(place, catalog.arms[place.arm], catalog.variant(place.variant), scale)
                check(dense, model, "stem" if variant.extends.tables in KINDS else "stem-interpolated")
        except (UserError, ValueError) as error:
            raise UserError(f"{file}: {address} at scale '{where}': {error}") from error
    claims = {key: _with_number(one, f"{file}: claim '{key}'", catalog) for key, one in recipe.claims.items()}
    estimates = {key: _with_number(one, f"{file}: estimate '{key}'", catalog) for key, one in recipe.estimates.items()}
    return recipe.model_copy(update={"claims": claims, "estimates": estimates})


def _with_number(asked: Asked, where: str, catalog: Catalog) -> Asked:
    if not isinstance(asked.paper, Cells):
        return asked
    try:
        return asked.model_copy(update={"paper": catalog.paper.number(asked.paper)})
    except UserError as error:
        raise UserError(f"{where}: {error}") from error


def read_recipes(folder: Path = RECIPES) -> Catalog:
    """Read and check every arm, variant, scale and recipe."""
    arms = _records(Arm, folder / "arms.yaml")
    for name, arm in arms.items():
        if arm.family and arm.family not in arms:
            error = unknown("family", arm.family, arms, "a family is an arm; it")
            raise UserError(f"{folder}/arms.yaml: {name}: {error}")
    file = folder / "mixes.yaml"
    mixes = {checked_name(name, file, KEY): parse_mix(value, file, name) for name, value in read_yaml(file).items()}
    scales = read_scales(folder / "scales")
    variants = _variants(folder / "variants.yaml", scales, mixes)
    for name, scale in sorted(scales.items(), key=lambda item: item[1].inherits is not None):
        file = folder / f"scales/{name}.yaml"
        if scale.data not in mixes:
            raise UserError(f"{file}: data: {unknown('mix', scale.data, mixes, 'recipes/mixes.yaml')}")
        if mixes[scale.data].kind == "blend":
            why = "is a blend with a scale's own text; it goes under 'mid' only"
            raise UserError(f"{file}: data: '{scale.data}' {why}")
        if scale.mid is not None and (scale.mid not in mixes or mixes[scale.mid].kind != "blend"):
            blends = [key for key, mix in mixes.items() if mix.kind == "blend"]
            raise UserError(f"{file}: mid: {unknown('blend', scale.mid, blends, 'recipes/mixes.yaml')}")
        blend = mixes.get(scale.mid or "")
        parts = blend.parts.values() if isinstance(blend, BlendMix) else ()
        if not is_large(mixes[scale.data]) and any(is_large(part.mix) for part in parts):
            rule = "a blend is in memory, or in shards, as a whole"
            lack = f"'{scale.mid}' has parts with a `sample`, and '{scale.data}' has none"
            raise UserError(f"{file}: mid: {lack}; {rule}")
        for arm_name, arm in arms.items():
            try:
                shaped(scale.model, arm)
            except UserError as error:
                raise UserError(f"{file} with arm '{arm_name}': {error}") from error
    files = {checked_name(p.stem, p, MODULE): p for p in sorted(folder.glob("*.yaml")) if p.stem not in NO_RECIPES}
    if taken := [name for name in files if name in RESERVED]:
        raise UserError(f"{files[taken[0]]}: a stage of the pipeline is called '{taken[0]}'; rename the recipe")
    read = {name: parse(Recipe, read_yaml(path), path) for name, path in files.items()}
    shapes, paper = _records(Shape, folder / "shapes.yaml"), Paper(folder / "paper.yaml")
    catalog = Catalog(mixes=mixes, arms=arms, scales=scales, variants=variants, recipes={}, shapes=shapes, paper=paper)
    in_order = sorted(read.items(), key=lambda item: item[1].place)
    recipes = {name: _check_recipe(recipe, files[name], catalog) for name, recipe in in_order}
    return catalog.model_copy(update={"recipes": recipes})
