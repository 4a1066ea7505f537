"""Mid-training on a blend of texts: metrics of recipes/mid_training.yaml."""

from functools import cached_property
from typing import ClassVar

from stemrepro.common.errors import UserError
from stemrepro.config.address import MAIN, Address
from stemrepro.measures import losses
from stemrepro.measures.base import LOSS_UNIT, Precondition
from stemrepro.measures.losses import ArmLosses
from stemrepro.measures.reasoning import SCORE, SCORE_WORDS, Reasoning
from stemrepro.verdicts.contrast import Contrast

KEPT, ANEW = "mid", "mid-anew"
"""The variants of the stage: tables carried over, and drawn again as the official code does."""
TEXTS = ("prose", "mathematics", "code")
"""What losses behind the stage are taken of."""
OF_TEXT = f"({'|'.join(TEXTS)})"


class MidTraining(Reasoning):
    """Losses behind a stage of training on other texts, what tables drawn anew cost there, and lm-eval's scores."""

    metrics: ClassVar[dict[str, str]] = {
        SCORE: SCORE_WORDS,
        f"loss:{OF_TEXT}": f"loss behind the stage on held-out text of a kind, {LOSS_UNIT}",
        f"anew:{OF_TEXT}": "what an arm's lead over one without tables, which cancels, loses when its tables are set back to their first draw before the stage, "
        f"{LOSS_UNIT}",
        f"despite:{OF_TEXT}": "loss of an arm without tables less that of one whose tables were drawn anew, "
        f"{LOSS_UNIT}",
    }
    preconditions: ClassVar[dict[str, Precondition]] = Reasoning.preconditions

    @cached_property
    def arms(self) -> dict[str, dict[str, ArmLosses]]:
        """Losses by variant and arm: before the stage, and behind it."""
        recipe, folder = self.inputs.recipe, self.inputs.folder / "losses"
        found = {MAIN: {arm: ArmLosses(folder / Address(MAIN, arm).path, recipe.seeds) for arm in recipe.arms}}
        for variant, request in recipe.variants.items():
            places = {arm: folder / Address(variant, arm).path for arm in recipe.arms_at(variant)}
            found[variant] = {arm: ArmLosses(place, request.seeds) for arm, place in places.items()}
        return found

    def contrast(self, high: str, low: str, metric: str) -> Contrast:
        """Return a difference of two arms by seed."""
        name, _, text = metric.partition(":")
        if name == "score":
            return super().contrast(high, low, metric)
        kept, anew = self.arms[KEPT], self.arms[ANEW]
        drawn, plain = {"anew": (high, low), "despite": (low, high)}.get(name, (None, None))
        if drawn and (drawn not in anew or plain in anew):
            there = ", ".join(anew)
            raise UserError(
                f"metric '{metric}' of {high} and {low}: one of {there} (whose tables are drawn anew) beside an arm that has none"
            )
        if name == "anew":
            return losses.contrast(anew[high], kept[high], text)
        return losses.contrast(kept[high], (anew if name == "despite" else kept)[low], text)

    def runs(self) -> dict[str, ArmLosses]:
        """Return what lies behind the results, by address."""
        return {str(Address(variant, arm)): own for variant, arms in self.arms.items() for arm, own in arms.items()}
