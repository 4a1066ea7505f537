"""Decision accuracy: how often would a cheaper setting call a comparison of two arms as a ladder's last rung does?"""

from dataclasses import dataclass
from itertools import combinations

import numpy as np

from stemrepro.measures.scaling import Scaling
from stemrepro.verdicts.contrast import Contrast
from stemrepro.verdicts.robustness import sign


@dataclass(frozen=True)
class Agreement:
    """Of so many seeds at one variant, means over pairs of arms and over all choices of that many seeds.

    Attributes:
        pairs: comparisons that the last rung can tell.
        same_sign: share whose mean has the last rung's sign.
        right: share that is called by its own 95% interval, as the last rung calls it.
        wrong: share that is called, the other way. The rest is left open.
    """

    pairs: int
    same_sign: float
    right: float
    wrong: float


def agreement(measure: Scaling, arms: tuple[str, ...], variant: str, seeds: int) -> Agreement:
    """Prose losses of every pair of some arms at a variant, beside the same pair at the scale itself with all of its seeds.

    Raises:
        UserError: an arm isn't wanted at the variant.
    """
    shares, pairs = [], 0
    for pair in combinations(arms, 2):
        if not (end := sign(measure.gap(*pair, None), 0.0)):
            continue
        pairs += 1
        own = measure.gap(*pair, variant)
        for chosen in combinations(range(len(own.differences)), seeds):
            found = Contrast(own.differences[list(chosen)], own.item_se, own.item_df)
            called = end * sign(found, 0.0)
            shares.append((end * found.mean > 0, called > 0, called < 0))
    same, right, wrong = np.mean(shares, axis=0) if shares else (np.nan,) * 3
    return Agreement(pairs, float(same), float(right), float(wrong))
