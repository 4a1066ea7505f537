"""Decision accuracy: how often a cheaper setting calls a comparison of two arms as a ladder's last rung does."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from stemrepro.verdicts.effect import Effect


@dataclass(frozen=True)
class Agreement:
    """Means over pairs of arms, and over all choices of so many seeds, at one variant.

    Attributes:
        pairs: comparisons that the last rung can tell.
        same_sign: share whose mean has the last rung's sign.
        right: share that its own 95% interval calls as the last rung does.
        wrong: share that is called the other way. The rest is left open.
    """

    pairs: int
    same_sign: float
    right: float
    wrong: float


def sign(effect: Effect) -> int:
    """Return -1 or 1 where the 95% interval lies below or above 0, else 0."""
    low, high = effect.interval(0.05)
    return int(low > 0) - int(high < 0)


def agreement(pairs: Iterable[tuple[Effect, Effect]], seeds: int) -> Agreement:
    """Compare a cheaper setting with the last rung, at which all seeds count.

    Args:
        pairs: for two arms each their difference at the last rung, and at the setting.
        seeds: of the setting, of which each choice is called.
    """
    shares, told = [], 0
    for last, cheap in pairs:
        if not (end := sign(last)):
            continue
        told += 1
        for chosen in combinations(cheap.differences, seeds):
            effect = Effect(np.array(chosen))
            called = end * sign(effect)
            shares.append((end * effect.mean > 0, called > 0, called < 0))
    same, right, wrong = np.mean(shares, axis=0) if shares else (np.nan,) * 3
    return Agreement(told, float(same), float(right), float(wrong))
