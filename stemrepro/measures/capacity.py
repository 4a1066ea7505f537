"""How much models hold: metrics of recipes/knowledge_capacity.yaml.

Bits are those of attributes drawn by chance, from log-probabilities. Arms are not paired here: what two of them hold is
uncorrelated over seeds, so that pairing would cost degrees of freedom and buy nothing.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from stemrepro.config.address import MAIN, Address
from stemrepro.config.arm import run_settings
from stemrepro.measures.base import Level, Measure, Precondition
from stemrepro.measures.metric import Field, metric
from stemrepro.measures.reading import ArmScores
from stemrepro.model.cost import flops_per_token, parameter_counts
from stemrepro.verdicts.contrast import Contrast, of_shares, unpaired
from stemrepro.verdicts.rule import TOO_EASY, TOO_SMALL

if TYPE_CHECKING:
    import pandas as pd


class ArmCapacity(ArmScores):
    """Bits known by one arm at one number of people."""

    @cached_property
    def frame(self) -> pd.DataFrame:
        """A line per seed: people, facts, bits of these, bits known (below 0 worse than a guess), first choices."""
        return self.lines("capacity.csv", "people", "facts", "bits", "known", "first").set_index("seed")


LEARNT, FULL = 50.0, 90.0
"""Percent of the bits that dense must know of the fewest people, and must not know of the most."""


class Capacity(Measure):
    """What the recipe's arms hold at each number of people."""

    fields: ClassVar[dict[str, Field]] = {"cost": ("total", "active", "flop")}
    preconditions: ClassVar[dict[str, Precondition]] = {
        "dense-learns": Precondition(f"dense knows {LEARNT:g}% of the fewest people's bits", TOO_SMALL, ("dense",)),
        "dense-is-full": Precondition(
            f"dense knows less than {FULL:g}% of the bits of the most people", TOO_EASY, ("dense",)
        ),
    }

    @cached_property
    def sizes(self) -> dict[str, float]:
        """Variants by their number of people, from few to many, as a factor of the scale's."""
        people = {name: self.inputs.catalog.variant(name).people for name in (MAIN, *self.inputs.recipe.variants)}
        return dict(sorted(people.items(), key=lambda item: item[1]))

    @cached_property
    def arms(self) -> dict[str, dict[str, ArmCapacity]]:
        return {
            arm: {variant: ArmCapacity(self.inputs.scores("capacity", arm, variant)) for variant in self.sizes}
            for arm in self.inputs.recipe.arms
        }

    @property
    def most(self) -> str:
        return list(self.sizes)[-1]

    def costs(self, arm: str) -> dict[str, float]:
        """Return the "total" and "active" parameters of an arm, and its forward FLOPs per token ("flop")."""
        catalog, scale = self.inputs.catalog, self.inputs.scale
        model, training = run_settings(Address(MAIN, arm), catalog.arms[arm], catalog.variant(MAIN), scale)
        counts = parameter_counts(model)
        return {"total": counts["total"], "active": counts["active"], "flop": flops_per_token(model, training.sequence)}

    def percent(self, arm: str, variant: str) -> np.ndarray:
        """Return the percentage of the bits that an arm knows [seeds]."""
        frame = self.arms[arm][variant].frame
        return (100 * frame["known"] / frame["bits"]).to_numpy()

    def bits(self, arm: str, variant: str) -> np.ndarray:
        return self.arms[arm][variant].frame["known"].to_numpy()

    @metric("known", "percent of the bits known of the most people, difference of two arms")
    def share_known(self, high: str, low: str) -> Contrast:
        one, other = (self.level(arm, self.most) for arm in (high, low))
        return of_shares(one.percent, other.percent, one.items, paired=False)

    def level(self, arm: str, variant: str) -> Level:
        return Level(self.percent(arm, variant), self.arms[arm][variant].frame["facts"].to_numpy(float))

    def levels(self, metric: str) -> list[Level]:
        return [self.level("dense", self.most)] if metric == "known" else []

    @metric(
        "{cost}",
        "bits known of the most people per parameter, per active parameter or per forward FLOP per token, "
        "doublings by which the first arm exceeds the second",
    )
    def known_per_cost(self, high: str, low: str, cost: str) -> Contrast:
        bits = {arm: self.bits(arm, self.most) for arm in (high, low)}
        known = {arm: np.where(of_arm >= 1, of_arm, np.nan) / self.costs(arm)[cost] for arm, of_arm in bits.items()}
        return unpaired(*(np.log2(known[arm]) for arm in (high, low)))

    def untestable(self, metric: str, precondition: str) -> str | None:
        fewest = next(iter(self.sizes))
        if precondition == "dense-learns" and (few := self.level("dense", fewest)).below(LEARNT):
            return f"dense knows {few.words} of the bits of the fewest people; {LEARNT:g} are needed"
        if precondition == "dense-is-full" and (many := self.level("dense", self.most)).above(FULL):
            return f"dense knows {many.words} of the bits of the most people, so that its capacity isn't reached"
        return None

    def runs(self) -> dict[str, ArmCapacity]:
        return {str(Address(at, arm)): of for arm, variants in self.arms.items() for at, of in variants.items()}
