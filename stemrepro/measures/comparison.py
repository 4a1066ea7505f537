"""Losses and benchmark scores of arms, paired, in the common setting and in others."""

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from stemrepro.config.address import MAIN, Address
from stemrepro.config.arm import run_settings
from stemrepro.config.scale import Variant
from stemrepro.measures import factorial, items, losses
from stemrepro.measures.base import Level, Measure, Precondition
from stemrepro.measures.inputs import Inputs
from stemrepro.measures.items import ArmItems
from stemrepro.measures.losses import ArmLosses, Bucket
from stemrepro.measures.metric import Field, metric
from stemrepro.verdicts.contrast import Contrast
from stemrepro.verdicts.rule import CONFOUNDED, TOO_SMALL

OWN_RATES, OFFICIAL_INIT = "own rates", "official start"
VARIANTS = {OWN_RATES: "own-rate", OFFICIAL_INIT: "official-start"}
"""The variant at which arms are trained in another setting; after the name of the one that a recipe compares at."""
MEMORY, ANSWERS, NO_GAIN = (
    "token-only-below-three-quarters", "dense-beats-answer-only", "no-gain-without-information",
)  # fmt: skip
"""Names of preconditions."""
UNINFORMED = ("stem-frozen", "stem-shuffled")
"""Arms whose rows hold nothing learnt of a token: random ones that never move, and ones dealt anew at every step."""


@dataclass
class ComparedArm:
    """An arm's losses where the recipe compares it, items of benchmarks where it has tasks, and losses at variants."""

    losses: ArmLosses
    items: ArmItems | None = None
    variants: dict[str, ArmLosses] = field(default_factory=dict)

    @property
    def summary(self) -> dict:
        """Costs and hashes of the runs."""
        return self.losses.summary


def read_arms(inputs: Inputs) -> dict[str, ComparedArm]:
    """Read all scores of a recipe's arms."""
    recipe, arms = inputs.recipe, {}
    for arm in recipe.arms:
        variants = {
            variant: ArmLosses(inputs.scores("losses", arm, variant), recipe.variants[variant].seeds)
            for variant in recipe.variants_of(arm)
            if variant != recipe.compare_at
        }
        compared = ArmLosses(inputs.scores("losses", arm, recipe.compare_at), recipe.seeds_of(arm))
        scored_items = ArmItems(inputs.scores("benchmarks", arm), recipe) if recipe.tasks else None
        arms[arm] = ComparedArm(compared, scored_items, variants)
    return arms


class Comparison(Measure):
    """Contrasts of losses and benchmark scores; the arms are those of the recipe."""

    fields: ClassVar[dict[str, Field]] = {"mix": losses.MIXES, "bucket": losses.NAMED, "seen": {"seen": True}}
    preconditions: ClassVar[dict[str, Precondition]] = {
        MEMORY: Precondition(
            "a memory of the last token explains less than three quarters of the gap between dense and STEM full",
            CONFOUNDED, ("dense", "token-only", "stem-full"),
        ),
        ANSWERS: Precondition("dense scores above what needs no knowledge", TOO_SMALL, ("dense",)),
        NO_GAIN: Precondition(
            "rows that hold nothing learnt aren't shown to end below dense by more than the claim's smallest effect",
            CONFOUNDED, ("dense",), any_of=UNINFORMED, by_effect=True,
        ),
    }  # fmt: skip

    def __init__(self, inputs: Inputs) -> None:
        self.inputs, self.arms = inputs, read_arms(inputs)

    def pair(self, high: str, low: str, own: bool = False) -> tuple[ArmLosses, ArmLosses]:
        """Return two arms' losses where the recipe compares its arms, or at each one's own rates."""
        return tuple(self.at(OWN_RATES, arm) if own else self.arms[arm].losses for arm in (high, low))

    @metric("{mix}", "loss in nats per token, every source of a mix the same weight", own=True)
    @metric("{mix}:{bucket}", "the same of the targets in a bucket", own=True)
    def loss(self, high: str, low: str, mix: str, bucket: Bucket | None = None, own: bool = False) -> Contrast | None:
        """Return a difference of losses by seed; of a bucket that no target fell into NaN, or None at own rates."""
        if bucket and self.is_empty(bucket):
            return None if own else Contrast(np.full(self.arms[high].summary["seeds"], np.nan))
        return losses.contrast(*self.pair(high, low, own), mix, bucket)

    @metric("drift", "change of the prose gap from the first mark of training to its last", own=True)
    def drift(self, high: str, low: str, own: bool = False) -> Contrast:
        return losses.drift(*self.pair(high, low, own))

    @metric(
        "{score=accuracy}:{task}[:{seen}]",
        "accuracy in points of a task or group, each task under its own acc or acc_norm",
    )
    @metric("{score=margin}:{task}[:{seen}]", "bits that the prompt adds to the right answer over the wrong ones")
    def score(self, high: str, low: str, score: str, task: str, seen: bool = False) -> Contrast:
        return items.contrast(self.arms[high].items, self.arms[low].items, score, task, seen)

    @metric("interaction", factorial.WORDS)
    def interaction(self, high: str, low: str) -> Contrast:
        return factorial.interaction(high, low, tuple(self.arms), lambda arm: self.arms[arm].losses)

    def is_empty(self, bucket: Bucket) -> bool:
        """Return whether no target of the scale fell into a bucket."""
        rows = next(iter(self.arms.values())).losses.losses
        return not ((rows.by == bucket.by) & (rows.bucket == bucket.name)).any()

    def at(self, setting: str, arm: str) -> ArmLosses | None:
        """Return an arm's losses in another setting, at the recipe's budget; None where it wasn't trained there.

        At own rates these are the scale's own losses where the family's best rate is the common one. They are None
        where the scale doesn't know that rate.
        """
        base = self.inputs.recipe.compare_at
        runs = self.arms[arm].variants.get(VARIANTS[setting] if base == MAIN else f"{base}-{VARIANTS[setting]}")
        if setting != OWN_RATES:
            return runs
        if (common := self.own_is_common(arm)) is None:
            return None
        return runs or (self.arms[arm].losses if common else None)

    def own_is_common(self, arm: str) -> bool | None:
        """Tell whether the best settings of an arm's family are the common ones; None where the scale has none."""
        fields, scale = self.inputs.catalog.arms[arm], self.inputs.scale
        if scale.tuned_of(arm, fields.family) is None:
            return None
        tuned, common = (run_settings(Address(MAIN, arm), fields, Variant(tuned=flag), scale) for flag in (True, False))
        return tuned == common

    def levels(self, metric: str) -> list[Level]:
        fields = self.parse(metric).fields
        if fields.get("score") != "accuracy":
            return []
        return items.levels(self.arms["dense"].items, fields["task"], fields.get("seen", False))

    def own(self, high: str, low: str, metric: str) -> Contrast | None:
        """Return the same at each family's own rates; None where an arm wasn't trained so, or both have common ones."""
        parsed = self.parse(metric)
        pair = {arm: self.at(OWN_RATES, arm) for arm in (high, low) if parsed.metric.own}
        if not pair or None in pair.values() or all(pair[arm] is self.arms[arm].losses for arm in pair):
            return None
        return parsed.metric.method(self, high, low, own=True, **parsed.fields)

    def official(self, high: str, low: str) -> Contrast | None:
        """Return the difference on prose at the official start of the embeddings; None where an arm lacks it."""
        pair = [self.at(OFFICIAL_INIT, arm) for arm in (high, low)]
        return None if None in pair else losses.contrast(*pair, "prose")

    def untestable(self, metric: str, precondition: str, smallest_effect: float = np.nan) -> str | None:
        parsed = self.parse(metric)
        if (bucket := parsed.fields.get("bucket")) and self.is_empty(bucket):
            return f"no target at this scale fell into the bucket {bucket.name}"
        if "task" in parsed.fields and (reason := items.absent(self.arms["dense"].items, parsed.fields["task"])):
            return reason
        if precondition == ANSWERS:
            return items.untestable(self.arms["dense"].items, **parsed.fields)
        if precondition == MEMORY:
            return self._memory_explains()
        if precondition == NO_GAIN:
            controls = tuple(arm for arm in UNINFORMED if arm in self.arms)
            return self.gain_without_information(controls, smallest_effect)
        return None

    def _memory_explains(self) -> str | None:
        """Return a reason where dense - token-only is three quarters of dense - STEM full or more, on prose."""
        dense, stem, memory = (self.arms[arm].losses for arm in ("dense", "stem-full", "token-only"))
        gap, part = (losses.contrast(dense, low, "prose") for low in (stem, memory))
        if gap.interval(0.05)[1] <= 0:
            return f"there is no gap between dense and stem-full to explain ({gap.mean:.3f} nats)"
        if Contrast(part.differences - 0.75 * gap.differences).interval(0.05)[0] > 0:
            return f"the token-only control explains {100 * part.mean / gap.mean:.0f}% of the gap (over three quarters)"
        return None

    def gain_without_information(self, controls: tuple[str, ...], smallest_effect: float) -> str | None:
        """Return a reason where a control whose rows say nothing is shown to end below dense by what counts."""
        dense = self.arms["dense"].losses
        gains = {arm: losses.contrast(dense, self.arms[arm].losses, "prose").interval(0.05) for arm in controls}
        worst = max(gains, key=lambda arm: gains[arm][0])
        if gains[worst][0] > smallest_effect:
            low, high = gains[worst]
            gain = f"ends {low:.3f} to {high:.3f} nats (95%) below dense, more than the {smallest_effect:g} that count"
            return f"{worst}, whose rows hold nothing that was learnt of a token, {gain}"
        return None

    def runs(self) -> dict[str, ArmLosses | ArmItems]:
        parts = self.inputs.recipe.scores
        main = {arm: scores.losses if "losses" in parts else scores.items for arm, scores in self.arms.items()}
        return main | {
            f"{arm}@{variant}": run for arm, scores in self.arms.items() for variant, run in scores.variants.items()
        }

    def cost(self, arm: str) -> dict[str, float]:
        """Return an arm's FLOPs per token and all of its parameters, as multiples of dense's."""
        own, dense = self.arms[arm].summary, self.arms["dense"].summary
        flops = own["forward_flops_per_token"] / dense["forward_flops_per_token"]
        return {"FLOPs": flops, "parameters": own["parameters"]["total"] / dense["parameters"]["total"]}
