"""What two arms differ by: one difference per seed, its errors, its interval and its tests.

Shares in percent are tested on logits (`of_shares`). Their intervals are mapped back to points, so that none leaves the
scale: at the mean logit c of both arms, a difference of x logits is sinh(x/2) / (cosh(x/2) + cosh(c)) of the whole.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np


class Unmeasured(Exception):
    """A contrast that the runs could not give, because of their results; the message says why."""


@dataclass(frozen=True)
class Contrast:
    """Differences of two arms.

    Attributes:
        differences: one number per seed, in the metric's unit.
        item_se: standard error between items (documents, questions) of the mean, in the metric's unit; 0 for none.
        item_df: its degrees of freedom (items - 1).
        logits: of shares the differences of logits, one per seed; None for all else.
        centre: of shares the mean logit of both arms.
        spread: variance of one seed's difference, and its degrees of freedom, where they don't follow from the
            differences: of shares, of arms that are not paired, and of moderated variances.
        paired: whether the arms' values belong together seed by seed.
    """

    differences: np.ndarray
    item_se: float = 0.0
    item_df: float = np.inf
    logits: np.ndarray | None = None
    centre: float = 0.0
    spread: tuple[float, float] | None = None
    paired: bool = True

    @property
    def seeds(self) -> int:
        """Number of seeds."""
        return len(self.differences)

    @property
    def tested(self) -> np.ndarray:
        """The differences on the scale on which they are tested [seeds]."""
        return self.differences if self.logits is None else self.logits

    def shown(self, effect: float) -> float:
        """Return an effect on the tested scale in the metric's unit."""
        if self.logits is None:
            return float(effect)
        half = np.clip(effect / 2, -300, 300)
        return float(100 * np.sinh(half) / (np.cosh(half) + np.cosh(self.centre)))

    def hidden(self, value: float) -> float:
        """Return an effect in the metric's unit on the tested scale; the inverse of `shown`."""
        if self.logits is None:
            return value
        share = np.clip(value / 100, -1 + 1e-12, 1 - 1e-12)
        return float(2 * (np.arctanh(share) + np.arcsinh(share * np.cosh(self.centre) / np.sqrt(1 - share**2))))

    @property
    def slope(self) -> float:
        """By how much the metric changes with the tested scale, at the mean: turns an error into the metric's unit."""
        if self.logits is None:
            return 1.0
        half = float(np.mean(self.logits)) / 2
        ends = 1 / (1 + np.exp(-(self.centre + half))), 1 / (1 + np.exp(-(self.centre - half)))
        return float(100 * np.mean([end * (1 - end) for end in ends]))

    @property
    def mean(self) -> float:
        """Mean over seeds; of shares the difference of both arms' mean logits, in points."""
        return self.shown(float(np.mean(self.tested)))

    @cached_property
    def seed_variance(self) -> tuple[float, float]:
        """Variance of one seed's difference on the tested scale, and its degrees of freedom (NaN for one seed)."""
        if self.spread is not None:
            return self.spread
        return (float(np.var(self.tested, ddof=1)) if self.seeds > 1 else float("nan")), float(max(1, self.seeds - 1))

    @property
    def seed_se(self) -> float:
        """Standard error between seeds, in the metric's unit (NaN for one seed)."""
        return float(np.sqrt(self.seed_variance[0] / self.seeds)) * self.slope

    @cached_property
    def error(self) -> tuple[float, float]:
        """Standard error over seeds and items on the tested scale, and its degrees of freedom after Satterthwaite."""
        (variance, df), item = self.seed_variance, (self.item_se / self.slope) ** 2
        seed = variance / self.seeds
        total = seed + item
        if not total > 0:
            return float(np.sqrt(total)), df
        return float(np.sqrt(total)), float(total**2 / (seed**2 / df + item**2 / self.item_df))

    def interval(self, alpha: float) -> tuple[float, float]:
        """Return the two-sided t interval at level 1 - alpha, in the metric's unit."""
        from scipy.special import stdtrit  # Student's quantile; half a second that reading recipes can do without

        (error, df), mean = self.error, float(np.mean(self.tested))
        half = float(stdtrit(df, 1 - alpha / 2) * error)
        return self.shown(mean - half), self.shown(mean + half)

    def p_above(self, value: float) -> float:
        """Return the two-sided p of a mean of `value`, where only a mean above it speaks against it (else 1)."""
        from scipy.special import stdtr

        (error, df), above = self.error, float(np.mean(self.tested)) - self.hidden(value)
        if np.isnan(error) or not above > 0:
            return 1.0
        return float(2 * stdtr(df, -above / error)) if error > 0 else 0.0

    def p_below(self, value: float) -> float:
        """Return the same where only a mean below `value` speaks against it."""
        return self.reversed().p_above(-value)

    def p(self, value: float) -> float:
        """Return the two-sided p of a mean of `value`."""
        return min(self.p_above(value), self.p_below(value))

    def p_inside(self, m: float) -> float:
        """Return the p of a mean of m or more in size; below 5% the 95% interval lies inside +-m."""
        return max(self.p_above(-m), self.p_below(m))

    def p_outside(self, m: float) -> float:
        """Return the p of a mean of at most m in size; below 5% the 95% interval lies outside +-m."""
        return min(self.p_above(m), self.p_below(-m))

    def reversed(self) -> "Contrast":
        """Return the same contrast with the opposite sign."""
        logits = None if self.logits is None else -self.logits
        return replace(self, differences=-np.asarray(self.differences), logits=logits)


def variance_of_both(first: np.ndarray, second: np.ndarray) -> tuple[float, float]:
    """Return the variance of a difference of two unpaired values, and its degrees of freedom after Welch.

    Args:
        first: values of one arm, as many as of the other [seeds].
        second: of the other [seeds].
    """
    if len(first) < 2:
        return float("nan"), 1.0
    one, other = float(np.var(first, ddof=1)), float(np.var(second, ddof=1))
    squares = one**2 + other**2
    df = (one + other) ** 2 * (len(first) - 1) / squares if squares > 0 else len(first) - 1
    return one + other, float(df)


def unpaired(first: np.ndarray, second: np.ndarray) -> Contrast:
    """Return first - second over the seeds that both have, whose errors are of two samples (Welch)."""
    count = min(len(first), len(second))
    one, other = first[:count], second[:count]
    return Contrast(one - other, spread=variance_of_both(one, other), paired=False)


def logits_of(percent: np.ndarray, items: np.ndarray | float) -> tuple[np.ndarray, np.ndarray]:
    """Return log((k + 1/2) / (n - k + 1/2)) of k right ones of n items by seed, and how far one item moves it.

    Half an item is added on both sides (Haldane), so that shares of 0 and 1 have a logit too. Shares beyond the scale
    count as its ends.

    Args:
        percent: k / n in percent [seeds].
        items: n, of each seed or of all.
    """
    right = np.clip(percent, 0, 100) / 100 * items
    left = items - right
    return np.log((right + 0.5) / (left + 0.5)), 1 / (right + 0.5) + 1 / (left + 0.5)


def of_shares(
    first: np.ndarray,
    second: np.ndarray,
    items: np.ndarray | float,
    item_se: float = 0.0,
    item_df: float = np.inf,
    *,
    paired: bool = True,
) -> Contrast:
    """Return the difference of two shares by seed, over the seeds that both have, to be tested on logits.

    A seed's difference is known to one item, so its variance is at least the square of what one item moves.

    Args:
        first: percent by seed [seeds].
        second: of the other arm [seeds].
        items: of which these are shares, of each seed or of all.
        item_se: standard error between items of the mean difference, in points.
        item_df: its degrees of freedom.
        paired: whether the arms' values belong together seed by seed; else their errors are of two samples (Welch).
    """
    count = min(len(first), len(second))
    one, other = np.asarray(first, float)[:count], np.asarray(second, float)[:count]
    items = items if np.ndim(items) == 0 else np.asarray(items, float)[:count]
    (high, step), (low, other_step) = logits_of(one, items), logits_of(other, items)
    centre = float(np.mean(high) + np.mean(low)) / 2
    plain = Contrast(one - other, logits=high - low, centre=centre)
    variance, df = variance_of_both(high, low) if not paired else plain.seed_variance
    least = float(np.mean(step**2 + other_step**2)) / 2
    spread = (max(variance, least), df) if count > 1 else None
    return replace(plain, item_se=item_se, item_df=item_df, spread=spread, paired=paired)


def share_interval(
    percent: np.ndarray, items: np.ndarray | float, item_se: float = 0.0, item_df: float = np.inf
) -> tuple[float, float]:
    """Return the 95% t interval of one arm's share over seeds, in percent, formed on logits (NaN for one seed).

    Args:
        percent: by seed [seeds].
        items: of which these are shares, of each seed or of all.
        item_se: standard error between items of the mean, in points.
        item_df: its degrees of freedom.
    """
    values, step = logits_of(np.asarray(percent, float), items)
    share = 1 / (1 + np.exp(-values.mean()))
    alone = Contrast(values, item_se / float(100 * share * (1 - share)), item_df)
    variance, df = alone.seed_variance
    low, high = replace(alone, spread=(max(variance, float(np.mean(step**2))), df)).interval(0.05)
    return 100 / (1 + float(np.exp(-low))), 100 / (1 + float(np.exp(-high)))
