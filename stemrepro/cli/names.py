"""Names that the command line takes: those there are, for completion, and what was meant where one isn't there.

Completion runs whenever the tab key is pressed, so it reads the keys of YAML files and nothing else.
"""

from collections.abc import Callable, Iterable
from pathlib import Path

import typer

from stemrepro.common.errors import UserError, unknown
from stemrepro.common.paths import RECIPES, RUNS, SCORES
from stemrepro.common.yaml_records import read_yaml
from stemrepro.config.address import MAIN, Address
from stemrepro.pipeline.params import Params, Planned, read_params

SWEEPS = RECIPES / "sweeps"
OTHERS = ("arms", "mixes", "paper", "variants", "shapes")
"""Files of recipes/ that are no recipes."""
AFTER = {"step": "stemrepro data", "part": "--part", "confidence": "--confidence", "placement": "--stem"}


def _read(file: Path) -> dict:
    """Return what a file holds; nothing where it can't be read, as completion has no place for complaints."""
    try:
        return read_yaml(file)
    except UserError:
        return {}


def _stems(folder: Path) -> list[str]:
    return sorted(path.stem for path in folder.glob("*.yaml"))


def scales() -> list[str]:
    """Return the files of recipes/scales/."""
    return _stems(RECIPES / "scales")


def recipes() -> list[str]:
    """Return the recipes."""
    return [name for name in _stems(RECIPES) if name not in OTHERS]


def arms() -> list[str]:
    """Return the arms of recipes/arms.yaml."""
    return list(_read(RECIPES / "arms.yaml"))


def mixes() -> list[str]:
    """Return the mixes of recipes/mixes.yaml."""
    return list(_read(RECIPES / "mixes.yaml"))


def shapes() -> list[str]:
    """Return published shapes, and scales."""
    return [*_read(RECIPES / "shapes.yaml"), *scales()]


def sweeps() -> list[str]:
    """Return the files of recipes/sweeps/."""
    return sorted(path.as_posix() for path in SWEEPS.glob("*.yaml"))


def addresses(context: typer.Context, incomplete: str) -> list[str]:
    """Return arms; behind an @, variants. Bash takes "dense@ha" for three words."""
    before = context.params.get("runs") or []
    if before and before[-1] == "@":
        return list(_read(RECIPES / "variants.yaml"))
    arm, at, _ = incomplete.partition("@")
    return [f"{arm}@{variant}" for variant in _read(RECIPES / "variants.yaml")] if at else arms()


def claims(incomplete: str) -> list[str]:
    """Recipes with a slash; behind it their claims."""
    recipe, slash, _ = incomplete.partition("/")
    if not slash:
        return [f"{name}/" for name in recipes()]
    return [f"{recipe}/{claim}" for claim in _read(RECIPES / f"{recipe}.yaml").get("claims", {})]


def tables() -> list[str]:
    """Return the blocks of recipes/paper.yaml."""
    return list(_read(RECIPES / "paper.yaml"))


def one_of(what: str, known: tuple[str, ...]) -> dict:
    """Return settings of a typer parameter that takes one of a few words; another is answered with the nearest."""

    def parse(value: str) -> str:
        if value not in known:
            raise unknown(what, value, known, AFTER[what])
        return value

    return {"parser": parse, "metavar": f"[{'|'.join(known)}]", "autocompletion": lambda: list(known)}


def checked(what: str, given: Iterable[str], known: Callable[[], list[str]], where: str) -> None:
    """Raise UserError for the first of some names that isn't there."""
    for name in given:
        if name not in (there := known()):
            raise unknown(what, name, there, where)


def check_scale(name: str) -> None:
    """Raise UserError where there is no such scale."""
    checked("scale", [name], scales, "recipes/scales/")


def planned(scale: str) -> Params:
    """Return what is planned.

    Raises:
        UserError: there is no such scale, or another one is planned.
    """
    params = read_params()
    if scale not in params.run:
        check_scale(scale)
    params.planned(scale)
    return params


def chosen(params: Params, scale: str, given: list[str]) -> dict[Address, Planned]:
    """Return the planned runs of addresses by their names, or all.

    Raises:
        UserError: a name isn't planned; says why, and what to do about it.
    """
    there = {str(address) for address in params.planned(scale)}
    for name in given:
        if name not in there:
            raise _not_planned(scale, name, sorted(there))
    return params.chosen(scale, given)


def _not_planned(scale: str, name: str, there: list[str]) -> UserError:
    from stemrepro.measures.catalog import load

    catalog, address = load(), Address.parse(name)
    if address.arm not in catalog.arms:
        return unknown("arm", address.arm, catalog.arms, "recipes/arms.yaml")
    if address.variant not in (MAIN, *catalog.variants):
        return unknown("variant", address.variant, catalog.variants, "recipes/variants.yaml")
    wanting = [own for own, recipe in catalog.at(scale).recipes.items() if address in recipe.wanted()]
    if wanting:
        which = " or ".join(wanting)
        return UserError(f"'{name}' isn't planned, though {which} has it; run 'stemrepro plan --scale {scale}'")
    naming = [own for own, recipe in catalog.recipes.items() if address.arm in recipe.arms]
    if not naming:
        return UserError(
            f"no recipe names arm '{address.arm}', so it isn't planned; name it under 'arms' in a file of recipes/, or write one "
            f"('stemrepro new recipe NAME dense {address.arm}'), then run 'stemrepro plan --scale {scale}'"
        )
    others = [own for own in there if Address.parse(own).arm == address.arm]
    planned_are = f"planned of it: {', '.join(others)}" if others else f"{', '.join(naming)} has it at others"
    where = "at the scale itself" if address.variant == MAIN else f"at variant '{address.variant}'"
    return UserError(
        f"no recipe wants arm '{address.arm}' {where} at scale '{scale}' ({planned_are}); name it in a recipe that is run "
        f"there, then run 'stemrepro plan --scale {scale}'"
    )


def check_tracked(scale: str, given: list[str]) -> None:
    """Raise UserError for an address that has no runs to track."""
    folders = {config.parent.parent for config in (RUNS / scale).glob("*/*/seed*/config.yaml")}
    folders |= {summary.parent for summary in (SCORES / scale / "losses").glob("*/*/summary.json")}
    if folders := sorted(folders, key=lambda folder: folder.parts[-2:]):
        there = [str(Address(folder.parent.name, folder.name)) for folder in folders]
        checked("run", given, lambda: there, f"{RUNS / scale}")


def check_sweep(file: Path) -> None:
    """Raise UserError where there is no such sweep."""
    if not file.is_file():
        name = file if file.suffix else SWEEPS / f"{file}.yaml"
        raise unknown("sweep", name.as_posix(), sweeps(), f"{SWEEPS}/")


def check_run(folder: Path) -> None:
    """Raise UserError where a folder holds no run."""
    if not (folder / "config.yaml").exists():
        there = sorted(config.parent.as_posix() for config in RUNS.glob("*/*/*/seed*/config.yaml"))
        raise unknown("run", folder.as_posix(), there, f"{RUNS}/")
