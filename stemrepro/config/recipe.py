"""What a recipe is, as typed data: one table or figure of the paper, or a reviewer's wish.

stemrepro.config.catalog reads and checks the files.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field, StringConstraints, model_validator

from stemrepro.common.yaml_records import Factor, Name, Positive, Strict
from stemrepro.config.address import MAIN, Address
from stemrepro.config.paper import Cells, PaperNumber
from stemrepro.config.scale import Scale
from stemrepro.config.scores import LOSSES, SCORE_KINDS, RecipeScore, VariantScore

Key = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_.-]*$", max_length=64)]
"""Names that lm-eval or Python give: tasks, groups of them, claims."""
Metric = str | Annotated[dict[str, str | int | float | bool], Field(min_length=1)]
"""A function of the recipe's measure: its name, or a mapping of it to its first setting, and of others by name."""


def metric_text(metric: Metric) -> str:
    """Return a metric as a recipe writes it, without brackets."""
    if isinstance(metric, str):
        return metric
    settings = {name: str(value).lower() if isinstance(value, bool) else value for name, value in metric.items()}
    return ", ".join(f"{name}: {value}" for name, value in settings.items())


Origin = Literal["paper", "arithmetic", "control"]
ORIGINS: dict[Origin, str] = {
    "paper": "the paper's result",
    "arithmetic": "the paper's arithmetic",
    "control": "our control",
}
"""Whose sentence a claim is: the paper's, what follows from its numbers and shapes, or ours."""


class Claim(Strict):
    """One sentence that can be false, and the contrast that would show it.

    The effect is the metric of the first arm less that of the second, so that the claim makes it positive.
    An exact claim has no arms: its metric is computed, without chance, and must equal the paper's number.
    """

    sentence: str
    origin: Origin
    kind: Literal["greater", "equivalent", "not-better", "exact"]
    metric: Metric
    arms: tuple[Name, ...] = Field((), description="[higher, lower]; exact: none")
    smallest_effect: Factor = Field(
        description="m: the smallest effect that counts, in the metric's unit; "
        "exact: half the last printed digit, unless the recipe says why not"
    )
    paper: PaperNumber | Cells | None = Field(None, description="once loaded a number, never cells")
    expected: float | None = Field(None, description="what an exact control says, as the paper says nothing")
    comparable: bool = Field(False, description="whether metric, regime and tokens per parameter are the paper's")
    unit: str = "nats/token"
    requires: tuple[Metric, ...] = Field((), description="conditions of the measure; the first to fail is the reason")

    @model_validator(mode="after")
    def _fits(self) -> "Claim":
        if len(self.arms) != (0 if self.kind == "exact" else 2):
            wanted = "none" if self.kind == "exact" else "two"
            raise ValueError(f"a claim of kind '{self.kind}' can't have {len(self.arms)} arms: {wanted}")
        if self.kind == "exact" and (self.paper is None) == (self.expected is None):
            raise ValueError("a claim of kind 'exact' needs the paper's number or, of a control, 'expected'")
        if self.expected is not None and (self.kind != "exact" or self.origin != "control"):
            raise ValueError("'expected' is for controls of kind 'exact', which the paper has no value for")
        return self


class Estimate(Strict):
    """One number of a recipe without a verdict.

    It is the metric of the first arm less that of the second. Without arms it is computed, without chance.
    """

    label: str
    metric: Metric
    arms: tuple[Name, ...] = Field((), description="[first, second]; none where it is computed")
    unit: str = "nats/token"
    paper: PaperNumber | Cells | None = Field(
        None, description="what the paper prints of a computed one; once loaded a number, never cells"
    )
    tolerance: Factor | None = Field(None, description="half the last printed digit; with `paper` alone")

    @model_validator(mode="after")
    def _fits(self) -> "Estimate":
        if len(self.arms) not in (0, 2):
            raise ValueError(f"an estimate has two arms, or none where it is computed, not {len(self.arms)}")
        if (self.paper is None) != (self.tolerance is None):
            raise ValueError("'paper' and 'tolerance' stand together: what is printed, and how far off it may be")
        if self.paper and self.arms:
            raise ValueError("'paper' is for an estimate without arms, which is computed")
        return self

    def deviates(self, value: float) -> bool:
        """Return whether a computed number is further from the printed one than the tolerance; False without one."""
        return self._off(value) > 1 + 1e-9

    def slips(self, value: float) -> bool:
        """Return whether a computed number rounds to what is printed give or take one last digit; counts don't."""
        return self.deviates(value) and self._off(value) <= 3 + 1e-9 and (self.tolerance or 0) < 0.5

    def _off(self, value: float) -> float:
        """Return the distance from the printed number in tolerances, which are halves of its last digit."""
        if not isinstance(self.paper, PaperNumber) or self.tolerance is None:
            return 0.0
        return abs(value - self.paper.value) / self.tolerance


@dataclass(frozen=True, kw_only=True)
class Task:
    """A benchmark of a recipe."""

    label: str
    # lm-eval's metric that it is judged by; max_length: that which an item's field of this name names.
    score: Literal["acc", "acc_norm", "exact_match", "score", "max_length"]


@dataclass(frozen=True, kw_only=True)
class VariantRequest:
    """What a recipe wants of a variant of recipes/variants.yaml; steps are losses and norms of training by step."""

    arms: tuple[Name, ...] = ()  # trained there; all of the recipe's when left out
    seeds: Positive = 3
    scores: tuple[VariantScore, ...] = ("losses",)


class Recipe(Strict):
    """One table or figure of the paper: arms, what is measured, claims."""

    title: str
    paper_item: str
    place: int = Field(description="on the scoreboard, in the paper's order")
    measure: Key = Field(description="a file of stemrepro/measures, with the functions that metrics name")
    front: bool = Field(False, description="its analysis draws front(data, scores) too: the figure that answers it")
    origin: Origin = Field(description="of the claims that say nothing else")
    arms: tuple[Name, ...] = Field(description="arms that are trained for it; none when it is about the paper alone")
    scales: tuple[Name, ...] = Field((), description="where it is run; at every scale when left out")
    compare_at: Name = Field(MAIN, description="the variant at which its arms are compared")
    seeds: Positive = Field(5, description="seeds of each arm at the scale, the first of the scale's")
    more_seeds: dict[Name, Positive] = Field({}, description="arms with another number of seeds")
    scores: tuple[RecipeScore, ...] = Field(
        ("losses",),
        description="what it reads of its arms at the scale; context: losses by position and context too; steps: each",
    )
    variants: dict[Name, VariantRequest] = Field({}, description="where else it wants arms")
    tasks: dict[Key, Task] = Field({}, description="benchmarks, by lm-eval's name")
    groups: dict[Key, tuple[Key, ...]] = Field({}, description="tasks averaged with equal weight")
    claims: dict[Key, Claim] = Field({}, description="what gets a verdict")
    estimates: dict[Key, Estimate] = Field({}, description="all else that it measures")

    @model_validator(mode="before")
    @classmethod
    def _fill(cls, value: object) -> object:
        """Give claims without an origin the recipe's."""
        if isinstance(value, dict) and isinstance(value.get("claims"), dict) and "origin" in value:
            claims = value["claims"].items()
            filled = {k: {"origin": value["origin"], **c} if isinstance(c, dict) else c for k, c in claims}
            return value | {"claims": filled}
        return value

    @model_validator(mode="after")
    def _fits(self) -> "Recipe":
        if len(set(self.arms)) < len(self.arms):
            raise ValueError(f"arms {list(self.arms)} names an arm twice")
        at_variants = [(f"variants.{key}", request.arms) for key, request in self.variants.items()]
        for key, names in (("more_seeds", self.more_seeds), *at_variants):
            if strange := [name for name in names if name not in self.arms]:
                raise ValueError(f"{key} names '{strange[0]}', which is not among the recipe's arms")
        compared = self.variants.get(self.compare_at)
        if self.compare_at != MAIN and (compared is None or set(self.arms) - set(compared.arms or self.arms)):
            why = "is no variant at which all of the recipe's arms are trained"
            raise ValueError(f"compare_at '{self.compare_at}' {why}")
        of_tasks = [name for name, kind in SCORE_KINDS.items() if kind.tasks]
        if len(set(of_tasks) & set(self.scores)) != bool(self.tasks):
            choices = " or ".join(f"'{name}'" for name in of_tasks)
            raise ValueError(f"tasks need the scores {choices}, one of the two, and these need tasks")
        if "benchmarks" in self.scores and {task.score for task in self.tasks.values()} - {"acc", "acc_norm"}:
            raise ValueError("the scores 'benchmarks' know acc and acc_norm; other metrics need the scores 'reasoning'")
        for group, members in self.groups.items():
            if strange := [task for task in members if task not in self.tasks]:
                raise ValueError(f"group '{group}' names '{strange[0]}', which is not among the recipe's tasks")
        self._check_asked()
        return self

    def _check_asked(self) -> None:
        """Raise ValueError where a claim or an estimate names a strange arm, or asks what another asks."""
        asked: dict[tuple[str, frozenset[str]], str] = {}
        claims = [("claim", key, claim) for key, claim in self.claims.items()]
        for kind, key, one in claims + [("estimate", key, estimate) for key, estimate in self.estimates.items()]:
            if strange := [arm for arm in one.arms if self.arms and arm not in self.arms]:
                raise ValueError(
                    f"{kind} '{key}' names arm '{strange[0]}', which is not among 'arms' ({', '.join(self.arms)})"
                )
            if kind == "estimate" and key in self.claims:
                raise ValueError(f"estimate '{key}' has the name of a claim")
            other = asked.setdefault((metric_text(one.metric), frozenset(one.arms)), key)
            if other != key:
                same = f"metric '{metric_text(one.metric)}' of the same arms"
                raise ValueError(f"{kind} '{key}' asks what '{other}' asks: {same}")

    def runs_at(self, name: str, scale: Scale) -> bool:
        """Tell whether the recipe is run at a scale of that name."""
        return name in self.scales or not (self.scales or scale.named_only)

    def arms_at(self, variant: str) -> tuple[str, ...]:
        """Return the arms that the recipe wants at a variant."""
        return self.variants[variant].arms or self.arms

    def variants_of(self, arm: str) -> list[str]:
        """Return the variants at which the recipe wants an arm."""
        return [variant for variant in self.variants if arm in self.arms_at(variant)]

    def seeds_of(self, arm: str, kind: str = "losses") -> int:
        """Return the number of an arm's seeds where the recipe compares its arms; extra seeds are for losses only."""
        if self.compare_at != MAIN:
            return self.variants[self.compare_at].seeds
        seeds = self.more_seeds.get(arm, self.seeds)
        return seeds if kind == "losses" else min(seeds, self.seeds)

    def scored(self) -> dict[Address, list[str]]:
        """Return the kinds of scores that it reads of each address."""
        wanted = self.wanted().items()
        return {at: list(dict.fromkeys("losses" if kind in LOSSES else kind for kind in kinds)) for at, kinds in wanted}

    def wanted(self) -> dict[Address, dict[str, int]]:
        """Return what the recipe reads: for each address the seeds of each kind of scores."""
        requests: dict[Address, dict[str, int]] = {}
        for arm in self.arms if self.compare_at == MAIN else ():
            seeds = {kind: self.seeds_of(arm, "losses" if kind in LOSSES else kind) for kind in self.scores}
            requests[Address(MAIN, arm)] = seeds
        for variant, request in self.variants.items():
            for arm in self.arms_at(variant):
                requests[Address(variant, arm)] = dict.fromkeys(request.scores, request.seeds)
        return requests
