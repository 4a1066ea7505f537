"""recipes/ -> params.yaml, all that DVC reads; and what the work will cost."""

import os
from collections.abc import Iterator
from pathlib import Path

import yaml
from rich.console import Console
from rich.table import Table

from stemrepro.errors import UserError
from stemrepro.files import atomic_write
from stemrepro.model.cost import flops_per_token, parameter_counts, table_bytes_per_token
from stemrepro.recipe import RECIPES, Arm, Book, Mix, Scale, load, model_config, parse_mix

PARAMS = Path("params.yaml")
HEADER = "# Written by 'stemrepro plan' from recipes/. Edit those and plan again.\n"
CORE_FLOPS = 4e10  # training FLOPs a second of one core at the laptop scale (docs/LOG.md)


def needed_arms(book: Book) -> list[str]:
    """The arms that some recipe asks for, in the order of arms.yaml."""
    wanted = {arm for recipe in book.recipes.values() for arm in recipe.arms}
    return [arm for arm in book.arms if arm in wanted]


def params(book: Book, scale_name: str) -> dict:
    """What params.yaml holds for a scale."""
    scale = book.scale(scale_name)
    shared = scale.model_dump(mode="json", exclude={"learning_rate", "scoreboard"})
    arms = {
        name: {
            **book.arms[name].model_dump(mode="json"),
            "layers_replaced": list(model_config(scale, book.arms[name]).placed),
            "learning_rate": scale.learning_rate,
        }
        for name in needed_arms(book)
    }
    return {
        "scales": [scale_name],
        "mixes": [scale.data],
        "mix": {scale.data: book.mixes[scale.data].model_dump(mode="json")},
        "arms": list(arms),
        "scoreboard": scale.scoreboard,
        "scale": {scale_name: shared},
        "arm": {scale_name: arms},
    }


def text(book: Book, scale_name: str) -> str:
    """The bytes of params.yaml."""
    return HEADER + yaml.safe_dump(params(book, scale_name), sort_keys=False, default_flow_style=None, width=120)


def read_params(path: Path = PARAMS) -> dict:
    """params.yaml as DVC sees it."""
    if not path.exists():
        raise UserError(f"{path} is missing; write it with 'stemrepro plan --scale laptop'")
    try:
        value = yaml.safe_load(path.read_text())
    except yaml.YAMLError as error:
        raise UserError(
            f"{path} is not valid YAML ({' '.join(str(error).split())}); write it with 'stemrepro plan'"
        ) from error
    if not isinstance(value, dict) or "scales" not in value or len(value["scales"]) != 1:
        raise UserError(f"{path} names no scale; write it anew with 'stemrepro plan --scale laptop'")
    return value


def scale_and_arm(values: dict, scale_name: str, arm_name: str) -> tuple[Scale, Arm, float]:
    """The scale, arm and peak rate that params.yaml asks for (an experiment may have changed them)."""
    try:
        raw_scale, raw_arm = values["scale"][scale_name], dict(values["arm"][scale_name][arm_name])
    except KeyError as error:
        raise UserError(
            f"{PARAMS} has no {error} for scale '{scale_name}' and arm '{arm_name}'; plan that scale"
        ) from error
    rate = raw_arm.pop("learning_rate")
    raw_arm.pop("layers_replaced")
    scale = Scale(**raw_scale, learning_rate=rate, scoreboard=values["scoreboard"])
    return scale, Arm(**raw_arm), rate


def mix(values: dict, name: str) -> Mix:
    """A data mix of params.yaml."""
    if name not in values.get("mix", {}):
        raise UserError(f"unknown data mix '{name}': {PARAMS} has {', '.join(values.get('mix', {}))}")
    return parse_mix(values["mix"][name], PARAMS, f"mix.{name}")


def check(path: Path = PARAMS, folder: Path = RECIPES) -> None:
    """Raises UserError unless params.yaml is what the plan would write.

    Inside `dvc exp run` the difference is the experiment: it is printed, not refused.
    """
    found = read_params(path)
    name = found["scales"][0]
    wanted = params(load(folder), name)
    changes = list(_differences(wanted, found))
    if not changes:
        return
    if os.environ.get("DVC_EXP_NAME"):
        print(f"experiment: {path} differs from {folder}/ in {'; '.join(changes)}")
        return
    raise UserError(
        f"{path} no longer follows from {folder}/ ({'; '.join(changes[:4])}); run 'stemrepro plan --scale {name}'"
    )


def _differences(wanted: object, found: object, key: str = "") -> Iterator[str]:
    if isinstance(wanted, dict) and isinstance(found, dict):
        for name in [*wanted, *(name for name in found if name not in wanted)]:
            yield from _differences(wanted.get(name), found.get(name), f"{key}.{name}" if key else str(name))
    elif wanted != found:
        yield f"{key}: {found}, planned {wanted}"


def estimate(book: Book, scale_name: str, cores: int | None = None) -> dict:
    """Runs, tokens, FLOPs, minutes and disk of training a scale's arms."""
    scale, cores = book.scale(scale_name), cores or os.cpu_count() or 1
    seeds, tokens = len(scale.seeds), scale.steps * scale.training.batch * scale.model.sequence
    flops, disk = 0.0, 0
    for name in needed_arms(book):
        config = model_config(scale, book.arms[name])
        cost, counts = flops_per_token(config, scale.model.sequence), parameter_counts(config)
        flops += seeds * tokens * 3 * cost
        disk += seeds * (4 * counts["total"] + len(scale.training.snapshots) * 2 * counts["tables"])
    parallel = min(cores, scale.workers * scale.training.threads)
    return {
        "runs": seeds * len(needed_arms(book)),
        "tokens": seeds * len(needed_arms(book)) * tokens,
        "flops": flops,
        "minutes": flops / CORE_FLOPS / parallel / 60,
        "disk": disk,
    }


def show_arms(book: Book, scale_name: str, names: list[str], console: Console) -> None:
    """Prints arms as one table: layers, parameters, forward FLOPs a token, bytes of table rows a token reads (4 a number)."""
    scale = book.scale(scale_name)
    columns = ("arm", "layers", "d_ff", "experts", "total", "active", "tables", "MFLOP", "row bytes")
    table = Table(*columns, title=f"{scale_name}: arms", expand=False)
    for column in table.columns[2:]:
        column.justify = "right"
    for name in names:
        config = model_config(scale, book.arms[name])
        counts = parameter_counts(config)
        flops = flops_per_token(config, scale.model.sequence) / 1e6
        layers = ", ".join(map(str, config.placed or config.value_layers)) or "none"
        table.add_row(
            name, layers, f"{config.ffn_width:,}", str(config.experts or ""), *(f"{counts[key]:,}" for key in ("total", "active", "tables")),
            f"{flops:.2f}", f"{table_bytes_per_token(config, 4):,}",
        )  # fmt: skip
    console.print(table)
    console.print(
        "layers: those replaced (value-embeddings: with a table); active: less tables and unused experts; MFLOP: forward, a token"
    )


def show(book: Book, scale_name: str, console: Console) -> None:
    """Prints the arms with their layers and the estimate."""
    show_arms(book, scale_name, needed_arms(book), console)
    cost = estimate(book, scale_name)
    console.print(
        f"{cost['runs']} runs, {cost['tokens']:,} tokens, {cost['flops']:.2g} FLOPs: about {cost['minutes']:.0f} minutes "
        f"of training on this machine's CPU, {cost['disk'] / 1e6:,.0f} MB in runs/ and as much again in DVC's cache"
    )


def write(scale_name: str, folder: Path = RECIPES, path: Path = PARAMS) -> Book:
    """Validates recipes/ and writes params.yaml (only when it changes, so that DVC sees no new file)."""
    book = load(folder)
    content = text(book, scale_name)
    if not path.exists() or path.read_text() != content:
        atomic_write(path, content)
    return book
