"""Tables in place of the up-projections of a trained dense model: metrics of recipes/retrofit.yaml."""

from typing import Literal

import numpy as np

from stemrepro.common.errors import UserError
from stemrepro.config.address import MAIN
from stemrepro.measures import losses
from stemrepro.measures.base import condition
from stemrepro.measures.losses import arm_losses, paired
from stemrepro.measures.scores import Scores
from stemrepro.verdicts.effect import Effect
from stemrepro.verdicts.rule import CONFOUNDED

SCRATCH, ROWS, MEAN = "second-half", "second-half-token-means", "second-half-mean-row"
INTERPOLATED = "second-half-interpolated"
"""The variants after all tokens: with tables from the start, retrofitted in between in two ways, and the control."""
VARIANTS = {"one-schedule": MAIN, "scratch": SCRATCH, "token-means": ROWS, "mean-row": MEAN} | {
    "interpolated": INTERPOLATED
}
"""Variants by the words of metrics."""
Way = Literal["scratch", "token-means", "mean-row", "interpolated"]
Rows = Literal["token-means", "mean-row"]
CONSTANT = "stem-frozen"
TENTH = 10
"""The second of so many parts of the second stage is "early"."""


def gain(scores: Scores, high: str, low: str, way: Way) -> Effect:
    """Prose loss of dense less that of an arm with tables, both trained in two stages, nats/token.

    Args:
        way: it had tables from the start ("scratch"), or was retrofitted after half the tokens: with rows of means,
            with the mean row for all, or by the authors' interpolation.
    """
    return _gain("gain", scores, SCRATCH, high, low, way)


def lead(scores: Scores, high: str, low: str, way: Way) -> Effect:
    """Prose loss of dense trained in one stage less that of an arm with tables trained in two, nats/token.

    Args:
        way: see `gain`.
    """
    return _gain("lead", scores, MAIN, high, low, way)


def _gain(name: str, scores: Scores, variant: str, plain: str, arm: str, way: str) -> Effect:
    _check_made(scores, name, arm, plain, VARIANTS[way])
    return losses.contrast(arm_losses(scores, plain, variant), arm_losses(scores, arm, VARIANTS[way]), "prose")


def early(scores: Scores, high: str, low: str, rows: Rows) -> Effect:
    """Training loss in the second tenth of the second stage: a retrofitted arm's less dense's on the same batches."""
    steps = _second_stage("early", scores, high, low, rows)
    start, stop = steps.shape[1] // TENTH, 2 * steps.shape[1] // TENTH
    return Effect(steps[:, start : max(stop, start + 1)].mean(axis=1))  # a smoke test has fewer steps than tenths


def at_once(scores: Scores, high: str, low: str, rows: Rows) -> Effect:
    """Training loss at the second stage's first batch: an arm's that was just retrofitted less dense's, nats/token."""
    return Effect(_second_stage("at_once", scores, high, low, rows)[:, 0])


def _second_stage(name: str, scores: Scores, arm: str, plain: str, rows: str) -> np.ndarray:
    """Return training losses of a retrofitted arm less those of one without tables [seeds, steps]."""
    _check_made(scores, name, arm, plain, VARIANTS[rows])
    first, second = paired(arm_losses(scores, arm, VARIANTS[rows]), arm_losses(scores, plain, SCRATCH))
    return first.steps["loss"] - second.steps["loss"]


def behind(scores: Scores, high: str, low: str, other: Literal["scratch", "one-schedule", "mean-row"]) -> Effect:
    """Prose loss of an arm retrofitted with rows of means less that which it has otherwise; nats/token.

    The second arm, which has no tables, cancels.

    Args:
        other: with tables from the start, in two stages or in one; or retrofitted with the mean row for all.
    """
    _check_made(scores, "behind", high, low, ROWS)
    return losses.contrast(arm_losses(scores, high, ROWS), arm_losses(scores, high, VARIANTS[other]), "prose")


def interpolation(scores: Scores, high: str, low: str) -> Effect:
    """Prose loss of an arm retrofitted with rows of means less that of one by the authors' interpolation."""
    return losses.contrast(arm_losses(scores, high, ROWS), arm_losses(scores, low, INTERPOLATED), "prose")


def _check_made(scores: Scores, name: str, arm: str, plain: str, variant: str) -> None:
    arms = scores.recipe.arms_at(INTERPOLATED if variant == INTERPOLATED else ROWS)
    if arm not in arms or plain in arms:
        raise UserError(f"metric '{name}' of {arm} and {plain}: one of {', '.join(arms)} and one without tables")


@condition(CONFOUNDED, ("dense", CONSTANT))
def no_gain_without_information(scores: Scores, smallest_effect: float) -> str | None:
    """Stem-frozen, dense with one row for all that never learns, gains no more than counts, both in two stages."""
    dense, constant = arm_losses(scores, "dense", SCRATCH), arm_losses(scores, CONSTANT, MEAN)
    low, high = losses.contrast(dense, constant, "prose").interval(0.05)
    if not low > smallest_effect:
        return None
    below = f"ends {low:.3f} to {high:.3f} nats (95%) below dense in two stages"
    return f"{CONSTANT}, whose only row never learns, {below}, more than the {smallest_effect:g} that count"
