"""Training ROI: the paper's definition with its two factors, the same above chance, and what losses say instead.

The paper divides an arm's mean accuracy by its FLOPs and compares with dense. Here it is a logarithm:
log ROI = log(accuracy / dense's) + log(dense's FLOPs / the arm's), of which the second part needs no training.
"""

import numpy as np

from stemrepro.measures import items
from stemrepro.measures.comparison import ComparedArm, Comparison
from stemrepro.measures.losses import ArmLosses, paired
from stemrepro.measures.metric import metric
from stemrepro.verdicts.contrast import Contrast

GROUP = "held_out"


def accuracy(arm: ComparedArm) -> np.ndarray:
    """Return the mean accuracy of each seed over the held-out benchmarks, in points."""
    return arm.items.whole().sample("accuracy", GROUP).by_seed


def chance(arm: ComparedArm) -> float:
    """Return the mean accuracy of a guess on them, in points."""
    tasks = [arm.items.summary["tasks"][task] for task in arm.items.tasks(GROUP)]
    return 100 * float(np.mean([task["chance"] for task in tasks])) if tasks else float("nan")


def flop_factor(first: ComparedArm, second: ComparedArm) -> float:
    """Return log(second's FLOPs per token / first's)."""
    return float(np.log(second.summary["forward_flops_per_token"] / first.summary["forward_flops_per_token"]))


def _curves(arm: ArmLosses) -> dict[int, tuple[np.ndarray, np.ndarray]]:
    return {
        seed: (np.log(rows["flops"].to_numpy()), rows["prose"].to_numpy()) for seed, rows in arm.curve.groupby("seed")
    }


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


def by_curve(first: ArmLosses, second: ArmLosses, metric: str) -> Contrast:
    """Return "flops" or "equal-flops" of TrainingRoi, from losses during training."""
    differences = []
    curves = [_curves(arm) for arm in paired(first, second)]
    for seed in curves[0]:
        (flops, loss), (other_flops, other_loss) = curves[0][seed], curves[1][seed]
        if metric == "flops" and other_loss.min() <= loss[-1]:
            differences.append(flops[-1] - flops_to(other_flops, other_loss, loss[-1]))
        elif metric == "flops":  # the first gets to the second's end instead
            differences.append(flops_to(flops, loss, other_loss[-1]) - other_flops[-1])
        else:
            spent = min(flops[-1], other_flops[-1])
            differences.append(np.interp(spent, flops, loss) - np.interp(spent, other_flops, other_loss))
    return Contrast(np.array(differences))


class TrainingRoi(Comparison):
    """Logarithms of ROI and of its factors, and what losses say of the same."""

    @metric("{what=roi}", "log of (accuracy / training FLOPs), the paper's ROI over dense's")
    @metric("{what=roi-above-chance}", "the same with chance taken off both accuracies")
    @metric("{what=accuracy-factor}", "log of the accuracy alone")
    def ratio(self, high: str, low: str, what: str) -> Contrast:
        first, second = self.arms[high], self.arms[low]
        floor = chance(first) if what == "roi-above-chance" else 0.0
        with np.errstate(invalid="ignore", divide="ignore"):
            ratio = np.log(accuracy(first) - floor) - np.log(accuracy(second) - floor)
            between = items.contrast(first.items, second.items, "accuracy", GROUP)
            above = accuracy(second).mean() - floor
            item_se = float(between.item_se / above) if above > 0 else float("nan")  # of a logarithm, to first order
        gain = 0.0 if what == "accuracy-factor" else flop_factor(first, second)
        return Contrast(ratio + gain, item_se)

    @metric(
        "{what=flops}",
        "log of the training FLOPs that the second arm saves on its way to the first's final prose loss, or, where it "
        "never gets there, less those that the first saves on its way to the second's",
        own=True,
    )
    @metric("{what=equal-flops}", "prose loss once as many FLOPs are spent as the cheaper arm's run has", own=True)
    def over_flops(self, high: str, low: str, what: str, own: bool = False) -> Contrast:
        """Return what losses during training say, by seed."""
        return by_curve(*self.pair(high, low, own), what)
