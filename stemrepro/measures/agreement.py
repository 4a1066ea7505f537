"""Decision accuracy: how often a cheaper setting calls a comparison of two arms as a ladder's last rung does."""

from dataclasses import dataclass
from itertools import combinations

import numpy as np

from stemrepro.measures.scaling import Scaling
from stemrepro.verdicts.contrast import Contrast


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


def sign(contrast: Contrast) -> int:
    """Return -1 or 1 where the 95% interval lies below or above 0, else 0."""
    low, high = contrast.interval(0.05)
    return int(low > 0) - int(high < 0)


def agreement(measure: Scaling, arms: tuple[str, ...], variant: str, seeds: int) -> Agreement:
    """Compare the prose losses of every pair of arms at a variant with those of the same pair at the scale itself.

    At the variant each choice of `seeds` seeds is called; at the scale itself all of its seeds count.
    """
    shares, pairs = [], 0
    for pair in combinations(arms, 2):
        if not (end := sign(measure.gap(*pair, None))):
            continue
        pairs += 1
        gap = measure.gap(*pair, variant)
        for chosen in combinations(range(len(gap.differences)), seeds):
            contrast = Contrast(gap.differences[list(chosen)])
            called = end * sign(contrast)
            shares.append((end * contrast.mean > 0, called > 0, called < 0))
    same, right, wrong = np.mean(shares, axis=0) if shares else (np.nan,) * 3
    return Agreement(pairs, float(same), float(right), float(wrong))
