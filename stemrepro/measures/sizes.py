"""An arm's lead over another along a ladder of widths, at a fixed vocabulary and at one that grows with the width.

The lead is relative to dense's loss. No law of it is fitted beyond the widths: no straight line goes through them.
"""

from math import factorial
from typing import Literal, NamedTuple

import numpy as np

from stemrepro.common.errors import UserError
from stemrepro.config.address import MAIN
from stemrepro.measures import losses
from stemrepro.measures.comparison import lead, loss
from stemrepro.measures.losses import arm_losses
from stemrepro.measures.metric import VariantName
from stemrepro.measures.scores import Scores
from stemrepro.verdicts.effect import Effect, Unmeasured, unpaired

__all__ = ["fall", "lead", "loss", "lost", "table_rate"]

Line = Literal["fixed", "grown"]
"""What becomes of the vocabulary: it stays, or grows with the width. The scale itself is on both lines."""
LINES: tuple[Line, ...] = ("fixed", "grown")


class Size(NamedTuple):
    """A model of the ladder: its variant, width and vocabulary, both over the scale's."""

    variant: str
    width: float
    vocab: float


def sizes(scores: Scores, line: Line, least: float = 0.0, arms: tuple[str, ...] = ()) -> list[Size]:
    """Return the models of a line from a width (over the scale's) on, in order, at the arms' own tables' rates.

    With `arms`, those that all of them were trained at.
    """
    models = []
    for name in (MAIN, *scores.recipe.variants):
        if name != MAIN and not set(arms) <= set(scores.recipe.arms_at(name)):
            continue
        variant = scores.catalog.variant(name)
        on_line = variant.vocab == (1 if line == "fixed" else variant.width)
        if on_line and variant.layers == variant.table_rate == 1 and variant.width >= least:
            models.append(Size(name, variant.width, variant.vocab))
    return sorted(models, key=lambda size: size.width)


def along(scores: Scores, what: Literal["vocab", "layers"]) -> dict[int, str]:
    """Return, in order, the scale itself and the variants that differ from it by vocabulary or layers alone."""
    models = {}
    for name in (MAIN, *scores.recipe.variants):
        variant = scores.catalog.variant(name)
        changed = variant.model_fields_set
        if name == MAIN or what in changed <= {what, "tokens", "warmup_tokens"}:
            models[round(getattr(variant, what) * getattr(scores.scale.model, what))] = name
    return dict(sorted(models.items()))


def lost(scores: Scores, high: str, low: str, at: VariantName) -> Effect:
    """Lead at the scale itself less that at another size, in points of % of the first arm's bits per byte."""
    return unpaired(*(lead(scores, high, low, place).differences for place in (MAIN, at)))


def table_rate(scores: Scores, high: str, low: str, at: VariantName) -> Effect:
    """Lead where tables learn at a constant rate, less that at the matrices' rate, in points."""
    variants, chosen = scores.catalog.variants, scores.catalog.variant(at)
    same = chosen.model_copy(update={"table_rate": 1.0})
    tied = next((name for name in scores.recipe.variants if variants[name] == same), None)
    if tied is None or chosen.table_rate == 1:
        raise UserError(f"'{at}' differs from no variant of {scores.name} by its table_rate alone")
    fast, slow = (losses.lead(arm_losses(scores, high, tied), arm_losses(scores, low, place)) for place in (at, tied))
    return Effect(fast.differences - slow.differences)


def fall(scores: Scores, high: str, low: str, line: Line, wide: bool = False) -> Effect:
    """By how many doublings the lead falls per doubling of the width along a line.

    `wide`: over the widths from the scale's on alone. Unmeasured where the fall is shown to change along the line, or a
    lead isn't above 0.
    """
    if len(sizes(scores, line, 1.0 if wide else 0.0, (high, low))) > 3:
        bend = derivative(scores, (high, low), line, 2, wide)
        low_end, high_end = bend.interval(0.05)
        if low_end > 0 or high_end < 0:
            by = f"{bend.mean:+.2f} ({low_end:.2f} to {high_end:.2f}) with every doubling of the width"
            raise Unmeasured(f"no straight line fits: the fall of {low}'s lead changes by {by}")
    return derivative(scores, (high, low), line, 1, wide)


def derivative(scores: Scores, pair: tuple[str, str], line: Line, order: int, wide: bool = False) -> Effect:
    """Return a derivative of -log2 lead over log2 width by a polynomial of its order: 1 the fall, 2 how that grows.

    Unmeasured where a lead isn't above 0.
    """
    models = sizes(scores, line, 1.0 if wide else 0.0, pair)
    falls = [-factorial(order) * np.log2(values) for values in _positive(scores, pair, models)]
    return losses.slope_of_runs([size.width for size in models], falls, order)


def _positive(scores: Scores, pair: tuple[str, str], models: list[Size]) -> list[np.ndarray]:
    leads = [lead(scores, *pair, size.variant).differences for size in models]
    for size, values in zip(models, leads, strict=True):
        if not (values > 0).all():
            where = "the scale" if size.variant == MAIN else size.variant
            raise Unmeasured(f"{pair[1]} has no lead over {pair[0]} at {where} in every seed")
    return leads
