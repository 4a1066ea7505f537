"""Levels of tests and intervals, corrected for the number of claims.

Primary claims: Holm at 5% with eight places over all recipes, filled or not. Each recipe steps down by itself from
level 5%/8. A family of k <= 8 claims with n true nulls errs with at most n/(8 - k + n) <= k/8 of 5%, so the recipes
together stay under 5%. Other claims: Benjamini-Hochberg at 10% within the recipe.
Intervals match the tests: an interval excludes the null value exactly when the test rejects it.
"""

import numpy as np

PRIMARY_PLACES = 8
PRIMARY_ALPHA = 0.05
SECONDARY_RATE = 0.10


def holm_levels(p: list[float], places: int = PRIMARY_PLACES, alpha: float = PRIMARY_ALPHA) -> list[float]:
    """Return the level at which Holm's procedure tests each p, among `places` hypotheses.

    Missing hypotheses have p = 1.
    After the first that isn't rejected all others are tested at the level where it stopped.
    """
    levels = [0.0] * len(p)
    stopped = None
    for rank, number in enumerate(np.argsort(p, kind="stable")):
        step = rank if stopped is None else stopped
        levels[number] = alpha / (places - step)
        if stopped is None and p[number] > levels[number]:
            stopped = rank
    return levels


def benjamini_hochberg_levels(p: list[float], rate: float = SECONDARY_RATE) -> list[float]:
    """Return the level at which Benjamini and Hochberg's procedure tests every p: rate x rejections / tests.

    Intervals have the same level (Benjamini and Yekutieli 2005).
    """
    if not p:
        return []
    ranked = np.sort(p) <= rate * np.arange(1, len(p) + 1) / len(p)
    rejections = int(np.max(np.nonzero(ranked)[0]) + 1) if ranked.any() else 1
    return [rate * rejections / len(p)] * len(p)
