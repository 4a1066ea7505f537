"""What of STEM's gain is left over half of it: metrics of recipes/rivals.yaml."""

from stemrepro.measures import losses
from stemrepro.measures.comparison import loss, no_gain_without_information
from stemrepro.measures.losses import arm_losses
from stemrepro.measures.scores import Scores
from stemrepro.verdicts.effect import Effect

__all__ = ["half_of_gain", "loss", "no_gain_without_information"]


def half_of_gain(scores: Scores, high: str, low: str) -> Effect:
    """(high - low) less half of (dense - low), prose loss."""
    part, gain = (losses.contrast(arm_losses(scores, arm), arm_losses(scores, low), "prose") for arm in (high, "dense"))
    return Effect(part.differences - gain.differences / 2)
