"""Paired differences of losses, which most measures are made of."""

import itertools

import numpy as np

from stemrepro.claims import Contrast
from stemrepro.data.sources import SOURCES
from stemrepro.errors import UserError
from stemrepro.measures.bootstrap import bootstrap_error
from stemrepro.scores.losses import ArmLosses, gap_curve, members, paired

WHERE = "|".join(["prose", "all", *SOURCES, "hub"])
METRICS = {
    rf"({WHERE})": "loss in nats per token, every source of a mix the same weight",
    rf"({WHERE}):(pair|frequency|position)=\d+(-\d+|\+)?": "the same of the targets in a bucket",
    "drift": "change of the prose gap from the first mark of training to its last",
}


def _item_error(first: ArmLosses, differences: np.ndarray, mix: str) -> tuple[float, float]:
    """Standard error between documents of the seed-averaged differences [seeds, documents], by bootstrap within each source, and its
    degrees of freedom."""
    documents, groups = first.documents, []
    for source in members(mix, first.sources):
        chosen = documents["source"] == source
        if chosen.any():
            groups.append((differences.mean(axis=0)[chosen], documents["tokens"][chosen].astype(float)))
    return bootstrap_error(groups, lambda d, t, axis=-1: d.sum(axis=axis) / t.sum(axis=axis))


def check_documents(first: ArmLosses, *others: ArmLosses) -> None:
    """Raises UserError where arms were scored on different documents."""
    for other, name in itertools.product(others, ("source", "tokens")):
        if not np.array_equal(first.documents[name], other.documents[name]):
            raise UserError(f"{first.folder} and {other.folder} were scored on different documents; score them anew")


def contrast(high: ArmLosses, low: ArmLosses, metric: str) -> Contrast:
    """loss(high) - loss(low) by seed, over the seeds that both have; of whole sources with the error between documents.

    Raises:
        UserError: the arms have different seeds or documents.
        Unmeasured: a run diverged.
    """
    first, second = paired(high, low)
    if metric == "drift":
        gap = gap_curve(first, second)
        return Contrast((gap.iloc[:, -1] - gap.iloc[:, 0]).to_numpy())
    difference = first.loss(metric) - second.loss(metric)
    item_se, item_df = (0.0, float("inf"))
    if ":" not in metric:
        check_documents(first, second)
        item_se, item_df = _item_error(first, first.documents["nats"] - second.documents["nats"], metric)
    return Contrast(difference.to_numpy(), item_se, item_df)


def interaction(pair: tuple[ArmLosses, ArmLosses], other: tuple[ArmLosses, ArmLosses], metric: str) -> Contrast:
    """(loss(pair[0]) - loss(pair[1])) - (loss(other[0]) - loss(other[1])) by seed, over the seeds that all four have; of whole sources,
    with the error between documents.

    Raises:
        UserError: the arms have different seeds.
        Unmeasured: a run diverged.
    """
    fewest = min((*pair, *other), key=lambda arm: len(arm.seeds))
    four = [paired(arm, fewest)[0] for arm in (*pair, *other)]
    check_documents(*four)
    signs = (1, -1, -1, 1)
    difference = sum(sign * arm.loss(metric) for sign, arm in zip(signs, four, strict=True))
    documents = sum(sign * arm.documents["nats"] for sign, arm in zip(signs, four, strict=True))
    return Contrast(difference.to_numpy(), *_item_error(four[0], documents, metric))


def slope(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Least-squares slope of y [places, seeds] over log2 x, by seed."""
    return np.polyfit(np.log2(x), y, 1)[0]
