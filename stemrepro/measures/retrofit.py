"""Tables in place of the up-projections of a trained dense model: metrics of recipes/retrofit.yaml."""

from functools import cached_property
from typing import ClassVar

import numpy as np

from stemrepro.common.errors import UserError
from stemrepro.config.address import MAIN
from stemrepro.measures import losses
from stemrepro.measures.base import Measure, Precondition
from stemrepro.measures.losses import ArmLosses, by_address, losses_at_variants, paired
from stemrepro.measures.metric import LOSS_UNIT, Field, metric
from stemrepro.verdicts.contrast import Contrast
from stemrepro.verdicts.rule import CONFOUNDED

SCRATCH, ROWS, MEAN = "second-half", "second-half-token-means", "second-half-mean-row"
INTERPOLATED = "second-half-interpolated"
"""The variants after all tokens: with tables from the start, retrofitted in between in two ways, and the control."""
VARIANTS = {
    "one-schedule": MAIN, "scratch": SCRATCH, "token-means": ROWS, "mean-row": MEAN, "interpolated": INTERPOLATED,
}  # fmt: skip
"""Variants by the words of metrics."""


def variants(*names: str) -> dict[str, str]:
    """Choose some of VARIANTS."""
    return {name: VARIANTS[name] for name in names}


NO_GAIN, CONSTANT = "no-gain-without-information", "stem-frozen"
TENTH = 10
"""The second of so many parts of the second stage is "early"."""
CANCELS = "; the second arm, which has no tables, cancels"


class Retrofit(Measure):
    """Losses on prose after as many tokens in all, and at the first batch after the retrofit."""

    fields: ClassVar[dict[str, Field]] = {
        "way": variants("scratch", "token-means", "mean-row", "interpolated"),
        "rows": variants("token-means", "mean-row"),
        "other": variants("scratch", "one-schedule", "mean-row"),
    }
    preconditions: ClassVar[dict[str, Precondition]] = {
        NO_GAIN: Precondition(
            "stem-frozen, made of dense with one row for all tokens that never learns, ends no more than the smallest "
            "effect that counts below dense, both in two stages",
            CONFOUNDED, ("dense", CONSTANT), by_effect=True,
        )
    }  # fmt: skip

    @cached_property
    def arms(self) -> dict[str, dict[str, ArmLosses]]:
        return losses_at_variants(self.inputs)

    def check_made(self, name: str, arm: str, plain: str, way: str = ROWS) -> None:
        """Raise UserError unless the first arm is retrofitted and the second has no tables."""
        made = self.arms[INTERPOLATED if way == INTERPOLATED else ROWS]
        if arm not in made or plain in made:
            raise UserError(f"metric '{name}' of {arm} and {plain}: one of {', '.join(made)} and one without tables")

    @metric(
        "{name=gain}:{way}",
        "loss of dense less that of an arm that had tables from the start, or was retrofitted after "
        "half the tokens with rows of means, with the mean row for all, or by the authors' interpolation; "
        f"both trained in two stages, {LOSS_UNIT}",
    )
    @metric("{name=lead}:{way}", f"the same with dense trained in one stage, {LOSS_UNIT}")
    def lead(self, high: str, low: str, name: str, way: str) -> Contrast:
        self.check_made(name, low, high, way)
        return losses.contrast(self.arms[SCRATCH if name == "gain" else MAIN][high], self.arms[way][low], "prose")

    @metric(
        "early:{rows}",
        "training loss over the second tenth of the second stage: an arm's that was retrofitted less dense's, "
        f"on the same batches, {LOSS_UNIT}",
    )
    def early(self, high: str, low: str, rows: str) -> Contrast:
        self.check_made("early", high, low)
        first, second = self.second_stage(high, low, rows)
        start, stop = first.shape[1] // TENTH, 2 * first.shape[1] // TENTH
        part = slice(start, max(stop, start + 1))  # a smoke test has fewer steps than tenths
        return Contrast((first - second)[:, part].mean(axis=1))

    @metric(
        "behind:{other}",
        "loss of an arm retrofitted with rows of means less its loss with tables from the start, "
        f"in two stages or in one, or retrofitted with the mean row for all{CANCELS}, {LOSS_UNIT}",
    )
    def lag(self, high: str, low: str, other: str) -> Contrast:
        self.check_made("behind", high, low)
        return losses.contrast(self.arms[ROWS][high], self.arms[other][high], "prose")

    @metric(
        "interpolation",
        "loss of an arm retrofitted with rows of means less that of one retrofitted by the authors' interpolation, "
        f"{LOSS_UNIT}",
    )
    def interpolation(self, high: str, low: str) -> Contrast:
        return losses.contrast(self.arms[ROWS][high], self.arms[INTERPOLATED][low], "prose")

    @metric(
        "at-once:{rows}",
        "training loss at the first batch of the second stage, before any step: an arm's that was just "
        f"retrofitted less dense's, {LOSS_UNIT}",
    )
    def at_once(self, high: str, low: str, rows: str) -> Contrast:
        self.check_made("at-once", high, low)
        first, second = self.second_stage(high, low, rows)
        return Contrast((first - second)[:, 0])

    def second_stage(self, arm: str, plain: str, rows: str) -> tuple[np.ndarray, np.ndarray]:
        """Return training losses of a retrofitted arm and of one without tables, each [seeds, steps]."""
        return tuple(run.steps["loss"] for run in paired(self.arms[rows][arm], self.arms[SCRATCH][plain]))

    def untestable(self, metric: str, precondition: str, smallest_effect: float = np.nan) -> str | None:
        if precondition != NO_GAIN:
            return None
        low, high = losses.contrast(self.arms[SCRATCH]["dense"], self.arms[MEAN][CONSTANT], "prose").interval(0.05)
        if not low > smallest_effect:
            return None
        below = f"ends {low:.3f} to {high:.3f} nats (95%) below dense in two stages"
        return f"{CONSTANT}, whose only row never learns, {below}, more than the {smallest_effect:g} that count"

    def runs(self) -> dict[str, ArmLosses]:
        return by_address(self.arms)
