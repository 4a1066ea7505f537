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
from stemrepro.pipeline.params import Params, Planned, PlannedBlend, PlannedInitFrom, ScaleParams, read_params
from stemrepro.pipeline.stages import TARGETS, pipeline_texts, targets


def chosen_recipes(catalog: Catalog, names: tuple[str, ...]) -> dict[str, Recipe]:
    """Recipes by name, or all; UserError names those there are."""
    return {name: catalog.recipe(name) for name in names} if names else catalog.recipes


def in_order(catalog: Catalog, addresses: Iterable[Address]) -> list[Address]:
    """Addresses in the order of variants and arms."""
    variants, arms = [MAIN, *catalog.variants], list(catalog.arms)
    return sorted(addresses, key=lambda address: (variants.index(address.variant), arms.index(address.arm)))


def most(recipes: Iterable[Recipe]) -> dict[Address, dict[str, int]]:
    """Seeds that recipes take of each address, by kind of scores: the most that any takes."""
    found: dict[Address, dict[str, int]] = {}
    for recipe in recipes:
        for address, scores in recipe.wanted().items():
            own = found.setdefault(address, {})
            own |= {part: max(seeds, own.get(part, 0)) for part, seeds in scores.items()}
    return found


def wanted(catalog: Catalog, recipes: dict[str, Recipe]) -> dict[Address, dict[str, int]]:
    """Seeds that are scored of each address that some recipes take, by the kinds of scores that they read of it; in order.

    As many seeds and as much of the losses as any of the catalog's recipes take: an address has one folder of scores, and what is made for
    one recipe must not be less than what another has put there.
    """
    asked, every = most(recipes.values()), most(catalog.recipes.values())
    return {
        address: {
            part: seeds
            for part, seeds in every[address].items()
            if part in asked[address] or (part in LOSSES and not asked[address].keys().isdisjoint(LOSSES))
        }
        for address in in_order(catalog, asked)
    }


def people_at(catalog: Catalog, scale: Scale, variant: str) -> int:
    """Return how many invented people a variant's text is about; 0 where it is the scale's own.

    Raises:
        UserError: the scale's mix has none, or fewer names.
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
    """Whose text a variant's runs read: the scale's own, or its blend.

    Raises:
        UserError: the scale names no blend.
    """
    extends, mid = catalog.variant(variant).extends, catalog.scale(scale_name).mid
    if extends is None or extends.text == "own":
        return "own"
    if mid is None:
        raise UserError(
            f"variant '{variant}' goes on with a blend; name one under 'mid' in recipes/scales/{scale_name}.yaml"
        )
    return extends.text


def planned_blend(catalog: Catalog, scale_name: str) -> PlannedBlend | None:
    """Return the blend that recipes of a scale go on with, or None; all of its recipes, as the stage that makes it is there for any of them."""
    scale, variants = (
        catalog.scale(scale_name),
        {variant for own in catalog.at(scale_name).recipes.values() for variant in own.variants},
    )
    asking = [variant for variant in sorted(variants) if text_at(catalog, scale_name, variant) == "mid"]
    if not asking:
        return None
    tokens = max(catalog.variants[variant].at(scale).training.tokens for variant in asking)
    return PlannedBlend(name=scale.mid, mix=catalog.mixes[scale.mid], tokens=tokens)


def init_from_of(catalog: Catalog, scale: Scale, address: Address) -> PlannedInitFrom | None:
    """Return what the runs of an address go on from, at variants that extend."""
    if (place := catalog.before(address)) is None:
        return None
    extends = catalog.variant(address.variant).extends
    model, training = run_settings(place, catalog.arms[place.arm], catalog.variant(place.variant), scale)
    return PlannedInitFrom(
        model=model, training=training, tables=extends.tables, variant=extends.after, arm=extends.arm
    )


def planned_run(catalog: Catalog, scale_name: str, address: Address, scores: dict[str, int]) -> Planned:
    """Return the runs of an address at a scale, with everything that its variant changes written out."""
    scale = catalog.scale(scale_name)
    model, training = run_settings(address, catalog.arms[address.arm], catalog.variant(address.variant), scale)
    losses = max((part for part in scores if part in LOSSES), key=LOSSES.index, default="none")
    seeds = {part: scores.get(part, 0) for part in PARTS}
    seeds["losses"] = max(scores.get(part, 0) for part in LOSSES)
    return Planned(
        model=model,
        training=training,
        init_from=init_from_of(catalog, scale, address),
        people=people_at(catalog, scale, address.variant),
        text=text_at(catalog, scale_name, address.variant),
        losses=losses,
        seeds={part: scale.seeds[:count] for part, count in seeds.items() if count},
    )


def check_length(catalog: Catalog, scale: Scale) -> None:
    """Raise UserError where documents of made text don't fill a training sequence: models are asked at the places that they know."""
    mix, sequence = catalog.mixes[scale.data], scale.model.sequence
    if mix.kind == "recall" and sequence != mix.length:
        raise UserError(
            f"mix '{scale.data}': a document has {mix.length} tokens, a sequence of the scale {sequence}; they must be equal"
        )
    if mix.kind == "invented" and sequence % mix.length:
        raise UserError(
            f"mix '{scale.data}': a document has {mix.length} tokens; the scale's sequence of {sequence} must be a multiple of it"
        )


def planned_reasoning(scale: Scale, recipes: dict[str, Recipe]) -> PlannedReasoning | None:
    """Return the tasks of reasoning that recipes name; none of them where the scale doesn't read the hub, nothing where no recipe asks."""
    asking = [recipe for recipe in recipes.values() if "reasoning" in recipe.scores]
    if not asking:
        return None
    tasks = {name: task.score for recipe in asking for name, task in recipe.tasks.items()}
    own = scale.benchmarks
    return PlannedReasoning(items=own.items, batch=own.batch, tasks=tasks if own.hub else {})


def make_params(catalog: Catalog, scale_name: str, recipes: tuple[str, ...] = ()) -> Params:
    """Return what params.yaml holds for a scale and some recipes, or all.

    Raises:
        UserError: a scale or recipe that isn't there.
    """
    scale, here = catalog.scale(scale_name), catalog.at(scale_name)
    chosen = chosen_recipes(here, recipes)
    check_length(catalog, scale)
    runs: dict[str, dict[str, Planned]] = {}
    for address, scores in wanted(here, chosen).items():
        runs.setdefault(address.variant, {})[address.arm] = planned_run(catalog, scale_name, address, scores)
    vocabularies = {own.model.vocab for arms in runs.values() for own in arms.values()} - {scale.model.vocab}
    named = dict.fromkeys(task for recipe in chosen.values() if "benchmarks" in recipe.scores for task in recipe.tasks)
    tasks = tuple(task for task in named if has_task(catalog.mixes[scale.data], scale.benchmarks.hub, task))
    return Params(
        scales=(scale_name,),
        mixes=(scale.data,),
        recipes=recipes,
        scoreboard=scale.scoreboard,
        mix={scale.data: catalog.mixes[scale.data]},
        scale={
            scale_name: ScaleParams(
                data=scale.data,
                vocab=scale.model.vocab,
                vocabularies=tuple(sorted(vocabularies)),
                people=tuple(sorted({own.people for arms in runs.values() for own in arms.values()} - {0})),
                mid=planned_blend(catalog, scale_name),
                workers=scale.workers,
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
    """Validate recipes/ and writes plan/ and dvc.yaml below `home`, each file only when it changes. dvc.yaml follows from recipes/ alone,
    so that what git holds doesn't change with the plan.
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
    """Return what is planned; raises UserError unless it and the pipelines are what the plan would write.

    Inside `dvc exp run` a difference of plan/params.yaml is the experiment: it is printed, not refused.
    """
    there, catalog = read_params(home / PARAMS), load(folder)
    planned = make_params(catalog, there.scales[0], there.recipes)
    changes = list(_differences(planned.model_dump(mode="json"), there.model_dump(mode="json")))
    again = f"run 'stemrepro plan --scale {there.scales[0]}'"
    if changes and os.environ.get("DVC_EXP_NAME"):
        print(f"experiment: {PARAMS} differs from {folder}/ in {'; '.join(changes)}")
    elif changes:
        raise UserError(f"{PARAMS} no longer follows from {folder}/ ({'; '.join(changes[:4])}); {again}")
    for path, text in pipeline_texts(catalog, there.scales[0]).items():
        if not (home / path).exists() or (home / path).read_text(encoding="utf-8") != text:
            raise UserError(f"{path} no longer follows from {folder}/; {again}")
    return there


def _differences(wanted: object, there: object, key: str = "") -> Iterator[str]:
    if isinstance(wanted, dict) and isinstance(there, dict):
        for name in [*wanted, *(name for name in there if name not in wanted)]:
            yield from _differences(wanted.get(name), there.get(name), f"{key}.{name}" if key else str(name))
    elif wanted != there:
        yield f"{key}: {there}, planned {wanted}"
