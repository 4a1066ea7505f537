"""Names that the command line takes: all of a kind, for completion, and a clear error for one that doesn't exist.

Completion runs whenever the tab key is pressed, so it reads the keys of YAML files and nothing else.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from stemrepro.common.errors import UserError, checked, unknown
from stemrepro.common.paths import NO_RECIPES, RECIPES, RUNS, SCORES
from stemrepro.common.yaml_records import read_yaml
from stemrepro.config.address import MAIN, Address

if TYPE_CHECKING:
    from stemrepro.pipeline.plan import Plan

SWEEPS = RECIPES / "sweeps"


def _read(file: Path) -> dict[str, Any]:
    """Return a file's content; nothing where it can't be read, as completion shows no errors."""
    try:
        return read_yaml(file)
    except UserError:
        return {}


def scales() -> list[str]:
    """Return the names of recipes/scales/."""
    return sorted(path.stem for path in (RECIPES / "scales").glob("*.yaml"))


def recipes() -> list[str]:
    """Return the recipes."""
    return sorted(path.stem for path in RECIPES.glob("*.yaml") if path.stem not in NO_RECIPES)


def keys(file: str) -> Callable[[], list[str]]:
    """Return a completion by the keys of a file of recipes/."""
    return lambda: list(_read(RECIPES / f"{file}.yaml"))


def shapes() -> list[str]:
    """Return published shapes, and scales."""
    return [*keys("shapes")(), *scales()]


def sweeps() -> list[str]:
    """Return the files of recipes/sweeps/."""
    return sorted(path.as_posix() for path in SWEEPS.glob("*.yaml") if path.name != "dvc.yaml")


def addresses(context: typer.Context, incomplete: str) -> list[str]:
    """Return arms; after an @, variants. Bash splits "dense@ha" into three words."""
    before = context.params.get("runs") or []
    if before and before[-1] == "@":
        return keys("variants")()
    arm, at, _ = incomplete.partition("@")
    return [f"{arm}@{variant}" for variant in keys("variants")()] if at else keys("arms")()


def claims(incomplete: str) -> list[str]:
    """Return recipes with a slash; after it their claims."""
    recipe, slash, _ = incomplete.partition("/")
    if not slash:
        return [f"{name}/" for name in recipes()]
    return [f"{recipe}/{claim}" for claim in _read(RECIPES / f"{recipe}.yaml").get("claims", {})]


def one_of(what: str, choices: tuple[str, ...], where: str) -> dict[str, Any]:
    """Return the settings of a typer parameter, called `where`, that takes one of a few words."""

    def parse(value: str) -> str:
        return checked(what, value, choices, where)

    return {"parser": parse, "metavar": f"[{'|'.join(choices)}]", "autocompletion": lambda: list(choices)}


def chosen(plan: "Plan", given: list[str]) -> list[Address]:
    """Return addresses of a plan by their names, or all; UserError says why one isn't planned, and what would be."""
    by_name = {str(address): address for address in plan.runs}
    for name in given:
        if name not in by_name:
            raise _not_planned(plan.name, name, sorted(by_name))
    return [by_name[name] for name in given or by_name]


def _not_planned(scale: str, name: str, planned_names: list[str]) -> UserError:
    from stemrepro.measures.catalog import load

    catalog = load()
    address = catalog.known(Address.parse(name))
    naming = [recipe for recipe, about in catalog.recipes.items() if address.arm in about.arms]
    if not naming:
        remedy = f"or write one ('stemrepro new recipe NAME dense {address.arm}')"
        return UserError(f"no recipe names arm '{address.arm}'; name it under 'arms' in a file of recipes/, {remedy}")
    others = [other for other in planned_names if Address.parse(other).arm == address.arm]
    planned_are = f"wanted of it: {', '.join(others)}" if others else f"{', '.join(naming)} has it at others"
    where = "at the scale itself" if address.variant == MAIN else f"at variant '{address.variant}'"
    unwanted = f"no recipe wants arm '{address.arm}' {where} at scale '{scale}' ({planned_are})"
    return UserError(f"{unwanted}; name it in a recipe of that scale")


def check_tracked(scale: str, given: list[str]) -> None:
    """Raise UserError for an address that has no runs to track."""
    from stemrepro.measures.store import scored

    folders = {config.parent.parent for config in (RUNS / scale).glob("*/*/seed*/config.yaml")}
    runs = {Address(folder.parent.name, folder.name) for folder in folders}
    if runs := runs.union(scored(SCORES / scale, "losses")):
        tracked = [str(address) for address in sorted(runs)]
        for name in given:
            checked("run", name, tracked, f"{RUNS / scale}")


def check_sweep(file: Path) -> None:
    """Raise UserError where a sweep's file doesn't exist."""
    if not file.is_file():
        name = file if file.suffix else SWEEPS / f"{file}.yaml"
        raise unknown("sweep", name.as_posix(), sweeps(), f"{SWEEPS}/")


def check_run(folder: Path) -> None:
    """Raise UserError where a folder holds no run; the sentence has the command that trains it, where there is one."""
    if (folder / "config.yaml").exists():
        return
    runs = sorted(config.parent.as_posix() for config in RUNS.glob("*/*/*/seed*/config.yaml"))
    error = unknown("run", folder.as_posix(), runs, f"{RUNS}/")
    if not folder.match(f"{RUNS}/*/*/*/*") or (scale := folder.parts[-4]) not in scales():
        raise error
    from stemrepro.measures.catalog import load

    address, asking = Address(folder.parts[-3], folder.parts[-2]), load().at(scale).recipes
    recipe = next((name for name, about in asking.items() if address in about.wanted()), None)
    if recipe is None:
        raise UserError(f"{error}; no recipe trains '{address}' at scale '{scale}': name another arm or variant")
    raise UserError(f"{error}; 'make reproduce SCALE={scale} RECIPE={recipe}' trains the runs of '{address}'")
