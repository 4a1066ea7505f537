"""Loss spikes and the learning rate at divergence, from the losses and gradient norms of every training step."""

from typing import ClassVar

import numpy as np

from stemrepro.claims import Contrast, Unmeasured
from stemrepro.measures import losses
from stemrepro.measures.base import Inputs, Precondition
from stemrepro.measures.comparison import OWN_RATES, Comparison
from stemrepro.paper import Paper
from stemrepro.scores.losses import ArmLosses

WINDOW, DEVIATIONS, SKIPPED = 50, 6.0, 0.1
"""A spike: a step above the median of the WINDOW steps before by more than DEVIATIONS times their median absolute deviation
(scaled to a standard deviation), after the first SKIPPED share of the run. Neighbouring such steps are one spike."""
EXPECTED = 1.0
"""Spikes that the paper's rate for Hash-MoE must lead one to expect in all seeds together, for a count to be testable."""
COUNTED = {"spikes": "loss", "norm-spikes": "norm"}
"""Metrics that count spikes, and of which series."""
SPIKES = ("largest_at", "second_at", "third_at")
"""Columns of the paper's fig-5a-spikes that name one after the first 5e10 tokens."""


def spikes(loss: np.ndarray) -> np.ndarray:
    """Steps at which a spike begins; loss [steps]. Steps whose loss is no number are spikes."""
    start = max(WINDOW, int(SKIPPED * len(loss)))
    high = np.zeros(len(loss), bool)
    for step in range(start, len(loss)):
        before = loss[step - WINDOW : step]
        median = np.median(before)
        deviation = 1.4826 * np.median(np.abs(before - median))
        high[step] = not loss[step] <= median + DEVIATIONS * deviation
    return np.flatnonzero(high & ~np.roll(high, 1))


def rate(series: np.ndarray) -> np.ndarray:
    """Spikes in a thousand steps of each seed; series [seeds, steps]."""
    counted = series.shape[1] - max(WINDOW, int(SKIPPED * series.shape[1]))
    return np.array([1000 * len(spikes(own)) / counted for own in series])


def coincidence(first: np.ndarray, second: np.ndarray) -> tuple[float, float]:
    """Shares of `first`'s spikes that `second` has too, within a step: in runs of the same seed, which saw the same batches, and in
    runs of other seeds, which saw others. Where the first is larger, batches make spikes. Both [seeds, steps]; nan without spikes."""
    own, other = [spikes(loss) for loss in first], [spikes(loss) for loss in second]
    hits: dict[bool, list[bool]] = {True: [], False: []}
    for i, steps in enumerate(own):
        for j, others in enumerate(other):
            hits[i == j] += [bool((np.abs(others - step) <= 1).any()) for step in steps]
    return tuple(float(np.mean(hits[same])) if hits[same] else float("nan") for same in (True, False))


def end(arm: ArmLosses) -> np.ndarray:
    """Mean training loss over the last tenth of the steps, by seed; infinite where it became no number."""
    loss = arm.steps["loss"]
    return np.nan_to_num(loss[:, -max(1, loss.shape[1] // 10) :].mean(axis=1), nan=np.inf)


def excess(points: list[ArmLosses]) -> np.ndarray:
    """End of training less the entropy of the training tokens at rising rates [rates, seeds]."""
    ordered = sorted(points, key=lambda arm: arm.summary["learning_rate"])
    return np.stack([end(arm) - arm.summary["training_entropy"] for arm in ordered])


def borne(points: list[ArmLosses]) -> np.ndarray:
    """Whether an arm bears all rates that were tried, by seed; its rate at divergence is then unknown but for a bound."""
    return (excess(points) < 0).all(axis=0)


def divergence(points: list[ArmLosses], base_rate: float) -> np.ndarray:
    """log2 of the rate, over `base_rate`, at which training ends no better than token frequencies, by seed.

    Between two rates by a straight line; a run that bears all rates counts as one doubling beyond the last, one that bears
    none as the first.

    Args:
        points: the same arm at several rates.
    """
    at = np.log2(np.sort([arm.summary["learning_rate"] for arm in points]) / base_rate)
    found = []
    for own in excess(points).T:
        failed = np.flatnonzero(~(own < 0))
        if not len(failed):
            found.append(at[-1] + 1)
        elif failed[0] == 0:
            found.append(at[0])
        else:
            last, first = own[failed[0] - 1], own[failed[0]]
            share = -last / (first - last) if np.isfinite(first) else 1.0
            found.append(at[failed[0] - 1] + share * (at[failed[0]] - at[failed[0] - 1]))
    return np.array(found)


def first_mark(arm: ArmLosses) -> np.ndarray:
    """Prose loss at the first mark of training, by seed."""
    curve = arm.whole().curve
    return curve[curve.tokens == curve.tokens.min()].sort_values("seed")["prose"].to_numpy()


class Stability(Comparison):
    """Spikes at the scale, and runs at raised rates (points with another rate than the scale's)."""

    metrics: ClassVar[dict[str, str]] = losses.METRICS | {
        "spikes": "loss spikes in a thousand steps",
        "norm-spikes": "spikes of the gradient norm in a thousand steps",
        "divergence": "log2 of the rate, over the scale's, at which training ends no better than token frequencies",
        "early": "prose loss at the first mark of training",
    }
    preconditions: ClassVar[dict[str, Precondition]] = {
        "spikes-expected": Precondition(
            "at the rate of the paper's Hash-MoE an arm's runs lead one to expect a spike", ()
        )
    }

    def __init__(self, inputs: Inputs) -> None:
        super().__init__(inputs)
        self.paper: Paper = inputs.book.paper

    def raised(self, arm: str, own: bool = False) -> list[ArmLosses]:
        """The clipped runs of an arm at raised rates; `own`: with its family's table factor, where that is another."""
        kinds: dict[bool, list[ArmLosses]] = {True: [], False: []}
        for name, runs in self.arms[arm].points.items():
            point = self.inputs.book.points[name]
            if name not in OWN_RATES and point.clip == 1:
                kinds[point.own_rate].append(runs)
        return kinds[own] or kinds[False]

    def contrast(self, high: str, low: str, metric: str) -> Contrast:
        """metric(high) - metric(low) by seed, at the common rate.

        Raises:
            Unmeasured: neither arm diverges at any rate, or a run did at the common one.
        """
        pair = {arm: self.arms[arm].losses for arm in (high, low)}
        return self._contrast(pair, {arm: self.raised(arm) for arm in pair}, high, low, metric)

    def own_rate_contrast(self, high: str, low: str, metric: str) -> Contrast | None:
        """The same with each arm at its own best rates; None where these are not known, or the common ones for both."""
        pair = {arm: self.at_own_rate(arm) for arm in (high, low)}
        if None in pair.values() or all(pair[arm] is self.arms[arm].losses for arm in pair):
            return None
        return self._contrast(pair, {arm: self.raised(arm, own=True) for arm in pair}, high, low, metric)

    def _contrast(
        self, pair: dict[str, ArmLosses], raised: dict[str, list[ArmLosses]], high: str, low: str, metric: str
    ) -> Contrast:
        if metric == "divergence":
            neither = np.logical_and(*(borne(raised[arm]) for arm in (high, low)))
            if neither.any():
                raise Unmeasured(
                    f"in {neither.sum()} of {len(neither)} seeds neither arm diverges at any rate that was tried"
                )
            first, second = (divergence(raised[arm], self.inputs.scale.learning_rate) for arm in (high, low))
        elif metric in COUNTED:
            first, second = (rate(pair[arm].steps[COUNTED[metric]]) for arm in (high, low))
        elif metric == "early":
            first, second = (first_mark(pair[arm]) for arm in (high, low))
        else:
            return losses.contrast(pair[high], pair[low], metric)
        seeds = min(len(first), len(second))  # the first so many are the same
        return Contrast(first[:seeds] - second[:seeds])

    def expected_spikes(self) -> float:
        """How many spikes an arm's seeds together would show at the rate of the paper's Hash-MoE (Fig. 5a)."""
        seen = sum(np.isfinite(self.paper.value(f"fig-5a-spikes/hash-moe/{column}")) for column in SPIKES)
        shown = 1e11 * float(self.paper.blocks["fig-5a"].columns[-1])
        scale, steps = self.inputs.scale, next(iter(self.arms.values())).losses.steps["loss"].size
        return seen * steps * scale.training.batch * scale.model.sequence / shown

    def untestable(self, metric: str, precondition: str) -> str | None:
        """spikes-expected: at the paper's rate the runs of all seeds together must lead one to expect a spike."""
        if precondition == "spikes-expected" and (count := self.expected_spikes()) < EXPECTED:
            return (
                f"at the paper's rate all runs of an arm lead one to expect {count:.1g} spikes, fewer than {EXPECTED:g}"
            )
        return None
