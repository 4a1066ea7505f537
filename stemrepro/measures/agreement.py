"""Decision accuracy: how often a cheaper setting calls a comparison of two arms as a ladder's last rung does."""

from dataclasses import dataclass
from itertools import combinations

import numpy as np

from stemrepro.measures.scaling import Scaling
from stemrepro.verdicts.contrast import Contrast
from stemrepro.verdicts.robustness import sign


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


def agreement(measure: Scaling, arms: tuple[str, ...], variant: str, seeds: int) -> Agreement:
    """Compare the prose losses of every pair of arms at a variant with those of the same pair at the scale itself.

    At the variant each choice of `seeds` seeds is called; at the scale itself all of its seeds count.
    """
    shares, pairs = [], 0
    for pair in combinations(arms, 2):
        if not (end := sign(measure.gap(*pair, None), 0.0)):
            continue
        pairs += 1
        gap = measure.gap(*pair, variant)
        for chosen in combinations(range(len(gap.differences)), seeds):
            contrast = Contrast(gap.differences[list(chosen)], gap.item_se, gap.item_df)
            called = end * sign(contrast, 0.0)
            shares.append((end * contrast.mean > 0, called > 0, called < 0))
    same, right, wrong = np.mean(shares, axis=0) if shares else (np.nan,) * 3
    return Agreement(pairs, float(same), float(right), float(wrong))
