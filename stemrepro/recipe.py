"""What is to be reproduced, as typed data: arms, scales, recipes and their claims. Bad keys and values are named.

The files under recipes/ are the single source of truth. `load` reads them all; every error is one sentence with the
file, the key and the value.
"""

import itertools
from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from stemrepro.errors import UserError
from stemrepro.model.config import ModelConfig, placed_layers
from stemrepro.model.cost import matched
from stemrepro.paper import Cells, Paper, PaperNumber
from stemrepro.records import Strict, parse, read_yaml
from stemrepro.scale import Point, Positive, Scale, Shape

RECIPES = Path("recipes")
NO_RECIPES = ("arms.yaml", "mixes.yaml", "paper.yaml", "shapes.yaml")
FFNName = Literal[
    "dense", "stem", "token-only", "gate-replaced", "down-replaced", "stem-dagger", "blend", "stem-shuffled", "stem-lowrank",
    "ngram-table", "ple", "input-add", "hash-moe", "topk-moe",
]  # fmt: skip
Placement = Literal["none", "third", "third-shifted", "early", "late", "half", "full", "single"]


class Arm(Strict):
    """One model variant, as a few fields over the dense base. The defaults are the code-faithful ones (official code)."""

    ffn: FFNName
    placement: Placement
    values: Placement = Field("none", description="layers whose attention adds a table row to its values")
    rank: float = Field(0.0, ge=0, description="width of a narrow table / width of the model")
    experts: int = Field(0, ge=0, description="experts of a mixture; 0 with `match`: as many as match")
    chosen: Positive = Field(1, description="experts that a token uses")
    match: Literal["none", "total", "flops"] = Field(
        "none", description="what is made equal to STEM's, by ffn_width (dense) or by the number of experts"
    )
    match_placement: Placement = Field("full", description="placement of the STEM that is matched")
    table_init: Literal["xavier", "small", "normal"] = "xavier"
    table_rate_factor: float = Field(1.0, gt=0, description="table learning rate / backbone learning rate")
    table_decay_factor: float = Field(1.0, ge=0, description="table weight decay / backbone weight decay")
    table_update: Literal["dense", "touched"] = Field(
        "dense", description="touched: only rows of a batch's tokens move, an optimiser of another kind"
    )
    table_trained: bool = True
    table_shared: bool = Field(False, description="one table for all placed layers")
    family: str = Field("", exclude=True, description="whose best rates are its own; its own name when left out")

    @model_validator(mode="after")
    def _fits(self) -> "Arm":
        if self.match != "none" and self.ffn not in ("dense", "hash-moe", "topk-moe"):
            raise ValueError(f"match '{self.match}' works by ffn_width or experts; '{self.ffn}' has neither to choose")
        if self.match == "flops" and self.ffn != "dense":
            raise ValueError("match 'flops' works by the ffn_width of a dense arm")
        return self


class ArchiveMix(Strict):
    """Text of the pinned archives."""

    kind: Literal["archives"]


class SampleMix(Strict):
    """Text vendored with the package."""

    kind: Literal["sample"]


class HubMix(Strict):
    """A dataset of the Hugging Face hub, or a local folder that `datasets.load_dataset` reads."""

    kind: Literal["hub"]
    dataset: str = Field(min_length=1, description="owner/name, or a folder")
    config: str | None = Field(None, description="the dataset's configuration")
    split: str = "train"
    revision: str = Field("main", description="branch, tag or commit; the commit read is recorded")
    streaming: bool = Field(True, description="read only as much as is asked for, without downloading the rest")
    text: str = Field("text", description="column that holds a document's text")
    megabytes: Positive = Field(description="text to take, in the dataset's order")
    licence: str
    attribution: str


Mix = ArchiveMix | SampleMix | HubMix
MIX_KINDS: dict[str, type[Strict]] = {"archives": ArchiveMix, "sample": SampleMix, "hub": HubMix}


class Claim(Strict):
    """One sentence of the paper that can be false, and the contrast that would show it.

    The effect is the metric of the first arm less that of the second, so that the claim makes it positive. An exact claim has
    no arms: its metric is computed, without chance, and must equal the paper's number.
    """

    sentence: str
    kind: Literal["greater", "equivalent", "not-better", "ordering", "exact"]
    metric: str
    arms: tuple[str, ...] = Field(
        (), description="greater, equivalent, not-better: [higher, lower]; ordering: from high to low; exact: none"
    )
    primary: bool = False
    smallest_effect: float = Field(
        gt=0, description="m: the smallest effect that counts, in the metric's unit; exact: half the last printed digit"
    )
    paper: PaperNumber | Cells | None = Field(None, description="once loaded a number, never cells")
    transportable: bool = Field(False, description="may the paper's size be expected at our scales?")
    unit: str = "nats/token"
    precondition: Literal[
        "none",
        "token-only-below-three-quarters",
        "dense-beats-unigram",
        "dense-beats-answer-only",
        "dense-uses-context",
        "spikes-expected",
    ] = "none"

    @model_validator(mode="after")
    def _fits(self) -> "Claim":
        count, wanted = len(self.arms), {"ordering": "three or more", "exact": "none"}.get(self.kind, "two")
        if {"ordering": count < 3, "exact": count > 0}.get(self.kind, count != 2):
            raise ValueError(f"a claim of kind '{self.kind}' can't have {count} arms: {wanted}")
        if self.kind == "exact" and (self.paper is None or self.primary):
            raise ValueError("a claim of kind 'exact' needs the paper's number and can't be primary")
        return self


class Task(Strict):
    """A benchmark of a recipe."""

    label: str
    score: Literal["acc", "acc_norm"] = Field(description="the accuracy it is judged by")


class Recipe(Strict):
    """One table or figure of the paper: arms, what is measured, claims."""

    title: str
    paper_item: str
    place: int = Field(description="on the scoreboard, in the paper's order")
    arms: tuple[str, ...] = Field(description="arms that are trained for it; none when it is about the paper alone")
    base: str = Field("", description="the point at which its arms are compared, in place of the scale itself")
    seeds: Positive = Field(5, description="seeds of each arm, the first of the scale's")
    more_seeds: dict[str, Positive] = Field(default_factory=dict, description="arms with another number of seeds")
    scores: tuple[Literal["losses", "benchmarks", "geometry"], ...] = Field(
        ("losses",), description="what it reads of its arms"
    )
    points: dict[str, Point] = Field(
        default_factory=dict, description="where else its point_arms are trained and scored"
    )
    point_arms: tuple[str, ...] = Field((), description="arms that are trained at the points too")
    point_seeds: Positive = 3
    point_scores: Literal["losses", "steps"] = Field(
        "losses", description="steps: only losses and gradient norms of training"
    )
    tasks: dict[str, Task] = Field(default_factory=dict, description="benchmarks, by lm-eval's name")
    groups: dict[str, tuple[str, ...]] = Field(default_factory=dict, description="tasks averaged with equal weight")
    claims: dict[str, Claim]

    @model_validator(mode="after")
    def _fits(self) -> "Recipe":
        for key, names in (("more_seeds", self.more_seeds), ("point_arms", self.point_arms)):
            if unknown := [name for name in names if name not in self.arms]:
                raise ValueError(f"{key} names '{unknown[0]}', which is not among the recipe's arms")
        if bool(self.points) != bool(self.point_arms):
            raise ValueError("points and point_arms need each other")
        for key, point in self.points.items():
            if unknown := [name for name in point.arms if name not in self.point_arms]:
                raise ValueError(f"point '{key}' names '{unknown[0]}', which is not among point_arms")
        if self.base and (
            self.base not in self.points or self.points[self.base].arms or set(self.arms) - set(self.point_arms)
        ):
            raise ValueError(f"base '{self.base}' is no point at which all of the recipe's arms are trained")
        return self

    @property
    def scale_arms(self) -> tuple[str, ...]:
        """The arms that it needs at the scale itself."""
        return () if self.base else self.arms

    def seeds_of(self, arm: str) -> int:
        """How many seeds of an arm the recipe takes."""
        return self.more_seeds.get(arm, self.seeds)

    def points_of(self, arm: str) -> dict[str, Point]:
        """The points at which the recipe trains an arm."""
        if arm not in self.point_arms:
            return {}
        return {key: point for key, point in self.points.items() if not point.arms or arm in point.arms}


class Book(Strict):
    """Everything under recipes/."""

    mixes: dict[str, Mix]
    arms: dict[str, Arm]
    scales: dict[str, Scale]
    recipes: dict[str, Recipe] = Field(description="in the paper's order")
    shapes: dict[str, Shape] = Field(description="published models, for the cost model")

    def scale(self, name: str) -> Scale:
        """A scale by name; UserError names those there are."""
        if name not in self.scales:
            raise UserError(f"scale '{name}' is unknown: recipes/scales/ has {', '.join(sorted(self.scales))}")
        return self.scales[name]


def parse_mix(value: object, file: Path, name: str) -> Mix:
    """One entry of mixes.yaml or params.yaml; `kind` tells which."""
    kind = value.get("kind") if isinstance(value, dict) else None
    if kind not in MIX_KINDS:
        raise UserError(f"{file}: {name}.kind: choose one of {', '.join(MIX_KINDS)} (got {kind!r})")
    return parse(MIX_KINDS[kind], value, file, name)


def shaped(shape: Shape, arm: Arm) -> ModelConfig:
    """The model of an arm in a shape.

    Raises:
        UserError: the shape fits no model, the placement replaces no layer, or nothing can be matched.
    """
    base = shape.model_dump(exclude={"sequence"})
    fields = {
        "ffn": arm.ffn,
        "placed": placed_layers(arm.placement, shape.layers),
        "value_layers": placed_layers(arm.values, shape.layers),
        "rank": round(arm.rank * shape.width),
        "experts": arm.experts or (arm.chosen if "moe" in arm.ffn else 0),
        "chosen": arm.chosen,
        "table_init": arm.table_init,
        "table_shared": arm.table_shared,
    }
    config = ModelConfig(**base, **fields)
    if arm.match == "none":
        return config
    stem = ModelConfig(**base, ffn="stem", placed=placed_layers(arm.match_placement, shape.layers))
    return matched(config, stem, arm.match, shape.sequence)


def model_config(scale: Scale, arm: Arm) -> ModelConfig:
    """The model of an arm at a scale; raises as `shaped` does."""
    return shaped(scale.model, arm)


def _claims(recipe: Recipe, paper: Paper, file: Path) -> Recipe:
    """The recipe with its claims' cells turned into numbers, and with its names checked."""
    for group, members in recipe.groups.items():
        if unknown := [task for task in members if task not in recipe.tasks]:
            raise UserError(f"{file}: group '{group}' names '{unknown[0]}', which is not among the recipe's tasks")
    claims = {}
    for key, claim in recipe.claims.items():
        for arm in claim.arms if recipe.arms else ():
            if arm not in recipe.arms:
                raise UserError(f"{file}: claim '{key}' names arm '{arm}', which is not among the recipe's arms")
        try:
            number = paper.number(claim.paper) if isinstance(claim.paper, Cells) else claim.paper
        except UserError as error:
            raise UserError(f"{file}: claim '{key}': {error}") from error
        claims[key] = claim.model_copy(update={"paper": number})
    return recipe.model_copy(update={"claims": claims})


def load(folder: Path = RECIPES) -> Book:
    """Reads and checks every arm, scale and recipe, also against each other."""

    def records(model: type[Strict], file: str) -> dict:
        return {name: parse(model, value, folder / file, name) for name, value in read_yaml(folder / file).items()}

    arms, shapes = records(Arm, "arms.yaml"), records(Shape, "shapes.yaml")
    for name, arm in arms.items():
        if arm.family and arm.family not in arms:
            raise UserError(
                f"{folder}/arms.yaml: {name}: unknown family '{arm.family}'; a family is an arm, {', '.join(arms)}"
            )
    scales = {p.stem: parse(Scale, read_yaml(p), p) for p in sorted((folder / "scales").glob("*.yaml"))}
    mixes = {n: parse_mix(v, folder / "mixes.yaml", n) for n, v in read_yaml(folder / "mixes.yaml").items()}
    files = {p.stem: p for p in sorted(folder.glob("*.yaml")) if p.name not in NO_RECIPES}
    read = {name: parse(Recipe, read_yaml(path), path) for name, path in files.items()}
    recipes = dict(sorted(read.items(), key=lambda item: item[1].place))
    for name, scale in scales.items():
        if scale.data not in mixes:
            raise UserError(
                f"{folder}/scales/{name}.yaml: data '{scale.data}' is unknown: mixes.yaml has {', '.join(mixes)}"
            )
        for arm_name, arm in arms.items():
            try:
                model_config(scale, arm)
            except UserError as error:
                raise UserError(f"{folder}/scales/{name}.yaml with arm '{arm_name}': {error}") from error
    for name, recipe in recipes.items():
        if unknown := [arm for arm in recipe.arms if arm not in arms]:
            raise UserError(f"{files[name]}: unknown arm '{unknown[0]}'; recipes/arms.yaml has {', '.join(arms)}")
        for point, (where, scale) in itertools.product(recipe.points.items(), scales.items()):
            try:
                point[1].at(scale)
            except ValueError as error:
                raise UserError(f"{files[name]}: point '{point[0]}' at scale '{where}': {error}") from error
    paper = Paper(folder / "paper.yaml")
    recipes = {name: _claims(recipe, paper, files[name]) for name, recipe in recipes.items()}
    primary = sum(claim.primary for recipe in recipes.values() for claim in recipe.claims.values())
    if primary > 8:
        raise UserError(f"{folder}: {primary} primary claims over all recipes; at most 8 are allowed")
    return Book(mixes=mixes, arms=arms, scales=scales, recipes=recipes, shapes=shapes)
