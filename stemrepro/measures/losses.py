"""Paired differences of losses, which most measures are made of."""

import numpy as np

from stemrepro.claims import Contrast
from stemrepro.data.sources import SOURCES
from stemrepro.measures.bootstrap import bootstrap_error
from stemrepro.scores.losses import ArmLosses, gap_curve, members, paired

WHERE = "|".join(["prose", "all", *SOURCES, "hub"])
METRICS = {
    rf"({WHERE})": "loss in nats per token, every source of a mix the same weight",
    rf"({WHERE}):(pair|frequency|position)=\d+(-\d+|\+)?": "the same of the targets in a bucket",
    "drift": "change of the prose gap from the first mark of training to its last",
}


def _item_error(first: ArmLosses, second: ArmLosses, mix: str) -> tuple[float, float]:
    """Standard error between documents of the seed-averaged difference, by bootstrap within each source, and its
    degrees of freedom."""
    high, low = first.documents, second.documents
    groups = []
    for source in members(mix, first.sources):
        chosen = high["source"] == source
        if chosen.any():
            difference = (high["nats"] - low["nats"]).mean(axis=0)[chosen]
            groups.append((difference, high["tokens"][chosen].astype(float)))
    return bootstrap_error(groups, lambda d, t, axis=-1: d.sum(axis=axis) / t.sum(axis=axis))


def contrast(high: ArmLosses, low: ArmLosses, metric: str) -> Contrast:
    """loss(high) - loss(low) by seed, over the seeds that both have; of whole sources with the error between documents.

    Raises:
        UserError: the arms have different seeds.
        Unmeasured: a run diverged.
    """
    first, second = paired(high, low)
    if metric == "drift":
        gap = gap_curve(first, second)
        return Contrast((gap.iloc[:, -1] - gap.iloc[:, 0]).to_numpy())
    difference = first.loss(metric) - second.loss(metric)
    item_se, item_df = (0.0, float("inf")) if ":" in metric else _item_error(first, second, metric)
    return Contrast(difference.to_numpy(), item_se, item_df)


def slope(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Least-squares slope of y [places, seeds] over log2 x, by seed."""
    return np.polyfit(np.log2(x), y, 1)[0]
