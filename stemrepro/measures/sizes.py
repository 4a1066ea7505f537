"""An arm's lead over another along a ladder of widths, at a fixed vocabulary and at one that grows with the width."""

from math import factorial
from typing import Literal, NamedTuple

import numpy as np

from stemrepro.common.errors import UserError, unknown
from stemrepro.config.address import MAIN
from stemrepro.measures import losses
from stemrepro.measures.comparison import lead, loss
from stemrepro.measures.fits import Fitted
from stemrepro.measures.losses import arm_losses
from stemrepro.measures.metric import VariantName
from stemrepro.measures.scores import Scores
from stemrepro.measures.size_law import SizeLaw, fit
from stemrepro.verdicts.effect import Effect, Unmeasured, unpaired

__all__ = ["fall", "forecast", "lead", "loss", "lost", "table_rate"]

Line = Literal["fixed", "grown"]
"""What becomes of the vocabulary: it stays, or grows with the width. The scale itself is on both lines."""
LINES: tuple[Line, ...] = ("fixed", "grown")


class Size(NamedTuple):
    """A model of the ladder: its variant, width and vocabulary, both over the scale's."""

    variant: str
    width: float
    vocab: float

    @property
    def log2(self) -> tuple[float, float]:
        """log2 of width and vocabulary, as the law over sizes takes them."""
        return float(np.log2(self.width)), float(np.log2(self.vocab))


def sizes(scores: Scores, line: Line, least: float = 0.0) -> list[Size]:
    """Return the models of a line from a width (over the scale's) on, in order, at the arms' own tables' rates."""
    named = {name: scores.catalog.variant(name) for name in (MAIN, *scores.recipe.variants)}
    models = [
        Size(name, variant.width, variant.vocab)
        for name, variant in named.items()
        if variant.table_rate == 1
        and variant.vocab == (1 if line == "fixed" else variant.width)
        and variant.width >= least
    ]
    return sorted(models, key=lambda size: size.width)


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

    Args:
        wide: over the widths from the scale's on alone.

    Raises:
        Unmeasured: the fall is shown to change along the line, or a lead isn't above 0.
    """
    if len(sizes(scores, line, 1.0 if wide else 0.0)) > 3:
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
    models = sizes(scores, line, 1.0 if wide else 0.0)
    falls = [-factorial(order) * np.log2(values) for values in _positive(scores, pair, models)]
    return losses.slope_of_runs([size.width for size in models], falls, order)


def forecast(scores: Scores, high: str, low: str, at: VariantName) -> Effect:
    """Log2 of the lead at a size less that which the law of all narrower ones foretells.

    These are two samples, the second each seed's own forecast.
    """
    size = _size(scores, at)
    told = law(scores, high, low, size.width).log_leads(*size.log2)
    return unpaired(np.log2(_positive(scores, (high, low), [size])[0]), told)


def foretold(scores: Scores, high: str, low: str, at: str) -> Fitted:
    """Return the lead in % at a size by the law of all narrower ones, with the interval of the law alone."""
    size = _size(scores, at)
    return law(scores, high, low, size.width).lead(*size.log2)


def law(scores: Scores, high: str, low: str, below: float) -> SizeLaw:
    """Return the law of two arms' lead over both lines, of widths below one (over the scale's)."""
    models = dict.fromkeys(size for line in LINES for size in sizes(scores, line) if size.width < below)
    x, z = np.transpose([size.log2 for size in models])
    return fit(x, z, _positive(scores, (high, low), list(models)))


def _size(scores: Scores, at: str) -> Size:
    models = {size.variant: size for line in LINES for size in sizes(scores, line)}
    if at not in models:
        raise unknown("size", at, models, scores.name)
    return models[at]


def _positive(scores: Scores, pair: tuple[str, str], models: list[Size]) -> list[np.ndarray]:
    leads = [lead(scores, *pair, size.variant).differences for size in models]
    for size, values in zip(models, leads, strict=True):
        if not (values > 0).all():
            where = "the scale" if size.variant == MAIN else size.variant
            raise Unmeasured(f"{pair[1]} has no lead over {pair[0]} at {where} in every seed")
    return leads
