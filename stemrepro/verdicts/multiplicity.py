"""p values adjusted for the number of claims. A claim is decided where its adjusted p is below `ALPHA`.

Primary claims: Holm with eight places, filled or not. Other claims: one Benjamini-Hochberg procedure over all claims of
a page. An adjusted p is never below the p itself, so a word never says more than the 95% interval shows.
"""

import numpy as np

PRIMARY_PLACES = 8
ALPHA = 0.05


def holm(p: list[float], places: int = PRIMARY_PLACES) -> list[float]:
    """Return p adjusted by Holm's procedure among `places` hypotheses, or as many as there are; missing ones have 1."""
    adjusted, largest = [1.0] * len(p), 0.0
    for rank, number in enumerate(np.argsort(p, kind="stable")):
        largest = max(largest, min(1.0, p[number] * (max(places, len(p)) - rank)))
        adjusted[number] = largest
    return adjusted


def benjamini_hochberg(p: list[float]) -> list[float]:
    """Return p adjusted by Benjamini and Hochberg's procedure."""
    adjusted, smallest, count = [1.0] * len(p), 1.0, len(p)
    for rank, number in reversed(list(enumerate(np.argsort(p, kind="stable"), 1))):
        smallest = min(smallest, p[number] * count / rank)
        adjusted[number] = smallest
    return adjusted
