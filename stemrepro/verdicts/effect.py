"""What two arms differ by: one difference per seed, and a t interval over the seeds.

Shares in percent have their interval on logits (`of_share`, `of_shares`). The ends of a difference are mapped back to
points at the other arm's own logits, so that none leaves the scale: x logits are the mean over seeds of
sigmoid(other + x) - sigmoid(other).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np


class Unmeasured(Exception):
    """An effect that the runs could not give, because of their results; the message says why."""


class Untested(Unmeasured):
    """A metric that a scale doesn't attempt, as its text or its tasks lack what is needed; the message says why."""


@dataclass(frozen=True)
class Effect:
    """Differences of two arms.

    Attributes:
        differences: one number per seed, in the metric's unit.
        item_se: standard error between items (documents, questions) of the mean, in the metric's unit, or 0. It is
            printed apart, and is part of no interval.
        spread: variance of one seed's difference, and its degrees of freedom, where they don't follow from the
            differences: of several samples (`combined`), and of shares.
        paired: whether the values belong together seed by seed.
        logits: of shares the differences of logits, or one arm's own [seeds]; None for all else.
        other: of a difference of shares the second arm's logits [seeds].
    """

    differences: np.ndarray
    item_se: float = 0.0
    spread: tuple[float, float] | None = None
    paired: bool = True
    logits: np.ndarray | None = None
    other: np.ndarray | None = None
    over: str = "seeds"

    @property
    def seeds(self) -> int:
        """Number of seeds."""
        return len(self.differences)

    @property
    def mean(self) -> float:
        """The plain mean over seeds."""
        return float(np.mean(self.differences))

    def shown(self, effect: float) -> float:
        """Return an effect on the scale of the interval in the metric's unit."""
        if self.logits is None:
            return float(effect)
        if self.other is None:
            return float(100 * _sigmoid(effect))
        return float(100 * np.mean(_sigmoid(self.other + effect) - _sigmoid(self.other)))

    @cached_property
    def seed_variance(self) -> tuple[float, float]:
        """Variance of one seed's difference on the scale of the interval, and its degrees of freedom."""
        if self.spread is not None:
            return self.spread
        values = self.differences if self.logits is None else self.logits
        return (float(np.var(values, ddof=1)) if self.seeds > 1 else float("nan")), float(max(1, self.seeds - 1))

    def interval(self, alpha: float) -> tuple[float, float]:
        """Return the two-sided t interval over seeds at level 1 - alpha, in the metric's unit; NaN for one seed."""
        from scipy.special import stdtrit  # Student's quantile; half a second that reading recipes can do without

        variance, df = self.seed_variance
        mean = float(np.mean(self.differences if self.logits is None else self.logits))
        half = float(stdtrit(df, 1 - alpha / 2) * np.sqrt(variance / self.seeds))
        return self.shown(mean - half), self.shown(mean + half)


def combined(weights: Sequence[float], samples: Sequence[np.ndarray], item_se: float = 0.0) -> Effect:
    """Return the weighted sum of samples that aren't paired: (1, -1) is a difference as Welch has it.

    Args:
        weights: of the samples.
        samples: values of each [seeds], of which the first are taken that all have.
        item_se: see Effect.
    """
    count = min(map(len, samples))
    parts = np.array(weights)[:, None] * [np.asarray(values, float)[:count] for values in samples]
    if count < 2:
        return Effect(parts.sum(axis=0), item_se, paired=False)
    variances = np.var(parts, axis=1, ddof=1)
    squares = float((variances**2).sum())
    df = float(variances.sum() ** 2 * (count - 1) / squares) if squares > 0 else count - 1.0
    return Effect(parts.sum(axis=0), item_se, (float(variances.sum()), df), paired=False)


def unpaired(first: np.ndarray, second: np.ndarray) -> Effect:
    """Return first - second over the seeds that both have, whose errors are of two samples (Welch)."""
    return combined((1, -1), (first, second))


def left_out(statistic: Callable[[np.ndarray], float], units: np.ndarray) -> np.ndarray:
    """Return a value for each unit, by which the statistic differs where the unit is left out (jackknife).

    Their mean is the statistic of all units, and their t interval has the jackknife's error.

    Args:
        statistic: of an array whose last axis are units.
        units: [..., units].
    """
    count, whole = units.shape[-1], statistic(units)
    without = np.array([statistic(np.delete(units, unit, axis=-1)) for unit in range(count)])
    return np.asarray(whole - (count - 1) * (without - without.mean()), float)


def jackknife(statistic: Callable[[np.ndarray], float], units: np.ndarray, over: str) -> Effect:
    """Return a statistic of units that aren't seeds, with a t interval over them; `over` names the units."""
    return Effect(left_out(statistic, units), over=over)


def jackknife_of_shares(
    shares: Callable[[np.ndarray], tuple[np.ndarray, float]], units: np.ndarray, over: str
) -> Effect:
    """Return a share, or a difference of two, of units that aren't seeds, with a t interval over them on logits.

    A share is known to one item, so that its variance is at least the square of what one item moves.

    Args:
        shares: of an array whose last axis are units: one share or two, in percent, and the number of items.
        units: [..., units].
        over: names the units.
    """
    whole, items = shares(units)
    signs, count = np.array([1.0, -1.0])[: len(whole)], units.shape[-1]
    points = left_out(lambda kept: float(signs @ shares(kept)[0]), units)
    logits = left_out(lambda kept: float(signs @ logits_of(*shares(kept))[0]), units)
    all_logits, steps = logits_of(whole, items)
    spread = (max(float(np.var(logits, ddof=1)), count * float(np.mean(steps**2))), count - 1.0)
    other = np.full(count, all_logits[1]) if len(whole) > 1 else None
    return Effect(points, spread=spread, logits=logits, other=other, over=over)


def _sigmoid(logits: np.ndarray | float) -> np.ndarray:
    return 0.5 + 0.5 * np.tanh(logits / 2)


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
    first: np.ndarray, second: np.ndarray, items: np.ndarray | float, item_se: float = 0.0, *, paired: bool = True
) -> Effect:
    """Return the difference of two shares by seed, over the seeds that both have, with its interval on logits.

    A seed's difference is known to one item, so its variance is at least the square of what one item moves.

    Args:
        first: percent by seed [seeds].
        second: of the other arm [seeds].
        items: of which these are shares, of each seed or of all.
        item_se: standard error between items of the mean difference, in points.
        paired: whether the arms' values belong together seed by seed; else their errors are of two samples (Welch).
    """
    count = min(len(first), len(second))
    one, other = np.asarray(first, float)[:count], np.asarray(second, float)[:count]
    items = items if np.ndim(items) == 0 else np.asarray(items, float)[:count]
    (high, step), (low, other_step) = logits_of(one, items), logits_of(other, items)
    variance, df = (Effect(high - low) if paired else unpaired(high, low)).seed_variance
    least = float(np.mean(step**2 + other_step**2)) / 2
    spread = (max(variance, least), df) if count > 1 else None
    return Effect(one - other, item_se, spread, paired, high - low, low)


def of_share(percent: np.ndarray, items: np.ndarray | float, item_se: float = 0.0) -> Effect:
    """Return one arm's share by seed, with its interval on logits; the arguments are those of `of_shares`."""
    percent = np.asarray(percent, float)
    logits, step = logits_of(percent, items)
    variance, df = Effect(logits).seed_variance
    return Effect(percent, item_se, (max(variance, float(np.mean(step**2))), df), logits=logits)
