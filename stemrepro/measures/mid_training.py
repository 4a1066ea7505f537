"""Mid-training on a blend of texts: metrics of recipes/mid_training.yaml."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np

from stemrepro.common.errors import UserError
from stemrepro.config.catalog import Catalog
from stemrepro.config.recipe import Recipe
from stemrepro.measures import losses
from stemrepro.measures.losses import arm_losses
from stemrepro.measures.reading import arm_table
from stemrepro.measures.reasoning import prompts_fit, score
from stemrepro.measures.scores import Scores
from stemrepro.verdicts.effect import Effect, Unmeasured

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["anew", "despite", "loss", "prompts_fit", "score", "sightings", "unread"]
KEPT, ANEW = "mid", "mid-anew"
"""The variants of the stage: tables carried over, and drawn again as the official code does."""


def stages(catalog: Catalog, recipe: Recipe) -> Iterable[str]:
    """Return the variants at which a recipe has tables carried over and drawn anew."""
    return (name for name in recipe.variants if f"{name}-anew" in recipe.variants)


TEXTS = ("prose", "mathematics", "code")
"""Texts of which losses after the stage are taken."""
Text = Annotated[str, TEXTS]
Stage = Annotated[str, stages]


def loss(scores: Scores, high: str, low: str, text: Text) -> Effect:
    """Loss after the stage on held-out text of a kind, nats/token."""
    return losses.contrast(arm_losses(scores, high, KEPT), arm_losses(scores, low, KEPT), text)


def anew(scores: Scores, high: str, low: str, text: Text, at: Stage = KEPT) -> Effect:
    """What a lead over an arm without tables, which cancels, loses when tables are set back to their first draw.

    It is nats per token after the stage before which they are.
    """
    _check_drawn(scores, "anew", high, low)
    return losses.contrast(arm_losses(scores, high, f"{at}-anew"), arm_losses(scores, high, at), text)


def unread(scores: Scores, high: str, low: str, text: Literal["mathematics", "code"]) -> Effect:
    """Lead before the stage on text of a kind that no run has read, in % of the first arm's bits per byte."""
    first, second = (_bits(arm_table(scores, "elsewhere", arm), text) for arm in (high, low))
    return Effect(100 * (1 - second / first))


def _bits(rows: pd.DataFrame, source: str) -> np.ndarray:
    of_source = rows[rows["source"] == source]
    if of_source.empty:
        raise Unmeasured(f"no held-out text of {source} was scored")
    return (of_source["nats"] / np.log(2) / of_source["bytes"]).to_numpy()


def sightings(scores: Scores, at: Stage) -> float:
    """How often a row is read in a stage, in the mean over the vocabulary."""
    return scores.catalog.variant(at).at(scores.scale).training.tokens / scores.scale.model.vocab


def despite(scores: Scores, high: str, low: str, text: Text) -> Effect:
    """Loss of an arm without tables less that of one whose tables were drawn anew, nats/token."""
    _check_drawn(scores, "despite", low, high)
    return losses.contrast(arm_losses(scores, high, KEPT), arm_losses(scores, low, ANEW), text)


def _check_drawn(scores: Scores, name: str, drawn: str, plain: str) -> None:
    arms = scores.recipe.arms_at(ANEW)
    if drawn not in arms or plain in arms:
        whose = f"one of {', '.join(arms)} (whose tables are drawn anew) next to an arm that has none"
        raise UserError(f"metric '{name}' of {drawn} and {plain}: {whose}")
