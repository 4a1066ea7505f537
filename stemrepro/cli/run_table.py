"""`stemrepro show`: the settings of a run, and which file or rule each has come from."""

from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from stemrepro.common.errors import UserError
from stemrepro.common.paths import RECIPES
from stemrepro.common.yaml_records import read_yaml
from stemrepro.config.address import Address
from stemrepro.config.arm import Settings, merged_settings
from stemrepro.config.catalog import Catalog
from stemrepro.config.scale import Scale, Variant

DEFAULTS, TUNED, WIDTH_RULE = "defaults", "tuned", "width rule"


def home_scale(catalog: Catalog, address: Address) -> str:
    """Return the scale at which a recipe asks for an address first: laptop, if a recipe of all scales does."""
    asking = [recipe.scales for recipe in catalog.recipes.values() if address in recipe.wanted()]
    return "laptop" if not asking or () in asking else asking[0][0]


def _files_of(scale_name: str, folder: Path) -> dict[str, str]:
    """Return the file that has each key of a scale's model, training and of the scale itself."""
    own = read_yaml(folder / f"scales/{scale_name}.yaml")
    base = own.get("inherits")
    found: dict[str, str] = {}
    for name, values in ((base, read_yaml(folder / f"scales/{base}.yaml") if base else {}), (scale_name, own)):
        for block in (values, values.get("model", {}), values.get("training", {})):
            # null takes away what the other file says
            found |= {key: DEFAULTS if value is None else f"scales/{name}.yaml" for key, value in block.items()}
    return found


def origins(
    address: Address, settings: Settings, variant: Variant, scale: Scale, files: dict[str, str]
) -> dict[str, str]:
    """Return where each setting of a run has its value from; `files` are those of the scale's own settings."""
    of_variant, of_arm = f"variant {address.variant}", f"arm {address.arm}"
    changed = settings.changed.model.model_dump() | settings.changed.training.model_dump()
    at_scale = scale.model.model_dump() | scale.training.model_dump()
    found = {}
    for key, value in (settings.model.settings | settings.training.model_dump()).items():
        if key in settings.tuned:
            found[key] = TUNED
        elif key not in changed or (key in settings.model.settings and value != changed[key]):
            found[key] = of_arm  # no setting of scales; or `match`, `ffn_factor` or a track chooses it
        else:
            found[key] = of_variant if value != at_scale[key] else files.get(key, DEFAULTS)
    if variant.table_rate != 1:
        found["table_rate_factor"] = of_variant
    if not settings.tuned:
        found["learning_rate"] = of_variant if variant.learning_rate != 1 else files["learning_rate"]
    before, after = settings.rates["tuned"], settings.rates["width rule"]
    return found | {key: WIDTH_RULE for key in after if after[key] != before[key]}


def _words(value: object) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(_words, value))}]"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def show(catalog: Catalog, address: Address, scale_name: str, console: Console, folder: Path = RECIPES) -> None:
    """Print the settings of an address at a scale by where they come from, and its learning rates step by step."""
    scale, variant = catalog.scale(scale_name), catalog.variant(address.variant)
    try:
        settings = merged_settings(address, catalog.arms[address.arm], variant, scale)
    except (UserError, ValueError) as error:
        raise UserError(f"{address} at scale '{scale_name}': {error}") from error
    values = settings.model.settings | settings.training.model_dump()
    found = origins(address, settings, variant, scale, _files_of(scale_name, folder))
    table = Table("from", "settings", title=f"{address} at scale {scale_name}", box=box.SIMPLE, pad_edge=False)
    table.columns[0].no_wrap = True
    for origin in sorted(set(found.values()), key=lambda one: (one == DEFAULTS, not one.startswith("scales/"), one)):
        table.add_row(origin, ", ".join(f"{key} {_words(values[key])}" for key in found if found[key] == origin))
    console.print(table)
    rates = Table("learning rate of", *settings.rates, box=box.SIMPLE, pad_edge=False)
    factors = {"matrices": "", "input embeddings": "embedding_rate_factor", "tables": "table_rate_factor"}
    for what, factor in factors.items():
        steps = (step["learning_rate"] * step.get(factor, 1.0) for step in settings.rates.values())
        rates.add_row(what, *(f"{rate:.6g}" for rate in steps))
    console.print(rates)
    if place := catalog.before(address):
        console.print(f"It resumes from the finished runs of {place}.")
    if variant.vocab != 1:
        console.print("Its tokens are in the scale's vocabulary; it reads as much text in its own.")
    text = scale.mid if variant.extends and variant.extends.text == "mid" else scale.data
    recipes = [name for name, recipe in catalog.at(scale_name).recipes.items() if address in recipe.wanted()]
    console.print(f"Its text is {text}. Recipes that ask for it: {', '.join(recipes) or 'none at this scale'}.")
