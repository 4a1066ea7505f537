"""Tables in place of the up-projections of a trained dense model: metrics of recipes/retrofit.yaml."""

from functools import cached_property
from typing import ClassVar

import numpy as np

from stemrepro.common.errors import UserError
from stemrepro.config.address import MAIN, Address
from stemrepro.measures import losses
from stemrepro.measures.base import LOSS_UNIT, Precondition
from stemrepro.measures.inputs import Inputs
from stemrepro.measures.losses import ArmLosses, paired
from stemrepro.verdicts.contrast import Contrast
from stemrepro.verdicts.rule import CONFOUNDED

SCRATCH, ROWS, MEAN = "second-half", "second-half-token-means", "second-half-mean-row"
"""The variants after all tokens: as from the start, retrofitted in between, and the control."""
VARIANTS = {"one-schedule": MAIN, "scratch": SCRATCH, "token-means": ROWS, "mean-row": MEAN}
"""By the metrics' words."""
NO_GAIN, CONSTANT = "no-gain-without-information", "stem-frozen"
TENTH = 10
"""The second of so many parts of the second stage is "early"."""
CANCELS = "; the second arm, which has no tables, cancels"


class Retrofit:
    """Losses on prose after as many tokens in all, and at the first batch behind the retrofit."""

    metrics: ClassVar[dict[str, str]] = {
        "gain:(scratch|token-means|mean-row)": "loss of dense less that of an arm that had tables from the start, was retrofitted after "
        f"half the tokens with rows of means, or with the mean row for all; both trained in two stages, {LOSS_UNIT}",
        "lead:(scratch|token-means|mean-row)": f"the same with dense trained in one stage, {LOSS_UNIT}",
        "early:(token-means|mean-row)": "training loss over the second tenth of the second stage: an arm's that was retrofitted less dense's, "
        f"on the same batches, {LOSS_UNIT}",
        "behind:(scratch|one-schedule|mean-row)": "loss of an arm retrofitted with rows of means less its loss with tables from the start, "
        f"in two stages or in one, or retrofitted with the mean row for all{CANCELS}, {LOSS_UNIT}",
        "at-once:(token-means|mean-row)": "training loss at the first batch of the second stage, before any step: an arm's that was just "
        f"retrofitted less dense's, {LOSS_UNIT}",
    }
    preconditions: ClassVar[dict[str, Precondition]] = {
        NO_GAIN: Precondition(
            "stem-frozen, made of dense with one row for all tokens that never learns, ends no more than the smallest effect that counts "
            "below dense, both in two stages",
            CONFOUNDED,
            ("dense", CONSTANT),
            by_effect=True,
        )
    }
    reads_text: ClassVar[bool] = False

    def __init__(self, inputs: Inputs) -> None:
        self.inputs = inputs

    @cached_property
    def arms(self) -> dict[str, dict[str, ArmLosses]]:
        """Losses by variant and arm."""
        recipe, folder = self.inputs.recipe, self.inputs.folder / "losses"
        found = {MAIN: {arm: ArmLosses(folder / Address(MAIN, arm).path, recipe.seeds_of(arm)) for arm in recipe.arms}}
        for variant, request in recipe.variants.items():
            places = {arm: folder / Address(variant, arm).path for arm in recipe.arms_at(variant)}
            found[variant] = {arm: ArmLosses(place, request.seeds) for arm, place in places.items()}
        return found

    def contrast(self, high: str, low: str, metric: str) -> Contrast:
        """Return a difference by seed; see `metrics`.

        Raises:
            UserError: the arm that is to be retrofitted isn't, or that beside it is.
        """
        name, _, what = metric.partition(":")
        arm, plain = (low, high) if name in ("gain", "lead") else (high, low)
        made = self.arms[ROWS]
        if arm not in made or plain in made:
            raise UserError(
                f"metric '{metric}' of {high} and {low}: one of {', '.join(made)} beside an arm without tables"
            )
        if name in ("gain", "lead"):
            dense = self.arms[SCRATCH if name == "gain" else MAIN][plain]
            return losses.contrast(dense, self.arms[VARIANTS[what]][arm], "prose")
        if name == "behind":
            return losses.contrast(made[arm], self.arms[VARIANTS[what]][arm], "prose")
        pair = paired(self.arms[VARIANTS[what]][arm], self.arms[SCRATCH][plain])
        first, second = (own.steps["loss"] for own in pair)
        part = slice(0, 1) if name == "at-once" else slice(first.shape[1] // TENTH, 2 * first.shape[1] // TENTH)
        return Contrast((first - second)[:, part].mean(axis=1))

    def robustness(self, high: str, low: str, metric: str) -> dict[str, Contrast]:
        """None: the stages are at one setting."""
        return {}

    def value(self, metric: str) -> float:
        """No metric is exact."""
        raise UserError(f"metric '{metric}' is a contrast of arms, not a number by itself")

    def untestable(self, metric: str, precondition: str, smallest_effect: float = np.nan) -> str | None:
        """See `preconditions`."""
        if precondition != NO_GAIN:
            return None
        gain = losses.contrast(self.arms[SCRATCH]["dense"], self.arms[MEAN][CONSTANT], "prose").mean
        if gain <= smallest_effect:
            return None
        return f"{CONSTANT}, whose only row never learns, ends {gain:.3f} nats below dense in two stages, more than the {smallest_effect:g} that count"

    def runs(self) -> dict[str, ArmLosses]:
        """Return what lies behind the results, by address."""
        return {str(Address(variant, arm)): own for variant, arms in self.arms.items() for arm, own in arms.items()}
