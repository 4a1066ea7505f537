"""The error of a mean over pairs: pairs share countries on both sides, so countries are drawn anew, not pairs.

The pigeonhole bootstrap (Owen 2007): each country gets a weight, how often it was drawn, and a pair the product of its two.
"""

import numpy as np

DRAWS = 1000


def pair_error(values: np.ndarray, kept: np.ndarray, first: np.ndarray, second: np.ndarray) -> tuple[float, float]:
    """Standard error between countries of the mean over seeds of each seed's mean, and its degrees of freedom (countries - 1).

    Args:
        values: [seeds, pairs].
        kept: bool, of the same shape: the pairs that a seed's mean is taken over.
        first, second: names of each pair's countries [pairs].

    Returns:
        (0, inf) where fewer than two countries are left on a side.
    """
    used = kept.any(axis=0)
    names, members = np.unique(np.concatenate([first[used], second[used]]), return_inverse=True)
    if min(len(set(first[used])), len(set(second[used]))) < 2:
        return 0.0, float("inf")
    left, right = np.split(members, 2)
    drawn = np.random.default_rng(0).multinomial(len(names), np.full(len(names), 1 / len(names)), DRAWS)
    weights = (drawn[:, left] * drawn[:, right]).astype(float)
    chosen, counted = np.where(kept, values, 0.0)[:, used], kept[:, used].astype(float)
    totals = weights @ counted.T
    means = np.divide(weights @ chosen.T, totals, out=np.full(totals.shape, np.nan), where=totals > 0)
    return float(np.nanstd(np.nanmean(means, axis=1), ddof=1)), float(len(names) - 1)
