"""Needles found before and after an extension of the context: metrics of recipes/needle.yaml.

They are points of needles, mean over depths. The rows are the same for every arm and seed.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from stemrepro.common.errors import UserError
from stemrepro.common.files import damaged
from stemrepro.config.address import MAIN, Address
from stemrepro.measures import losses
from stemrepro.measures.base import Level, Measure, Precondition
from stemrepro.measures.losses import ArmLosses
from stemrepro.measures.metric import WHOLE, Field, metric
from stemrepro.measures.reading import ArmScores
from stemrepro.verdicts.contrast import Contrast, of_shares
from stemrepro.verdicts.rule import TOO_SMALL

if TYPE_CHECKING:
    import pandas as pd

WAYS = ("chosen", "generated")
"""By log-likelihood among all values, and by greedy generation."""


class ArmHaystack(ArmScores):
    """How many needles an arm finds, by seed, length and depth."""

    @cached_property
    def frame(self) -> pd.DataFrame:
        """A line per seed, length and depth: rows, chosen, generated, other, nats."""
        by = ("length", "depth")
        return self.lines("haystack.csv", "rows", *WAYS, "other", "nats", by=by)

    def found(self, length: int, way: str = "chosen") -> pd.DataFrame:
        """Return points of needles found, by seed (rows) and depth (columns)."""
        rows = self.frame[self.frame["length"] == length]
        if rows.empty:
            raise UserError(f"{self.folder}/haystack.csv has no rows of {length} tokens")
        rows = rows.assign(percent=100 * rows[way] / rows["rows"])
        table = rows.pivot(index="seed", columns="depth", values="percent")
        if table.isna().any(axis=None) or len(table) != self.summary["seeds"]:
            raise damaged(self.folder / "haystack.csv", f"of {length} tokens a seed or depth is missing")
        return table


FOUND = 80.0
"""Points that dense must find where it was trained to; below them there is no finding to change."""
KEPT, ANEW = "longer", "longer-anew"
"""The variants of the extension: tables carried over, and drawn again as the official code does."""


class Needle(Measure):
    """Needles that the recipe's arms find."""

    fields: ClassVar[dict[str, Field]] = {"way": WAYS, "length": WHOLE}
    preconditions: ClassVar[dict[str, Precondition]] = {
        "dense-finds": Precondition(f"dense finds {FOUND:g}% at the length it was trained on", TOO_SMALL, ("dense",)),
    }

    @cached_property
    def scores(self) -> dict[Address, ArmHaystack]:
        return {place: ArmHaystack(self.inputs.folder / "haystack" / place.path) for place in self.inputs.places()}

    def losses(self, variant: str, arm: str) -> ArmLosses:
        return ArmLosses(self.inputs.scores("losses", arm, variant), self.inputs.recipe.variants[variant].seeds)

    def length(self, variant: str) -> int:
        return self.inputs.catalog.variant(variant).at(self.inputs.scale).model.sequence

    def found(self, variant: str, arm: str, length: int, way: str = "chosen") -> np.ndarray:
        """Return points of needles found by seed, mean over depths."""
        return self.scores[Address(variant, arm)].found(length, way).mean(axis=1).to_numpy()

    def needles(self, variant: str, arm: str, length: int) -> int:
        """Return how many needles a seed of an arm looks for in rows of a length, over all depths."""
        frame = self.scores[Address(variant, arm)].frame
        rows = frame[(frame["length"] == length) & (frame["seed"] == frame["seed"].min())]
        return int(rows["rows"].sum())

    def level(self, variant: str, length: int, way: str = "chosen") -> Level:
        return Level(self.found(variant, "dense", length, way), self.needles(variant, "dense", length))

    def levels(self, metric: str) -> list[Level]:
        fields = self.parse(metric).fields
        if not fields:
            return [] if metric == "anew-loss" else [self.level(KEPT, self.length(v)) for v in (MAIN, KEPT)]
        return [self.level(fields.get("variant", MAIN), fields["length"], fields["way"])] if "way" in fields else []

    @metric(
        "{way}:{length}",
        "points of needles found in rows of so many tokens before the extension, by log-likelihood among all "
        "values or by greedy generation; difference of two arms",
    )
    @metric("{way}:{length}@{variant}", "the same after the extension at that variant")
    def lead(self, high: str, low: str, length: int, way: str = "chosen", variant: str = MAIN) -> Contrast:
        pair = (self.found(variant, arm, length, way) for arm in (high, low))
        return of_shares(*pair, self.needles(variant, high, length))

    @metric(
        f"growth@{KEPT}",
        "lead at the length of the extension less lead at the length before it, both after the extension, points",
    )
    def growth(self, high: str, low: str) -> Contrast:
        leads = [self.lead(high, low, self.length(variant), variant=KEPT) for variant in (KEPT, MAIN)]
        return Contrast(leads[0].differences - leads[1].differences)

    @metric(
        "anew:{length}",
        "what an arm's lead over one without tables, which cancels, loses in rows of so many tokens when its tables "
        "are drawn anew, points",
    )
    def lost_anew(self, high: str, low: str, length: int) -> Contrast:
        pair = (self.found(variant, high, length) for variant in (KEPT, ANEW))
        return of_shares(*pair, self.needles(KEPT, high, length))

    @metric("anew-loss", "the same of the loss, nats per token of plain prose at the end of the extension")
    def loss_anew(self, high: str, low: str) -> Contrast:
        return losses.contrast(self.losses(ANEW, high), self.losses(KEPT, high), "prose")

    def untestable(self, metric: str, precondition: str) -> str | None:
        if precondition == "none":
            return None
        length = self.length(MAIN)
        if (level := self.level(MAIN, length)).below(FOUND):
            return f"dense finds {level.words} of the needles in {length} tokens; {FOUND:g} are needed"
        return None

    def runs(self) -> dict[str, ArmHaystack]:
        return {str(place): scores for place, scores in self.scores.items()}
