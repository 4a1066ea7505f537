"""recipes/ -> plan/ and dvc.yaml: what is to be done."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from stemrepro.common.errors import UserError
from stemrepro.common.files import atomic_write
from stemrepro.common.paths import PARAMS, RECIPES
from stemrepro.config.address import MAIN, Address
from stemrepro.config.arm import run_settings
from stemrepro.config.catalog import Catalog
from stemrepro.config.recipe import Recipe
from stemrepro.config.scale import Scale
from stemrepro.config.scores import LOSSES, PARTS, OfSomeScales, PlannedReasoning, PlannedTasks
from stemrepro.data.items import has_task
from stemrepro.measures.catalog import load
from stemrepro.pipeline.planned import Params, Planned, PlannedBlend, PlannedInitFrom, ScaleParams, read_params
from stemrepro.pipeline.stages import TARGETS, pipeline_texts, targets


def chosen_recipes(catalog: Catalog, names: tuple[str, ...]) -> dict[str, Recipe]:
    """Return recipes by name, or all; UserError lists the choices."""
    return {name: catalog.recipe(name) for name in names} if names else catalog.recipes


def in_order(catalog: Catalog, addresses: Iterable[Address]) -> list[Address]:
    """Return addresses in the order of variants and arms."""
    variants, arms = [MAIN, *catalog.variants], list(catalog.arms)
    return sorted(addresses, key=lambda address: (variants.index(address.variant), arms.index(address.arm)))


def most(recipes: Iterable[Recipe]) -> dict[Address, dict[str, int]]:
    """Return how many seeds recipes need of each address, by kind of scores: the most that any recipe needs."""
    counts: dict[Address, dict[str, int]] = {}
    for recipe in recipes:
        for address, scores in recipe.wanted().items():
            parts = counts.setdefault(address, {})
            parts |= {part: max(seeds, parts.get(part, 0)) for part, seeds in scores.items()}
    return counts


def wanted(catalog: Catalog, recipes: dict[str, Recipe]) -> dict[Address, dict[str, int]]:
    """Return how many seeds of each address are scored for some recipes, by kind of scores, in order.

    The counts are those of all the catalog's recipes. An address has one folder of scores, and what one recipe makes
    must not be less than what another has put into it.
    """
    chosen, every = most(recipes.values()), most(catalog.recipes.values())
    return {
        address: {
            part: seeds
            for part, seeds in every[address].items()
            if part in chosen[address] or (part in LOSSES and not chosen[address].keys().isdisjoint(LOSSES))
        }
        for address in in_order(catalog, chosen)
    }


def people_at(catalog: Catalog, scale: Scale, variant: str) -> int:
    """Return how many invented people a variant's text is about; 0 where it is the scale's own.

    Raises:
        UserError: the scale's mix has no people, or too few names.
    """
    factor, mix = catalog.variant(variant).people, catalog.mixes[scale.data]
    if factor == 1:
        return 0
    if mix.kind != "invented":
        raise UserError(f"variant '{variant}' takes another number of people, and mix '{scale.data}' has none")
    if (count := round(factor * mix.people)) > mix.names**2:
        raise UserError(
            f"variant '{variant}' asks for {count} people; the names of mix '{scale.data}' make {mix.names**2}"
        )
    return count


def text_at(catalog: Catalog, scale_name: str, variant: str) -> str:
    """Return which text a variant's runs read: the scale's own, or its blend.

    Raises:
        UserError: the scale names no blend.
    """
    extends, mid = catalog.variant(variant).extends, catalog.scale(scale_name).mid
    if extends is None or extends.text == "own":
        return "own"
    if mid is None:
        raise UserError(f"variant '{variant}' reads a blend; name one under 'mid' in recipes/scales/{scale_name}.yaml")
    return extends.text


def planned_blend(catalog: Catalog, scale_name: str) -> PlannedBlend | None:
    """Return the blend that recipes of a scale read, or None.

    All recipes of the scale count, as one stage makes the blend for all of them.
    """
    scale = catalog.scale(scale_name)
    variants = {variant for recipe in catalog.at(scale_name).recipes.values() for variant in recipe.variants}
    readers = [variant for variant in sorted(variants) if text_at(catalog, scale_name, variant) == "mid"]
    if not readers:
        return None
    tokens = max(catalog.variants[variant].at(scale).training.tokens for variant in readers)
    return PlannedBlend(name=scale.mid, mix=catalog.mixes[scale.mid], tokens=tokens)


def init_from_of(catalog: Catalog, scale_name: str, address: Address) -> PlannedInitFrom | None:
    """Return what the runs of an address resume from; None at variants that don't extend others."""
    if (place := catalog.before(address)) is None:
        return None
    extends = catalog.variant(address.variant).extends
    arm, variant = catalog.arms[place.arm], catalog.variant(place.variant)
    model, training = run_settings(place, arm, variant, catalog.scale(scale_name))
    return PlannedInitFrom(
        model=model, training=training, tables=extends.tables, variant=extends.after, arm=extends.arm,
        text=text_at(catalog, scale_name, place.variant), init_from=init_from_of(catalog, scale_name, place),
    )  # fmt: skip


def planned_run(catalog: Catalog, scale_name: str, address: Address, scores: dict[str, int]) -> Planned:
    """Return the runs of an address at a scale, with everything that its variant changes written out."""
    scale = catalog.scale(scale_name)
    model, training = run_settings(address, catalog.arms[address.arm], catalog.variant(address.variant), scale)
    if scale.parallel:
        scale.parallel.check(f"'{address}' at scale '{scale_name}'", model, training)
    seeds = {part: scores.get(part, 0) for part in PARTS}
    seeds["losses"] = max(scores.get(part, 0) for part in LOSSES)
    return Planned(
        model=model,
        training=training,
        init_from=init_from_of(catalog, scale_name, address),
        people=people_at(catalog, scale, address.variant),
        text=text_at(catalog, scale_name, address.variant),
        losses=tuple(kind for kind in LOSSES if kind in scores),
        seeds={part: scale.seeds[:count] for part, count in seeds.items() if count},
    )


def check_length(catalog: Catalog, scale: Scale) -> None:
    """Check that documents of made text fill training sequences, as models are asked only at positions of training.

    Raises:
        UserError: they don't.
    """
    mix, sequence = catalog.mixes[scale.data], scale.model.sequence
    if mix.kind == "recall" and sequence != mix.length:
        raise UserError(
            f"mix '{scale.data}': a document has {mix.length} tokens, a sequence of the scale {sequence}; "
            "they must be equal"
        )
    if mix.kind == "invented" and sequence % mix.length:
        raise UserError(
            f"mix '{scale.data}': a document has {mix.length} tokens; "
            f"the scale's sequence of {sequence} must be a multiple of it"
        )


def planned_reasoning(scale: Scale, recipes: dict[str, Recipe]) -> PlannedReasoning | None:
    """Return the tasks of reasoning that recipes name, or None where no recipe reads such scores.

    There are no tasks where the scale doesn't read the hub.
    """
    readers = [recipe for recipe in recipes.values() if "reasoning" in recipe.scores]
    if not readers:
        return None
    tasks = {name: task.score for recipe in readers for name, task in recipe.tasks.items()}
    benchmarks = scale.benchmarks
    return PlannedReasoning(items=benchmarks.items, batch=benchmarks.batch, tasks=tasks if benchmarks.hub else {})


def make_params(catalog: Catalog, scale_name: str, recipes: tuple[str, ...] = ()) -> Params:
    """Return what params.yaml holds for a scale and some recipes, or all.

    Raises:
        UserError: a scale or recipe is unknown.
    """
    scale, here = catalog.scale(scale_name), catalog.at(scale_name)
    chosen = chosen_recipes(here, recipes)
    check_length(catalog, scale)
    runs: dict[str, dict[str, Planned]] = {}
    for address, scores in wanted(here, chosen).items():
        runs.setdefault(address.variant, {})[address.arm] = planned_run(catalog, scale_name, address, scores)
    every = [run for arms in runs.values() for run in arms.values()]
    vocabularies = {run.model.vocab for run in every} - {scale.model.vocab}
    named = dict.fromkeys(task for recipe in chosen.values() if "benchmarks" in recipe.scores for task in recipe.tasks)
    tasks = tuple(task for task in named if has_task(catalog.mixes[scale.data], scale.benchmarks.hub, task))
    return Params(
        scales=(scale_name,),
        mixes=(scale.data,),
        recipe_names=recipes,
        scoreboard=scale.scoreboard,
        mix={scale.data: catalog.mixes[scale.data]},
        scale={
            scale_name: ScaleParams(
                data=scale.data,
                vocab=scale.model.vocab,
                vocabularies=tuple(sorted(vocabularies)),
                people=tuple(sorted({run.people for run in every} - {0})),
                mid=planned_blend(catalog, scale_name),
                workers=scale.workers,
                parallel=scale.parallel,
                evaluation=scale.evaluation,
                benchmarks=PlannedTasks(**scale.benchmarks.model_dump(), tasks=tasks),
                reasoning=planned_reasoning(scale, chosen),
                counting=scale.counting,
                geometry=scale.geometry,
                **{name: getattr(scale, name) for name in OfSomeScales.model_fields},
            )
        },
        run={scale_name: runs},
    )


def write(
    scale_name: str, recipes: tuple[str, ...] = (), folder: Path = RECIPES, home: Path = Path()
) -> tuple[Catalog, Params]:
    """Validate recipes/ and write plan/ and dvc.yaml below `home`, each file only when it changes.

    dvc.yaml follows from recipes/ alone, so that what git holds doesn't change with the plan.
    """
    catalog = load(folder)
    params = make_params(catalog, scale_name, recipes)
    params.write(home / PARAMS)
    texts = pipeline_texts(catalog, scale_name) | {TARGETS: " ".join(targets(catalog, scale_name, recipes)) + "\n"}
    for path, text in texts.items():
        if not (home / path).exists() or (home / path).read_text(encoding="utf-8") != text:
            atomic_write(home / path, text)
    return catalog, params


def check(folder: Path = RECIPES, home: Path = Path()) -> Params:
    """Return the plan on disk, after a check that planning again would write the same.

    Inside `dvc exp run` a difference of plan/params.yaml is the experiment: it is printed, not refused.

    Raises:
        UserError: the plan or a pipeline no longer follows from the recipes.
    """
    written, catalog = read_params(home / PARAMS), load(folder)
    planned = make_params(catalog, written.scales[0], written.recipe_names)
    changes = list(_differences(planned.model_dump(mode="json"), written.model_dump(mode="json")))
    again = f"run 'stemrepro plan --scale {written.scales[0]}'"
    if changes and os.environ.get("DVC_EXP_NAME"):
        print(f"experiment: {PARAMS} differs from {folder}/ in {'; '.join(changes)}")
    elif changes:
        raise UserError(f"{PARAMS} no longer follows from {folder}/ ({'; '.join(changes[:4])}); {again}")
    for path, text in pipeline_texts(catalog, written.scales[0]).items():
        if not (home / path).exists() or (home / path).read_text(encoding="utf-8") != text:
            raise UserError(f"{path} no longer follows from {folder}/ and the package; {again}")
    return written


def _differences(planned: object, written: object, key: str = "") -> Iterator[str]:
    if isinstance(planned, dict) and isinstance(written, dict):
        for name in [*planned, *(name for name in written if name not in planned)]:
            yield from _differences(planned.get(name), written.get(name), f"{key}.{name}" if key else str(name))
    elif planned != written:
        yield f"{key}: {written}, planned {planned}"
