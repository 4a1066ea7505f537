"""recipes/ -> params.yaml, all that DVC reads; and what the work will cost."""

import os
from collections.abc import Iterator
from pathlib import Path

import yaml
from rich import box
from rich.console import Console
from rich.table import Table

from stemrepro.errors import UserError
from stemrepro.files import atomic_write
from stemrepro.model.cost import flops_per_token, parameter_counts, table_bytes_per_token
from stemrepro.recipe import RECIPES, Arm, Book, Mix, Recipe, load, model_config, parse_mix
from stemrepro.scale import Scale

PARAMS = Path("params.yaml")
HEADER = "# Written by 'stemrepro plan' from recipes/. Edit those and plan again.\n"
PLANNED = ("layers_replaced", "seeds", "benchmark_seeds", "geometry_seeds")
"""What an arm's entry holds beside the arm's own fields and its rate."""
CORE_FLOPS = 4e10  # training FLOPs a second of one core at the laptop scale (docs/LOG.md)


def needed_arms(book: Book, part: str | None = None) -> list[str]:
    """The arms that some recipe asks for (with `part`: reads those scores of), in the order of arms.yaml."""
    wanted = {
        arm for recipe in book.recipes.values() for arm in recipe.scale_arms if part is None or part in recipe.scores
    }
    return [arm for arm in book.arms if arm in wanted]


def seeds_of(book: Book, scale: Scale, arm: str, part: str | None = None) -> list[int]:
    """The seeds of an arm at a scale: the most that a recipe takes; of those that read `part` without their extra seeds."""
    recipes = [
        recipe
        for recipe in book.recipes.values()
        if arm in recipe.scale_arms and (part is None or part in recipe.scores)
    ]
    return list(scale.seeds[: max((recipe.seeds if part else recipe.seeds_of(arm) for recipe in recipes), default=0)])


def point_params(book: Book, scale: Scale, recipe: Recipe, name: str) -> dict:
    """Settings of an arm at each of its points of a recipe, with everything the point changes written out."""
    arm, points = book.arms[name], {}
    for key, point in recipe.points_of(name).items():
        there, own = point.at(scale), scale.best_rates.get(arm.family or name) if point.own_rate else None
        points[key] = {
            "tokens": there.training.tokens,
            "clip": there.training.clip,
            "marks": there.training.marks,
            "vocab": there.model.vocab,
            "width": there.model.width,
            "ffn_width": there.model.ffn_width,
            "learning_rate": point.rate * own.learning_rate if own else there.learning_rate,
            "table_rate_factor": own.table_rate_factor if own else arm.table_rate_factor,
        }
    return {"arm": arm.model_dump(mode="json"), "points": points}


def params(book: Book, scale_name: str) -> dict:
    """What params.yaml holds for a scale."""
    scale = book.scale(scale_name)
    shared = scale.model_dump(mode="json", exclude={"learning_rate", "best_rates", "scoreboard", "seeds"})
    arms = {
        name: {
            **book.arms[name].model_dump(mode="json"),
            "layers_replaced": list(model_config(scale, book.arms[name]).placed),
            "learning_rate": scale.learning_rate,
            "seeds": seeds_of(book, scale, name),
            "benchmark_seeds": seeds_of(book, scale, name, "benchmarks"),
            "geometry_seeds": seeds_of(book, scale, name, "geometry"),
        }
        for name in needed_arms(book)
    }
    points = {
        name: {
            "scores": recipe.point_scores,
            "seeds": list(scale.seeds[: recipe.point_seeds]),
            "arms": {arm: point_params(book, scale, recipe, arm) for arm in recipe.point_arms},
        }
        for name, recipe in book.recipes.items()
        if recipe.points
    }
    vocabularies = {
        point["vocab"]
        for found in points.values()
        for own in found["arms"].values()
        for point in own["points"].values()
    }
    return {
        "scales": [scale_name],
        "mixes": [scale.data],
        "mix": {scale.data: book.mixes[scale.data].model_dump(mode="json")},
        "arms": list(arms),
        "benchmark_arms": needed_arms(book, "benchmarks"),
        "geometry_arms": needed_arms(book, "geometry"),
        "points": list(points),
        "scoreboard": scale.scoreboard,
        "vocabularies": sorted(vocabularies - {scale.model.vocab}),
        "scale": {scale_name: shared},
        "arm": {scale_name: arms},
        "point": {scale_name: points},
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


def scale_and_arm(values: dict, scale_name: str, arm_name: str, part: str = "") -> tuple[Scale, Arm, float]:
    """The scale (with the seeds of the arm, or of its `part` "benchmark" or "geometry"), arm and peak rate that params.yaml
    asks for (an experiment may have changed them)."""
    try:
        raw_scale, raw_arm = values["scale"][scale_name], dict(values["arm"][scale_name][arm_name])
    except KeyError as error:
        raise UserError(
            f"{PARAMS} has no {error} for scale '{scale_name}' and arm '{arm_name}'; plan that scale"
        ) from error
    found = {key: raw_arm.pop(key) for key in (*PLANNED, "learning_rate")}
    seeds, rate = found[f"{part}_seeds" if part in ("benchmark", "geometry") else "seeds"], found["learning_rate"]
    if not seeds:
        raise UserError(f"no recipe reads {part} scores of arm '{arm_name}'; name it in one that does and plan again")
    scale = Scale(**raw_scale, learning_rate=rate, scoreboard=values["scoreboard"], seeds=seeds)
    return scale, Arm(**raw_arm), rate


def points_of(values: dict, scale_name: str, recipe: str) -> tuple[str, dict[str, tuple[Scale, Arm, float]]]:
    """What is scored at a recipe's points ("losses" or "steps"); scale, arm and peak rate at each place, "<arm>/<point>"."""
    try:
        raw_scale, raw = values["scale"][scale_name], values["point"][scale_name][recipe]
    except KeyError as error:
        raise UserError(
            f"{PARAMS} has no {error} for scale '{scale_name}' and points of '{recipe}'; plan that scale"
        ) from error
    found = {}
    for arm_name, own in raw["arms"].items():
        for key, point in own["points"].items():
            scale = {
                **raw_scale,
                "model": raw_scale["model"] | {field: point[field] for field in ("vocab", "width", "ffn_width")},
                "training": raw_scale["training"] | {field: point[field] for field in ("tokens", "clip", "marks")},
                "learning_rate": point["learning_rate"], "scoreboard": values["scoreboard"], "seeds": raw["seeds"],
            }  # fmt: skip
            arm = Arm(**own["arm"] | {"table_rate_factor": point["table_rate_factor"]})
            found[f"{arm_name}/{key}"] = Scale(**scale), arm, point["learning_rate"]
    return raw["scores"], found


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
    """Runs, tokens, FLOPs, minutes and disk of training a scale's arms, at points too."""
    scale, cores = book.scale(scale_name), cores or os.cpu_count() or 1
    work = [(scale, book.arms[name], len(seeds_of(book, scale, name))) for name in needed_arms(book)]
    for recipe in book.recipes.values():
        seeds = len(scale.seeds[: recipe.point_seeds])
        work += [
            (point.at(scale), book.arms[name], seeds)
            for name in recipe.point_arms
            for point in recipe.points_of(name).values()
        ]
    total = {"runs": 0, "tokens": 0, "flops": 0.0, "disk": 0}
    for place, arm, seeds in work:
        config, tokens = model_config(place, arm), place.steps * place.training.batch * place.model.sequence
        counts = parameter_counts(config)
        total["runs"] += seeds
        total["tokens"] += seeds * tokens
        total["flops"] += seeds * tokens * 3 * flops_per_token(config, place.model.sequence)
        total["disk"] += seeds * (4 * counts["total"] + len(place.training.snapshots) * 2 * counts["tables"])
    parallel = min(cores, scale.workers * scale.training.threads)
    return total | {"minutes": total["flops"] / CORE_FLOPS / parallel / 60}


def show_arms(book: Book, scale_name: str, names: list[str], console: Console) -> None:
    """Prints arms as one table: layers, parameters, forward FLOPs a token, bytes of table rows a token reads (4 a number)."""
    scale = book.scale(scale_name)
    columns = ("arm", "layers", "d_ff", "exp.", "total", "active", "tables", "MFLOP", "KiB")
    table = Table(*columns, title=f"{scale_name}: arms", box=box.SIMPLE, padding=(0, 1, 0, 0), pad_edge=False)
    for column in table.columns:
        column.no_wrap = True
    for column in table.columns[2:]:
        column.justify = "right"
    for name in names:
        config = model_config(scale, book.arms[name])
        counts = parameter_counts(config)
        flops = flops_per_token(config, scale.model.sequence) / 1e6
        table.add_row(
            name, ranges(config.placed or config.value_layers), f"{config.ffn_width:,}", str(config.experts or ""),
            *(f"{counts[key] / 1e6:.3g}M" for key in ("total", "active", "tables")), f"{flops:.2f}",
            f"{table_bytes_per_token(config, 4) / 1024:.3g}",
        )  # fmt: skip
    console.print(table)
    console.print(
        "layers: those replaced (value-embeddings: with a table); exp.: experts; active: less tables and unused experts; "
        "MFLOP: forward, a token; KiB: of table rows that a token reads"
    )


def ranges(layers: tuple[int, ...]) -> str:
    """Layers in short: "1-5, 7"; "none" for none."""
    runs: list[list[int]] = []
    for layer in layers:
        if runs and layer == runs[-1][-1] + 1:
            runs[-1].append(layer)
        else:
            runs.append([layer])
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs) or "none"


def show(book: Book, scale_name: str, console: Console) -> None:
    """Prints the arms with their layers and the estimate."""
    used = {arm for recipe in book.recipes.values() for arm in recipe.arms}
    show_arms(book, scale_name, [arm for arm in book.arms if arm in used], console)
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
