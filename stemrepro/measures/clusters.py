"""The error of a mean over pairs that share countries on both sides: the delete-one jackknife over countries.

A bootstrap would give too small an error for few countries: one that is drawn twice makes no pair with itself.
"""

import numpy as np


def pair_error(values: np.ndarray, kept: np.ndarray, first: np.ndarray, second: np.ndarray) -> float:
    """Return the standard error between countries of the mean over seeds of each seed's mean over the pairs it keeps.

    Args:
        values: [seeds, pairs].
        kept: bool, of the same shape: the pairs that a seed's mean is taken over.
        first, second: names of each pair's countries [pairs].

    Returns:
        NaN where a seed keeps no pair without some country: then nothing is known of the error.
    """
    names, members = np.unique(np.concatenate([first, second]), return_inverse=True)
    left, right = np.split(members, 2)
    chosen, counted = np.where(kept, values, 0.0), kept.astype(float)
    absent = np.array([(left != number) & (right != number) for number in range(len(names))], float)
    involved = np.array([counted[:, (left == number) | (right == number)].any() for number in range(len(names))], bool)
    totals = absent[involved] @ counted.T
    if len(totals) < 2 or not (totals > 0).all():
        return float("nan")
    without = ((absent[involved] @ chosen.T) / totals).mean(axis=1)
    count = len(without)
    return float(np.sqrt((count - 1) / count * ((without - without.mean()) ** 2).sum()))
