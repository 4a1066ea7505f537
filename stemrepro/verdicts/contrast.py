"""What two arms differ by: paired differences, one per seed, and their intervals."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np


class Unmeasured(Exception):
    """A contrast that the runs could not give, because of their results; the message says why."""


@dataclass(frozen=True)
class Contrast:
    """Paired differences of two arms.

    Attributes:
        differences: one number per seed.
        item_se: standard error between items (documents, questions) of the seed-averaged difference; 0 for none.
        item_df: its degrees of freedom (items - 1).
    """

    differences: np.ndarray
    item_se: float = 0.0
    item_df: float = np.inf

    @property
    def mean(self) -> float:
        """Mean over seeds."""
        return float(np.mean(self.differences))

    @cached_property
    def seed_se(self) -> float:
        """Standard error between seeds (NaN for one seed)."""
        count = len(self.differences)
        return float(np.std(self.differences, ddof=1) / np.sqrt(count)) if count > 1 else float("nan")

    @cached_property
    def error(self) -> tuple[float, float]:
        """Standard error over seeds and items, and its degrees of freedom after Satterthwaite."""
        seed, item, count = self.seed_se**2, self.item_se**2, len(self.differences)
        total = seed + item
        if not total > 0:
            return float(np.sqrt(total)), float(max(1, count - 1))
        return float(np.sqrt(total)), float(total**2 / (seed**2 / (count - 1) + item**2 / self.item_df))

    def interval(self, alpha: float) -> tuple[float, float]:
        """Return the two-sided t interval at level 1 - alpha."""
        from scipy.special import stdtrit  # Student's quantile; half a second that reading recipes can do without

        error, df = self.error
        half = stdtrit(df, 1 - alpha / 2) * error
        return self.mean - float(half), self.mean + float(half)

    def p_above(self, value: float) -> float:
        """Return the two-sided p of a mean of `value`, where only a mean above it speaks against it (else 1)."""
        from scipy.special import stdtr

        error, df = self.error
        if np.isnan(error) or self.mean <= value:
            return 1.0
        return float(2 * stdtr(df, (value - self.mean) / error)) if error > 0 else 0.0

    def reversed(self) -> "Contrast":
        """Return the same contrast with the opposite sign."""
        return Contrast(-np.asarray(self.differences), self.item_se, self.item_df)
