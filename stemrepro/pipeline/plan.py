"""What is to be done at a scale: the runs and scores that its recipes ask for, and the text of both."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from stemrepro.common.errors import UserError
from stemrepro.config.address import MAIN, Address
from stemrepro.config.arm import run_settings
from stemrepro.config.catalog import Catalog
from stemrepro.config.mixes import BlendMix, Mix, is_large
from stemrepro.config.recipe import Recipe
from stemrepro.config.scale import Scale
from stemrepro.config.scores import LOSSES, SCORE_KINDS, PlannedReasoning, PlannedTasks
from stemrepro.config.training import RunTraining
from stemrepro.data.archives import SAMPLE
from stemrepro.data.items import has_task
from stemrepro.measures.catalog import load
from stemrepro.model.config import ModelConfig
from stemrepro.model.cost import flops_per_token

PASSES = 4
"""Training refuses more passes over its text: MOST_EPOCHS of stemrepro.training.module, which imports torch."""
TOKEN_BYTES = 4.5
"""Bytes of English prose in a token of a large vocabulary, as recipes/mixes.yaml reckons."""
LARGE, FEWEST_BYTES = 16_384, 2.5
"""A vocabulary from which on a token of text or code has so many bytes at least; of a smaller one it has one byte."""


@dataclass(frozen=True)
class Before:
    """The run that another one resumes from."""

    model: ModelConfig
    training: RunTraining
    tables: str  # what becomes of its tables, as in recipes/variants.yaml
    address: Address  # its arm and variant
    text: Literal["own", "mid"]  # what it reads, "own" or "mid" (the blend)
    before: "Before | None"  # the run that it resumes from itself


@dataclass(frozen=True)
class Planned:
    """An arm at a variant: all that decides its runs except seed, text and code, and what is scored of them."""

    model: ModelConfig
    training: RunTraining
    before: Before | None  # the run that it resumes from
    people: int  # number of people in the text; 0: the scale's own text
    text: Literal["own", "mid"]  # "own", or "mid" (the blend)
    losses: tuple[str, ...]  # kinds of LOSSES that are written
    seeds: dict[str, tuple[int, ...]]  # those that are scored, by kind of scores; all of them are trained

    @property
    def trained(self) -> tuple[int, ...]:
        """The seeds that are trained."""
        return max(self.seeds.values(), key=len)

    @property
    def read(self) -> int:
        """The tokens of the scale's own text that one reads, with the runs that it resumes from; 0 of a blend."""
        stages: list[Planned | Before] = [self]
        while before := stages[-1].before:
            stages.append(before)
        return sum(stage.training.tokens for stage in stages if stage.text == "own") if self.text == "own" else 0

    @property
    def flops(self) -> float:
        """The FLOPs of training all of them, forward and backward."""
        return len(self.trained) * 3.0 * self.training.tokens * flops_per_token(self.model, self.training.sequence)


@dataclass(frozen=True)
class Plan:
    """What some recipes need of a scale."""

    name: str  # of the scale
    scale: Scale
    mix: Mix  # the scale's own text
    runs: dict[Address, Planned]  # by address, in the order of variants and arms
    vocabularies: tuple[int, ...]  # other sizes that variants need
    people: tuple[int, ...]  # other numbers of invented people that variants need
    blend: tuple[BlendMix, int] | None  # text of a later stage, and the most tokens that a run reads of it
    benchmarks: PlannedTasks  # how runs are scored on benchmarks
    reasoning: PlannedReasoning | None  # None where no recipe reads such scores

    def setting(self, name: str) -> object:
        """Return what the scale says of a kind of scores, or None."""
        return getattr(self, name) if name in ("benchmarks", "reasoning") else getattr(self.scale, name)


def most(recipes: Iterable[Recipe]) -> dict[Address, dict[str, int]]:
    """Return how many seeds recipes need of each address, by kind of scores: the most that any recipe needs."""
    counts: dict[Address, dict[str, int]] = {}
    for recipe in recipes:
        for address, scores in recipe.wanted().items():
            kinds = counts.setdefault(address, {})
            kinds |= {kind: max(seeds, kinds.get(kind, 0)) for kind, seeds in scores.items()}
    return counts


def wanted(catalog: Catalog, recipes: dict[str, Recipe]) -> dict[Address, dict[str, int]]:
    """Return how many seeds of each address are scored for some recipes, by kind of scores, in order.

    The counts are those of all the catalog's recipes. An address has one folder of scores, and what one recipe makes
    must not be less than what another has put into it.
    """
    chosen, every = most(recipes.values()), most(catalog.recipes.values())
    variants, arms = [MAIN, *catalog.variants], list(catalog.arms)
    found = {}
    for address in sorted(chosen, key=lambda one: (variants.index(one.variant), arms.index(one.arm))):
        kinds = {*chosen[address]} if chosen[address].keys().isdisjoint(LOSSES) else {*chosen[address], *LOSSES}
        found[address] = {kind: seeds for kind, seeds in every[address].items() if kind in kinds}
    return found


def people_at(catalog: Catalog, scale: Scale, variant: str) -> int:
    """Return how many invented people a variant's text is about; 0 where it is the scale's own."""
    factor, mix = catalog.variant(variant).people, catalog.text(scale)
    if factor == 1:
        return 0
    if mix.kind != "invented":
        raise UserError(f"variant '{variant}' takes another number of people, and mix '{scale.data}' has none")
    if (count := round(factor * mix.people)) > mix.names**2:
        most_people = f"the names of mix '{scale.data}' make {mix.names**2}"
        raise UserError(f"variant '{variant}' asks for {count} people; {most_people}")
    return count


def text_at(catalog: Catalog, scale_name: str, variant: str) -> Literal["own", "mid"]:
    """Return which text a variant's runs read: the scale's own, or its blend; UserError where it names none."""
    extends, mid = catalog.variant(variant).extends, catalog.scale(scale_name).mid
    if extends is None or extends.text == "own":
        return "own"
    if mid is None:
        raise UserError(f"variant '{variant}' reads a blend; name one under 'mid' in recipes/scales/{scale_name}.yaml")
    return extends.text


def blend_of(catalog: Catalog, scale_name: str) -> tuple[BlendMix, int] | None:
    """Return the blend that recipes of a scale read with the most tokens that one needs, or None."""
    scale = catalog.scale(scale_name)
    variants = {variant for recipe in catalog.at(scale_name).recipes.values() for variant in recipe.variants}
    readers = [variant for variant in sorted(variants) if text_at(catalog, scale_name, variant) == "mid"]
    tokens = [catalog.variants[variant].at(scale).training.tokens for variant in readers]
    blend = catalog.mixes[scale.mid] if scale.mid and tokens else None
    return (blend, max(tokens)) if isinstance(blend, BlendMix) else None


def before_of(catalog: Catalog, scale_name: str, address: Address) -> Before | None:
    """Return what the runs of an address resume from; None at variants that don't extend others."""
    place, extends = catalog.before(address), catalog.variant(address.variant).extends
    if place is None or extends is None:
        return None
    scale, variant = catalog.scale(scale_name), catalog.variant(place.variant)
    model, training = run_settings(place, catalog.arms[place.arm], variant, scale)
    text = text_at(catalog, scale_name, place.variant)
    return Before(model, training, extends.tables, place, text, before_of(catalog, scale_name, place))


def planned_runs(catalog: Catalog, scale_name: str, address: Address, scores: dict[str, int]) -> Planned:
    """Return the runs of an address at a scale, with everything that its variant changes written out."""
    scale = catalog.scale(scale_name)
    model, training = run_settings(address, catalog.arms[address.arm], catalog.variant(address.variant), scale)
    if scale.parallel:
        scale.parallel.check(f"'{address}' at scale '{scale_name}'", model, training)
    seeds = {kind: scores.get(kind, 0) for kind in SCORE_KINDS}
    seeds["losses"] = max(scores.get(kind, 0) for kind in LOSSES)
    return Planned(
        model=model,
        training=training,
        before=before_of(catalog, scale_name, address),
        people=people_at(catalog, scale, address.variant),
        text=text_at(catalog, scale_name, address.variant),
        losses=tuple(kind for kind in LOSSES if kind in scores),
        seeds={kind: scale.seeds[:count] for kind, count in seeds.items() if count},
    )


def check_length(catalog: Catalog, scale: Scale) -> None:
    """Raise UserError unless documents of made text fill training sequences: models are asked at their positions."""
    mix, sequence = catalog.text(scale), scale.model.sequence
    if mix.kind == "recall" and sequence != mix.length:
        lengths = f"a document has {mix.length} tokens, a sequence of the scale {sequence}"
        raise UserError(f"mix '{scale.data}': {lengths}; they must be equal")
    if mix.kind == "invented" and sequence % mix.length:
        rule = f"the scale's sequence of {sequence} must be a multiple of it"
        raise UserError(f"mix '{scale.data}': a document has {mix.length} tokens; {rule}")


def most_tokens(mix: Mix, people: int = 0) -> int | None:
    """Return the most training tokens that a text can have, so far as recipes/ tell; None where its sources alone do.

    A token has a byte or more.

    Args:
        people: the number of invented people of a variant's text; 0 for the mix's own.
    """
    match mix.kind:
        case "hub":
            return mix.megabytes * 10**6
        case "sample":
            return SAMPLE.with_name(f"{mix.file}.jsonl").stat().st_size
        case "recall":
            return mix.documents * mix.length
        case "invented":
            return (people or mix.people) * mix.exposures * mix.length
    return None


def check_text(scale_name: str, scale: Scale, mix: Mix, runs: dict[Address, Planned]) -> None:
    """Raise UserError where a run would pass over its text more than PASSES times even if its tokens were short."""
    for address, run in runs.items():
        most = most_tokens(mix, run.people)
        if most and mix.kind == "hub" and run.model.vocab >= LARGE:
            most = int(most / FEWEST_BYTES)
        if most is None or run.read <= PASSES * most:
            continue
        has, remedy, step = f"{most:,} tokens", "take a larger mix", run.training.batch * run.training.sequence
        if mix.kind == "hub":
            has = f"{mix.megabytes:,} megabytes"
            remedy = f"give the mix `megabytes` of {math.ceil(run.read * TOKEN_BYTES / 1e6)} for one pass"
            remedy += "" if is_large(mix) else " (of more than some thousands also a `sample`, docs/howto.md)"
            most = int(mix.megabytes * 1e6 / TOKEN_BYTES)
        fewer = f", or the scale `tokens` of {few} or fewer" if (few := PASSES * most // step * step) else ""
        raise UserError(
            f"scale '{scale_name}': a run of '{address}' reads {run.read:,} tokens, and mix '{scale.data}' of "
            f"recipes/mixes.yaml has {has} at most; more than {PASSES} passes are refused: {remedy}{fewer}"
        )


def check_asked(catalog: Catalog, scale_name: str) -> None:
    """Raise UserError where no recipe is run at a scale."""
    if not catalog.at(scale_name).recipes:
        raise UserError(
            f"no recipe is for scale '{scale_name}', so there is nothing to train: 'stemrepro new recipe NAME dense "
            f"stem-third' writes one; then add 'scales: [{scale_name}]' to recipes/NAME.yaml"
        )


def recipe_at(catalog: Catalog, scale_name: str, name: str) -> Recipe:
    """Return a recipe by name; UserError where there is none, or where it isn't run at a scale."""
    recipe = catalog.recipe(name)
    if recipe.runs_at(scale_name, catalog.scale(scale_name)):
        return recipe
    remedy = f"add '{scale_name}' to `scales:` in recipes/{name}.yaml"
    if recipe.scales:
        raise UserError(f"recipe '{name}' is for the scales {', '.join(recipe.scales)}; {remedy}")
    alone = f"scale '{scale_name}' is only for recipes that name it (named_only: true)"
    raise UserError(f"recipe '{name}' names no scales, and {alone}; {remedy}, next to all others that it is for")


def reasoning_of(scale: Scale, recipes: dict[str, Recipe]) -> PlannedReasoning | None:
    """Return the tasks of reasoning that recipes name, none without the hub; None where no recipe reads such scores."""
    readers = [recipe for recipe in recipes.values() if "reasoning" in recipe.scores]
    if not readers:
        return None
    tasks: dict[str, str] = {name: task.score for recipe in readers for name, task in recipe.tasks.items()}
    return PlannedReasoning(scale.benchmarks.items, scale.benchmarks.batch, tasks if scale.benchmarks.hub else {})


def make_plan(scale_name: str, recipes: Iterable[str] = (), catalog: Catalog | None = None) -> Plan:
    """Return what some recipes, or all, need of a scale; UserError where one is unknown, or doesn't fit the other."""
    catalog = catalog or load()
    scale, here = catalog.scale(scale_name), catalog.at(scale_name)
    chosen = {name: recipe_at(catalog, scale_name, name) for name in recipes} or here.recipes
    check_length(catalog, scale)
    asked = wanted(here, chosen)
    runs = {address: planned_runs(catalog, scale_name, address, scores) for address, scores in asked.items()}
    mix = catalog.text(scale)
    check_text(scale_name, scale, mix, runs)
    named = dict.fromkeys(task for recipe in chosen.values() if "benchmarks" in recipe.scores for task in recipe.tasks)
    asked_of, hub = scale.benchmarks.tasks, scale.benchmarks.hub
    if strange := [task for task in asked_of or () if named and not has_task(mix, hub, task)]:
        raise UserError(
            f"scale '{scale_name}': benchmarks.tasks names '{strange[0]}', of which mix '{scale.data}' has no items"
        )
    tasks = tuple(task for task in named if task in (asked_of or named) and has_task(mix, hub, task))
    return Plan(
        name=scale_name,
        scale=scale,
        mix=mix,
        runs=runs,
        vocabularies=tuple(sorted({run.model.vocab for run in runs.values()} - {scale.model.vocab})),
        people=tuple(sorted({run.people for run in runs.values()} - {0})),
        blend=blend_of(catalog, scale_name),
        benchmarks=PlannedTasks(**scale.benchmarks.model_dump(exclude={"tasks"}), tasks=tasks),
        reasoning=reasoning_of(scale, chosen),
    )
