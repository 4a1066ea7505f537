"""What rows in the place of up-projections cost a published model: metrics of recipes/conversion.yaml.

A published model has no seeds. Intervals are over the held-out sequences: each is left out once (jackknife).
"""

from typing import Literal

import numpy as np

from stemrepro.measures.scores import Scores
from stemrepro.measures.study import rows, table
from stemrepro.verdicts.effect import Effect, jackknife

STUDY, OVER = "conversion", "held-out sequences of text"
CHOSEN = ("linear", 2.0)
"""The prior of rows that all studies use, and how many places it counts for."""
Layers = Literal["third", "half", "full", "early", "late"]


def steps(scores: Scores) -> list[int]:
    """Return the steps of the training after which losses were measured."""
    return sorted(table(scores, STUDY, "trained")["step"].unique().tolist())


def _losses(scores: Scores, name: str, **where: object) -> np.ndarray:  # nats and tokens [2, sequences]
    return rows(scores, STUDY, name, **where).sort_values("sequence")[["nats", "tokens"]].to_numpy(float).T


def _over(first: np.ndarray, second: np.ndarray) -> Effect:
    """Return the difference of two losses of the same sequences, in nats per token."""
    sums = np.stack([first[0] - second[0], first[1]])
    return jackknife(lambda kept: float(kept[0].sum() / kept[1].sum()), sums, "sequences")


def _at_once(scores: Scores, placement: str, kind: str) -> np.ndarray:
    return _losses(scores, "at-once", placement=placement, kind=kind)


def _trained(scores: Scores, arm: str, step: int) -> np.ndarray:
    return _losses(scores, "trained", arm=arm, step=step)


def cost(scores: Scores, placement: str, kind: str = "rows") -> Effect:
    """Return what the loss rises by at once with rows, or with a control, in nats per token."""
    return _over(_at_once(scores, placement, kind), _at_once(scores, "none", "dense"))


def of_prior(scores: Scores, placement: str, prior: str, few: float) -> Effect:
    """Return what the loss of the text for tuning is with a prior of rows, above that with the chosen one."""
    asked = ((prior, few), CHOSEN)
    return _over(*(_losses(scores, "priors", placement=placement, prior=name, few=few) for name, few in asked))


def gap(scores: Scores, arm: str, step: int) -> Effect:
    """Return what an arm's loss is above that of dense trained on the same tokens, in nats per token."""
    return _over(_trained(scores, arm, step), _trained(scores, "dense", step))


def gain(scores: Scores, step: int) -> Effect:
    """Return what dense's training takes off its loss, in nats per token."""
    return _over(_trained(scores, "dense", 0), _trained(scores, "dense", step))


def share_given_back(scores: Scores, arm: str, less: float = 0.0) -> Effect:
    """Return the share of an arm's cost at once that the training gives back, against dense's, in percent."""
    ends = (0, steps(scores)[-1])
    sums = np.stack([_trained(scores, arm, step)[0] - _trained(scores, "dense", step)[0] for step in ends])
    return jackknife(lambda kept: 100 * float(1 - kept[1].sum() / kept[0].sum()) - less, sums, "sequences")


def loss(scores: Scores, high: str, low: str, layers: Layers) -> Effect:
    """Loss at once, in these layers."""
    return _over(_at_once(scores, layers, high), _at_once(scores, layers, low))


def layers(scores: Scores, high: str, low: str, first: Layers, over: Layers) -> Effect:
    """Loss at once of one set of layers, less that of another."""
    return _over(_at_once(scores, first, high), _at_once(scores, over, low))


def trained(scores: Scores, high: str, low: str) -> Effect:
    """Loss after the training."""
    last = steps(scores)[-1]
    return _over(_trained(scores, high, last), _trained(scores, low, last))


def given_back(scores: Scores, high: str, low: str) -> Effect:
    """Share that the training gives back of what the first arm costs, in percent, less half."""
    return share_given_back(scores, high, 50.0)
