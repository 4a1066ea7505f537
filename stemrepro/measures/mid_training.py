"""Mid-training on a blend of texts: metrics of recipes/mid_training.yaml."""

from functools import cached_property
from typing import ClassVar

from stemrepro.common.errors import UserError
from stemrepro.measures import losses
from stemrepro.measures.losses import ArmLosses, by_address, losses_at_variants
from stemrepro.measures.metric import LOSS_UNIT, Field, metric
from stemrepro.measures.reasoning import Scored
from stemrepro.verdicts.contrast import Contrast

KEPT, ANEW = "mid", "mid-anew"
"""The variants of the stage: tables carried over, and drawn again as the official code does."""
FURTHER = "further-"
"""Stages on the same text begin with it; see recipes/variants.yaml."""
TEXTS = ("prose", "mathematics", "code")
"""Texts of which losses after the stage are taken."""


class MidTraining(Scored):
    """Losses after a stage of training on other texts, what tables drawn anew cost there, and lm-eval's scores."""

    fields: ClassVar[dict[str, Field]] = {
        "text": TEXTS,
        "stage": lambda catalog, recipe: tuple(name for name in recipe.variants if f"{name}-anew" in recipe.variants),
    }

    @cached_property
    def arms(self) -> dict[str, dict[str, ArmLosses]]:
        return losses_at_variants(self.inputs)

    @metric("loss:{text}", f"loss after the stage on held-out text of a kind, {LOSS_UNIT}")
    def loss(self, high: str, low: str, text: str) -> Contrast:
        return losses.contrast(self.arms[KEPT][high], self.arms[KEPT][low], text)

    @metric(
        "anew:{text}[@{stage}]",
        "what an arm's lead over one without tables, which cancels, loses when its tables are set back to their first "
        f"draw before mid-training, or before the stage after @, {LOSS_UNIT}",
    )
    def lost_anew(self, high: str, low: str, text: str, stage: str = KEPT) -> Contrast:
        self.check_drawn("anew", high, low)
        return losses.contrast(self.arms[f"{stage}-anew"][high], self.arms[stage][high], text)

    def sightings(self, stage: str) -> float:
        """Return how often a row is read in a stage, in the mean over the vocabulary."""
        scale = self.inputs.scale
        return self.inputs.catalog.variant(stage).at(scale).training.tokens / scale.model.vocab

    @metric(
        "despite:{text}", f"loss of an arm without tables less that of one whose tables were drawn anew, {LOSS_UNIT}"
    )
    def lead_despite(self, high: str, low: str, text: str) -> Contrast:
        self.check_drawn("despite", low, high)
        return losses.contrast(self.arms[KEPT][high], self.arms[ANEW][low], text)

    def check_drawn(self, name: str, drawn: str, plain: str) -> None:
        """Raise UserError unless the first arm's tables are drawn anew and the second arm has none."""
        anew = self.arms[ANEW]
        if drawn not in anew or plain in anew:
            whose = f"one of {', '.join(anew)} (whose tables are drawn anew) next to an arm that has none"
            raise UserError(f"metric '{name}' of {drawn} and {plain}: {whose}")

    def runs(self) -> dict[str, ArmLosses]:
        return by_address(self.arms)
