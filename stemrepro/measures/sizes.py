"""An arm's lead over another along a ladder of widths, at a fixed vocabulary and at one that grows with the width.

The lead is relative to dense's loss. A law says how far it can be trusted beyond the models that were trained:
log2 lead = a + b x + c z + q x^2, with x = log2 of the width and z = log2 of the vocabulary, each over the scale's. A
straight line in x is not known to go on. So q has a prior around 0, whose spread says how much a slope may change a
doubling; it widens the interval where no model was trained.
"""

from collections.abc import Sequence
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
from stemrepro.verdicts.effect import Effect, Unmeasured, unpaired

__all__ = ["fall", "forecast", "lead", "loss", "lost", "table_rate"]

Line = Literal["fixed", "grown"]
"""What becomes of the vocabulary: it stays, or grows with the width. The scale itself is on both lines."""
LINES: tuple[Line, ...] = ("fixed", "grown")
CURVATURE = 0.05
"""Prior standard deviation of q, in doublings of the lead per squared doubling of the width."""


class SizeLaw(NamedTuple):
    """A fitted law.

    Attributes:
        coefficients: a, b, c and q.
        covariance: theirs, [4, 4].
        variance: of one seed's log2 lead, from which that of the coefficients follows.
        df: degrees of freedom of the variance.
        by_seed: a, b, c and q of each seed alone, by the same weights [4, seeds]; over the seeds that all sizes have.
    """

    coefficients: np.ndarray
    covariance: np.ndarray
    variance: float
    df: float
    by_seed: np.ndarray

    def log_leads(self, x: float, z: float) -> np.ndarray:
        """Return log2 of the lead at a size, by the law of each seed alone [seeds]."""
        return np.array([1, x, z, x * x]) @ self.by_seed

    def lead(self, x: float, z: float) -> Fitted:
        """Return the lead at a size with its 95% interval."""
        from scipy.special import stdtrit

        at = np.array([1, x, z, x * x])
        middle, error = float(at @ self.coefficients), float(np.sqrt(at @ self.covariance @ at))
        half = float(stdtrit(self.df, 0.975)) * error
        return Fitted(*(2**value for value in (middle, middle - half, middle + half)))


def fit(x: Sequence[float], z: Sequence[float], leads: Sequence[np.ndarray]) -> SizeLaw:
    """Fit the law to leads [seeds] at log2 widths and vocabularies over the scale's, one of each a model.

    A seed's error on the logarithmic scale is pooled over sizes. Where points lie farther from the law than seeds
    explain, it is raised until they don't. UserError for too few sizes, or a lead that isn't above 0.
    """
    if len(x) < 4:
        raise UserError(f"a law over sizes needs four of them; there are {len(x)}")
    if any((of_size <= 0).any() for of_size in leads):
        raise UserError("a law over sizes needs leads above 0")
    logs = [np.log2(of_size) for of_size in leads]
    counts, means = (np.array([statistic(values) for values in logs]) for statistic in (len, np.mean))
    df = float((counts - 1).sum())
    variance = sum(((values - values.mean()) ** 2).sum() for values in logs) / df
    xs = np.asarray(x, float)
    design = np.stack([np.ones_like(xs), xs, np.asarray(z, float), xs * xs], axis=1)
    if np.linalg.matrix_rank(design[:, :3]) < 3:
        raise UserError("a law over sizes needs two vocabularies at one width")

    def fitted(variance: float) -> tuple[np.ndarray, np.ndarray]:
        weighted = design.T * counts / variance
        covariance = np.linalg.inv(weighted @ design + np.diag([0, 0, 0, CURVATURE**-2]))
        return covariance @ weighted, covariance

    residuals = means - design @ fitted(variance)[0] @ means
    variance *= max(1.0, float((counts * residuals**2).sum() / (len(xs) - 3) / variance))
    weights, covariance = fitted(variance)
    by_seed = weights @ np.stack([values[: counts.min()] for values in logs])
    return SizeLaw(weights @ means, covariance, float(variance), df, by_seed)


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
    models = []
    for name in (MAIN, *scores.recipe.variants):
        variant = scores.catalog.variant(name)
        on_line = variant.vocab == (1 if line == "fixed" else variant.width)
        if on_line and variant.table_rate == 1 and variant.width >= least:
            models.append(Size(name, variant.width, variant.vocab))
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

    `wide`: over the widths from the scale's on alone. Unmeasured where the fall is shown to change along the line, or a
    lead isn't above 0.
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
    """Log2 of the lead at a size less that which the law of all narrower ones predicts.

    These are two samples, the second each seed's own forecast.
    """
    size = _size(scores, at)
    told = law(scores, high, low, size.width).log_leads(*size.log2)
    return unpaired(np.log2(_positive(scores, (high, low), [size])[0]), told)


def predicted(scores: Scores, high: str, low: str, at: str) -> Fitted:
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
