"""Paired differences of benchmark scores, item by item. Metrics are those of stemrepro.scores.items."""

import numpy as np

from stemrepro.claims import Contrast
from stemrepro.errors import UserError
from stemrepro.scores.items import ArmItems, Sample

SCORES = ("accuracy", "margin")
METRICS = {
    r"accuracy:[a-z0-9_]+(:seen)?": "accuracy in points of a task or group, each task under its own acc or acc_norm",
    r"margin:[a-z0-9_]+(:seen)?": "bits that the prompt adds to the right answer over the wrong ones",
}
ACCURACY_LEAD = 2.0  # points by which dense must beat chance, majority and the answers alone
MARGIN_LEAD = 0.05  # bits that the prompt must add to dense's right answers over wrong ones


def contrast(high: ArmItems, low: ArmItems, metric: str) -> Contrast:
    """metric(high) - metric(low) by seed, over the seeds that both have, item by item, with the error between items.

    Raises:
        UserError: these are not the same, or the items aren't.
        Unmeasured: a run diverged.
    """
    count = min(len(high.whole().arrays["seeds"]), len(low.whole().arrays["seeds"]))
    same = np.array_equal(high.arrays["seeds"][:count], low.arrays["seeds"][:count])
    first, second = high.sample(metric).of_seeds(count), low.sample(metric).of_seeds(count)
    if not (same and np.array_equal(first.clusters, second.clusters) and np.array_equal(first.weights, second.weights)):
        raise UserError(f"{high.folder} and {low.folder} were scored on different seeds or items")
    return Sample(first.values - second.values, first.weights, first.clusters).contrast()


def untestable(dense: ArmItems, metric: str) -> str | None:
    """Why a metric can't be tested at this scale, or None; judged by the dense arm alone.

    Dense must score 2 points above chance, the most frequent answer and the answers without their prompt (in a group, above the mean of
    each task's best of these); for margins, its prompts must add 0.05 bits to right answers over wrong ones. Unmeasured where it diverged.
    """
    if not dense.whole().tasks(metric.split(":")[1]):
        return "this scale has no items of it"
    score = float(dense.sample(metric).by_seed.mean())
    if np.isnan(score):
        return "no item's fact was seen in training"
    if metric.startswith("margin"):
        if score < MARGIN_LEAD:
            return f"dense's prompts add {score:.3f} bits to right answers over wrong ones; {MARGIN_LEAD:g} are needed"
        return None
    floor, what = dense.floor(metric)
    if score < floor + ACCURACY_LEAD:
        return f"dense scores {score:.1f}, less than {ACCURACY_LEAD:g} points above the {floor:.1f} of {what}"
    return None
