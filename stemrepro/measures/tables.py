"""The design of tables: losses, and bits per byte over vocabularies. Metrics of recipes/table_design.yaml."""

import numpy as np

from stemrepro.measures import losses
from stemrepro.measures.comparison import loss, no_gain_without_information, variant_losses
from stemrepro.measures.losses import ArmLosses, arm_losses, paired
from stemrepro.measures.scores import Scores
from stemrepro.verdicts.effect import Effect

__all__ = ["loss", "no_gain_without_information", "vocabulary"]


def vocabularies(scores: Scores, arm: str) -> dict[int, ArmLosses]:
    """Return an arm's runs by size of the vocabulary, the scale's among them, all of as much text."""
    runs = {scores.scale.model.vocab: arm_losses(scores, arm)}
    for name, losses_there in variant_losses(scores, arm).items():
        variant = scores.catalog.variants[name]
        if variant.vocab != 1:
            runs[variant.at(scores.scale).model.vocab] = losses_there
    return dict(sorted(runs.items()))


def vocabulary(scores: Scores, high: str, low: str) -> Effect:
    """Slope of the difference in bits per byte per doubling of the vocabulary, by seed."""
    first, second = vocabularies(scores, high), vocabularies(scores, low)
    pairs = [paired(first[size], second[size]) for size in first]
    gaps = [(one.bits_per_byte - other.bits_per_byte).to_numpy() for one, other in pairs]
    return Effect(losses.slope(np.array(list(first)), np.stack(gaps)))
