"""Training ROI: the paper's definition with its two factors, the same above chance, and what losses say instead.

The paper divides an arm's mean accuracy by its FLOPs and compares with dense. Here it is a logarithm:
log ROI = log(accuracy / dense's) + log(dense's FLOPs / the arm's), of which the second part needs no training.
"""

import numpy as np

from stemrepro.measures import items
from stemrepro.measures.comparison import arm_items, pair_of_losses
from stemrepro.measures.losses import arm_losses, paired
from stemrepro.measures.scores import Scores
from stemrepro.verdicts.effect import Effect

GROUP = "scored"
Curve = tuple[np.ndarray, np.ndarray]
"""Log FLOPs and prose loss at each mark."""


def flop_factor(scores: Scores, first: str, second: str) -> float:
    """Return log(second's FLOPs per token / first's)."""
    one, other = (arm_losses(scores, arm).summary["forward_flops_per_token"] for arm in (first, second))
    return float(np.log(other / one))


def flops_to(flops: np.ndarray, loss: np.ndarray, target: float) -> float:
    """Return log FLOPs at which a curve, straight between marks, first falls to `target`; NaN if it never does."""
    below = np.flatnonzero(loss <= target)
    if not len(below):
        return float("nan")
    at = below[0]
    if at == 0:
        return float(flops[0])
    share = (loss[at - 1] - target) / (loss[at - 1] - loss[at])
    return float(flops[at - 1] + share * (flops[at] - flops[at - 1]))


def _log_accuracy(scores: Scores, high: str, low: str, floor: float = 0.0) -> Effect:
    with np.errstate(invalid="ignore", divide="ignore"):
        between = items.contrast(arm_items(scores, high), arm_items(scores, low), "accuracy", GROUP)
        samples = (arm_items(scores, arm).sample("accuracy", GROUP) for arm in (high, low))
        one, other = (sample.by_seed[: between.seeds] for sample in samples)
        ratio = np.log(one - floor) - np.log(other - floor)
        above = other.mean() - floor
        item_se = float(between.item_se / above) if above > 0 else float("nan")  # of a logarithm, to first order
    return Effect(ratio, item_se)


def roi(scores: Scores, high: str, low: str) -> Effect:
    """Log of (accuracy / training FLOPs), the paper's ROI over dense's."""
    factor = _log_accuracy(scores, high, low)
    return Effect(factor.differences + flop_factor(scores, high, low), factor.item_se)


def roi_above_chance(scores: Scores, high: str, low: str) -> Effect:
    """Log of (accuracy above chance / training FLOPs) over dense's."""
    scored = arm_items(scores, high)
    chance = [scored.summary["tasks"][task]["chance"] for task in scored.tasks(GROUP)]
    factor = _log_accuracy(scores, high, low, 100 * float(np.mean(chance)) if chance else float("nan"))
    return Effect(factor.differences + flop_factor(scores, high, low), factor.item_se)


def accuracy_factor(scores: Scores, high: str, low: str) -> Effect:
    """Log of the accuracy over dense's."""
    return _log_accuracy(scores, high, low)


def flops(scores: Scores, high: str, low: str, own: bool = False) -> Effect | None:
    """Log of the training FLOPs that the second arm saves on its way to the first's final prose loss.

    Where it never gets there, those that the first saves on its way to the second's, below 0.
    """
    saved = []
    for (spent, losses), (other_spent, other_losses) in _curves(scores, high, low, own):
        if other_losses.min() <= losses[-1]:
            saved.append(spent[-1] - flops_to(other_spent, other_losses, losses[-1]))
        else:
            saved.append(flops_to(spent, losses, other_losses[-1]) - other_spent[-1])
    return Effect(np.array(saved)) if saved else None


def equal_flops(scores: Scores, high: str, low: str, own: bool = False) -> Effect | None:
    """Prose loss once as many FLOPs are spent as the cheaper arm's run has."""
    gaps = []
    for first, second in _curves(scores, high, low, own):
        spent = min(first[0][-1], second[0][-1])
        gaps.append(np.interp(spent, *first) - np.interp(spent, *second))
    return Effect(np.array(gaps)) if gaps else None


def _curves(scores: Scores, high: str, low: str, own: bool) -> list[tuple[Curve, Curve]]:
    """Return both arms' curves by seed; none where an arm has no own rate."""
    runs = pair_of_losses(scores, high, low, own=own)
    curves = [arm.curve.groupby("seed") for arm in paired(*runs)] if runs else []
    by_seed = [[(np.log(rows["flops"].to_numpy()), rows["prose"].to_numpy()) for _, rows in of] for of in curves]
    return list(zip(*by_seed, strict=True))
