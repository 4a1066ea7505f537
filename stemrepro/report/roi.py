"""Training ROI: the paper's definition with its two factors, the same above chance, and what losses say instead.

The paper divides an arm's mean accuracy by its FLOPs and compares with dense. Here everything is a natural logarithm, so
log ROI = log(accuracy / dense's) + log(dense's FLOPs / the arm's), and the second part is known before anything is trained.
"""

import numpy as np

from stemrepro.claims import Contrast
from stemrepro.recipe import Claim
from stemrepro.report import items
from stemrepro.report.arms import Measured
from stemrepro.report.scores import ArmScores

GROUP = "held_out"


def accuracy(measured: Measured) -> np.ndarray:
    """Mean accuracy of each seed over the held-out benchmarks, in points."""
    return measured.items.sample(f"accuracy:{GROUP}").by_seed


def chance(measured: Measured) -> float:
    """Mean of what guessing gets on them, in points."""
    tasks = [measured.items.summary["tasks"][task] for task in measured.items.tasks(GROUP)]
    return 100 * float(np.mean([task["chance"] for task in tasks])) if tasks else float("nan")


def flop_factor(first: Measured, second: Measured) -> float:
    """log(second's FLOPs a token / first's)."""
    return float(np.log(second.summary["forward_flops_per_token"] / first.summary["forward_flops_per_token"]))


def _curves(arm: ArmScores) -> dict[int, tuple[np.ndarray, np.ndarray]]:
    """log FLOPs and prose loss at each mark, by seed."""
    return {
        seed: (np.log(rows["flops"].to_numpy()), rows["prose"].to_numpy()) for seed, rows in arm.curve.groupby("seed")
    }


def loss_at(flops: np.ndarray, loss: np.ndarray, at: float) -> float:
    """Loss of a curve at a point of the log-FLOPs axis, between marks by a straight line."""
    return float(np.interp(at, flops, loss))


def flops_to(flops: np.ndarray, loss: np.ndarray, target: float) -> float:
    """log FLOPs at which a curve first comes down to `target`, between marks by a straight line; nan if it never does."""
    below = np.flatnonzero(loss <= target)
    if not len(below):
        return float("nan")
    at = below[0]
    if at == 0:
        return float(flops[0])
    share = (loss[at - 1] - target) / (loss[at - 1] - loss[at])
    return float(flops[at - 1] + share * (flops[at] - flops[at - 1]))


def contrast(measured: dict[str, Measured], high: str, low: str, metric: str) -> Contrast:
    """What the recipe's metrics say of two arms, by seed; recipes/training_roi.yaml defines them."""
    first, second = measured[high], measured[low]
    if metric in ("flops", "equal-flops"):
        differences = []
        curves = _curves(first.losses), _curves(second.losses)
        for seed in curves[0]:
            (flops, loss), (other_flops, other_loss) = curves[0][seed], curves[1][seed]
            if metric == "flops":
                differences.append(flops[-1] - flops_to(other_flops, other_loss, loss[-1]))
            else:
                spent = min(flops[-1], other_flops[-1])
                differences.append(loss_at(flops, loss, spent) - loss_at(other_flops, other_loss, spent))
        return Contrast(np.array(differences))
    floor = chance(first) if metric == "roi-above-chance" else 0.0
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio = np.log(accuracy(first) - floor) - np.log(accuracy(second) - floor)
        between = items.contrast({arm: measured[arm].items for arm in (high, low)}, high, low, f"accuracy:{GROUP}")
        above = accuracy(second).mean() - floor
        item_se = float(between.item_se / above) if above > 0 else float("nan")  # of a logarithm, to first order
    gain = 0.0 if metric == "accuracy-factor" else flop_factor(first, second)
    return Contrast(ratio + gain, item_se, between.item_df)


def failed_precondition(claim: Claim, measured: dict[str, Measured]) -> str | None:
    """Why a claim can't be tested at this scale, or None: accuracies need a dense arm above what needs no knowledge."""
    if claim.precondition == "none":
        return None
    asked = claim.model_copy(update={"metric": f"accuracy:{GROUP}"})
    return items.failed_precondition(asked, {arm: found.items for arm, found in measured.items()})
