"""Loss spikes of whole runs, and short runs at ever higher learning rates, from losses and norms of every step.

Of short runs: the rate up to which they learn more than token frequencies, how much of the loss the rate decides, and
how many blow up.
"""

from typing import ClassVar

import numpy as np

from stemrepro.config.paper import Paper
from stemrepro.config.scale import Variant
from stemrepro.measures.base import Precondition
from stemrepro.measures.comparison import NO_GAIN, Comparison
from stemrepro.measures.inputs import Inputs
from stemrepro.measures.losses import ArmLosses
from stemrepro.measures.metric import metric
from stemrepro.measures.reading import difference
from stemrepro.verdicts.contrast import Contrast, Unmeasured
from stemrepro.verdicts.rule import TOO_SHORT

WINDOW, DEVIATIONS, SKIPPED = 50, 6.0, 0.1
"""A spike is a step above the median of the WINDOW steps before by more than DEVIATIONS times their median absolute
deviation (scaled to a standard deviation), after the first SKIPPED share of the run. Neighbours are one spike."""
EXPECTED = 1.0
"""Spikes that must be expected in all seeds together, by the paper's rate for Hash-MoE, for a count to be testable."""
CLEARED = 0.5
"""Nats below token frequencies at which dense must end in a short run at the common rate."""
CLEARS = "dense-clears-unigram"
"""Name of a precondition."""
SPIKES = ("largest_at", "second_at", "third_at")
"""Columns of the paper's fig-5a-spikes that name one after the first 5e10 tokens."""


def spikes(loss: np.ndarray) -> np.ndarray:
    """Return the steps at which a spike begins; loss [steps]. Steps whose loss is NaN are spikes."""
    start = max(WINDOW, int(SKIPPED * len(loss)))
    if start >= len(loss):
        return np.array([], int)
    before = np.lib.stride_tricks.sliding_window_view(loss[start - WINDOW : -1], WINDOW)
    median = np.median(before, axis=1)
    deviation = 1.4826 * np.median(np.abs(before - median[:, None]), axis=1)
    high = np.zeros(len(loss), bool)
    high[start:] = ~(loss[start:] <= median + DEVIATIONS * deviation)
    return np.flatnonzero(high & ~np.roll(high, 1))


def rate(series: np.ndarray) -> np.ndarray:
    """Return the spikes per thousand steps of each seed; series [seeds, steps]."""
    return np.array([1000 * len(spikes(values)) / counted(series) for values in series])


def counted(series: np.ndarray) -> int:
    """Return the steps among which `spikes` looks, at least 1; series [seeds, steps]."""
    return max(1, series.shape[1] - max(WINDOW, int(SKIPPED * series.shape[1])))


def coincidence(first: np.ndarray, second: np.ndarray) -> tuple[float, float]:
    """Return the shares of `first`'s spikes that `second` has too, within a step; both [seeds, steps].

    The first share is that of runs of the same seed, which saw the same batches, the second that of other seeds. Where
    the first is larger, batches make spikes. A share without spikes is NaN.
    """
    first_spikes, second_spikes = [spikes(loss) for loss in first], [spikes(loss) for loss in second]
    hits: dict[bool, list[bool]] = {True: [], False: []}
    for i, steps in enumerate(first_spikes):
        for j, others in enumerate(second_spikes):
            hits[i == j] += [bool((np.abs(others - step) <= 1).any()) for step in steps]
    return tuple(float(np.mean(hits[same])) if hits[same] else float("nan") for same in (True, False))


def end(arm: ArmLosses) -> np.ndarray:
    """Return the mean training loss over the last tenth of the steps, by seed; infinite where it became NaN."""
    loss = arm.steps["loss"]
    return np.nan_to_num(loss[:, -max(1, loss.shape[1] // 10) :].mean(axis=1), nan=np.inf)


def start(arm: ArmLosses) -> np.ndarray:
    """Return the training loss at initialisation, that of the first step, by seed."""
    return arm.steps["loss"][:, 0]


def by_rate(runs: list[ArmLosses]) -> list[ArmLosses]:
    """Return the same arm at several rates, in rising order."""
    return sorted(runs, key=lambda arm: arm.summary["learning_rate"])


def excess(runs: list[ArmLosses]) -> np.ndarray:
    """Return the loss at the end of training less the entropy of the training tokens [rates, seeds]; rates rise."""
    return np.stack([end(arm) - arm.summary["training_entropy"] for arm in by_rate(runs)])


def unlimited(runs: list[ArmLosses]) -> np.ndarray:
    """Return whether an arm learns more than token frequencies at all rates tried, so that its limit is a bound."""
    return (excess(runs) < 0).all(axis=0)


def rate_limit(runs: list[ArmLosses], base_rate: float) -> np.ndarray:
    """Return log2 of the learning rate at which a short run stops to learn more than token frequencies, by seed.

    It is taken between two rates by a straight line. An arm that learns more at all rates counts as one doubling beyond
    the last, one that learns more at none as the first. A run that merely learns slowly stays at token frequencies too.
    """
    at = np.log2([arm.summary["learning_rate"] / base_rate for arm in by_rate(runs)])
    limits = []
    for losses in excess(runs).T:
        failed = np.flatnonzero(~(losses < 0))
        if not len(failed):
            limits.append(at[-1] + 1)
        elif failed[0] == 0:
            limits.append(at[0])
        else:
            last, first = losses[failed[0] - 1], losses[failed[0]]
            share = -last / (first - last) if np.isfinite(first) else 1.0
            limits.append(at[failed[0] - 1] + share * (at[failed[0]] - at[failed[0] - 1]))
    return np.array(limits)


def rate_sensitivity(runs: list[ArmLosses]) -> np.ndarray:
    """Return an arm's mean deviation from the best loss over the rates tried, in nats, by seed (arXiv 2309.14322).

    The loss at a rate is that at the end of training, at most that at initialisation. Its mean is log-uniform over
    rates, by trapezia over log2 of the rate, so that unevenly spaced rates don't count unevenly.
    """
    ordered = by_rate(runs)
    at = np.log2([arm.summary["learning_rate"] for arm in ordered])
    loss = np.stack([np.minimum(end(arm), start(arm)) for arm in ordered])
    return np.trapezoid(loss, at, axis=0) / (at[-1] - at[0]) - loss.min(axis=0)


def blown_up(arm: ArmLosses, vocab: int) -> np.ndarray:
    """Return whether a run's loss became NaN, or ended above its first value or that of a uniform guess, by seed."""
    return ~(end(arm) <= np.minimum(start(arm), np.log(vocab)))


def first_mark(arm: ArmLosses) -> np.ndarray:
    """Return the prose loss at the first mark of training, by seed."""
    curve = arm.whole().curve
    return curve[curve.tokens == curve.tokens.min()].sort_values("seed")["prose"].to_numpy()


class Stability(Comparison):
    """Spikes at the scale, and short runs: variants that differ from the scale in learning rate and budget alone."""

    preconditions: ClassVar[dict[str, Precondition]] = {
        NO_GAIN: Comparison.preconditions[NO_GAIN],
        "spikes-expected": Precondition(
            "at the rate of the paper's Hash-MoE an arm's runs lead one to expect a spike", TOO_SHORT, ()
        ),
        CLEARS: Precondition(
            "a short run of dense at the common rate learns more than token frequencies", TOO_SHORT, ("dense",)
        ),
    }

    def __init__(self, inputs: Inputs) -> None:
        super().__init__(inputs)
        self.paper: Paper = inputs.catalog.paper

    def short_runs(self, arm: str, own: bool = False, clipped: bool = True) -> dict[str, ArmLosses]:
        """Return an arm's short runs by variant.

        They have the smallest budget of the variants with another learning rate than the scale's.

        Args:
            own: at its family's own table rate, where it was trained so; else at the common one.
            clipped: only those that are clipped as the scale is.
        """
        variants = self.variants_of(arm)
        budget = min((variant.tokens for variant in variants.values() if variant.learning_rate != 1), default=None)

        def short(variant: Variant, at_own_rate: bool) -> bool:
            clip = 1.0 if clipped else variant.clip
            plain = Variant(tokens=variant.tokens, learning_rate=variant.learning_rate, tuned=at_own_rate, clip=clip)
            return variant.tokens == budget and variant == plain

        kinds = {
            kind: {name: self.arms[arm].variants[name] for name, variant in variants.items() if short(variant, kind)}
            for kind in (True, False)
        }
        return kinds[own] or kinds[False]

    def variants_of(self, arm: str) -> dict[str, Variant]:
        return {name: self.inputs.catalog.variants[name] for name in self.arms[arm].variants}

    def long_runs(self, arm: str) -> dict[str, ArmLosses]:
        """Return an arm's runs at other learning rates than the scale's that are longer than short ones, by variant."""
        high = {name: variant.tokens for name, variant in self.variants_of(arm).items() if variant.learning_rate != 1}
        return {name: self.arms[arm].variants[name] for name, tokens in high.items() if tokens > min(high.values())}

    @metric("spikes", "loss spikes per thousand steps", own=True)
    def spikes(self, high: str, low: str, own: bool = False) -> Contrast:
        return difference(*(rate(arm.steps["loss"]) for arm in self.pair(high, low, own)))

    @metric("norm-spikes", "spikes of the gradient norm per thousand steps", own=True)
    def norm_spikes(self, high: str, low: str, own: bool = False) -> Contrast:
        return difference(*(rate(arm.steps["norm"]) for arm in self.pair(high, low, own)))

    def tried(self, high: str, low: str, own: bool) -> tuple[list[ArmLosses], ...] | None:
        """Return two arms' short runs; None at own rates unless both were tried at the same multiples of theirs."""
        short = [self.short_runs(arm, own=own) for arm in (high, low)]
        if own and any(  # of these an arm has none at its own rate, which is another than the common one
            runs.keys() == self.short_runs(arm).keys() and not self.own_is_common(arm)
            for runs, arm in zip(short, (high, low), strict=True)
        ):
            return None
        rates = [sorted(self.inputs.catalog.variants[name].learning_rate for name in runs) for runs in short]
        return None if own and rates[0] != rates[1] else tuple(list(runs.values()) for runs in short)

    @metric(
        "learning-rate-limit",
        "log2 of the learning rate, over the scale's, from which on a short run learns no more than token frequencies",
        own=True,
    )
    def limit(self, high: str, low: str, own: bool = False) -> Contrast | None:
        """Return a difference of limits by seed; Unmeasured where no run of either arm reaches one."""
        if (tried := self.tried(high, low, own)) is None:
            return None
        neither = np.logical_and(*map(unlimited, tried))
        if neither.any():
            lost = f"in {neither.sum()} of {len(neither)} seeds both arms"
            raise Unmeasured(f"{lost} learn more than token frequencies at every rate that was tried")
        return difference(*(rate_limit(runs, self.inputs.scale.learning_rate) for runs in tried))

    @metric("rate-sensitivity", "short runs' mean loss over the learning rates tried less the lowest", own=True)
    def sensitivity(self, high: str, low: str, own: bool = False) -> Contrast | None:
        tried = self.tried(high, low, own)
        return None if tried is None else difference(*map(rate_sensitivity, tried))

    @metric(
        "{which=blow-ups}",
        "share of short runs, clipped or not, that end above their first loss or a uniform guess, or at NaN",
    )
    @metric("{which=long-blow-ups}", "the same of the longer runs at high learning rates")
    def more_blow_ups(self, high: str, low: str, which: str) -> Contrast:
        long = which == "long-blow-ups"
        runs = [self.long_runs(arm) if long else self.short_runs(arm, clipped=False) for arm in (high, low)]
        if not all(runs):
            raise Unmeasured("there are no longer runs at high rates")
        first, second = (self.blow_ups(list(by_variant.values())) for by_variant in runs)
        if not (first.any() or second.any()):
            raise Unmeasured("no run of either arm blew up at any rate that was tried")
        return difference(first, second)

    @metric("early", "prose loss at the first mark of training", own=True)
    def early(self, high: str, low: str, own: bool = False) -> Contrast:
        return difference(*map(first_mark, self.pair(high, low, own)))

    def blow_ups(self, runs: list[ArmLosses]) -> np.ndarray:
        return np.mean([blown_up(arm, self.inputs.scale.model.vocab) for arm in runs], axis=0)

    def expected_spikes(self) -> float:
        """Return how many spikes an arm's seeds together would show at the rate of the paper's Hash-MoE (Fig. 5a)."""
        seen = sum(np.isfinite(self.paper.value(f"fig-5a-spikes/hash-moe/{column}")) for column in SPIKES)
        shown = 1e11 * float(self.paper.blocks["fig-5a"].columns[-1])
        scale, steps = self.inputs.scale, next(iter(self.arms.values())).losses.steps["loss"].size
        return seen * steps * scale.training.batch * scale.model.sequence / shown

    def untestable(self, metric: str, precondition: str, smallest_effect: float = np.nan) -> str | None:
        if precondition == "spikes-expected":
            if (count := self.expected_spikes()) >= EXPECTED:
                return None
            return (
                f"at the paper's rate all runs of an arm lead one to expect {count:.1g} spikes, fewer than {EXPECTED:g}"
            )
        if precondition == CLEARS:
            return self._dense_stays()
        return super().untestable(metric, precondition, smallest_effect)

    def _dense_stays(self) -> str | None:
        """Return why short runs say nothing of stability: dense stays at token frequencies there; or None."""
        variants, runs = self.inputs.catalog.variants, self.short_runs("dense")
        at_common = [run for name, run in runs.items() if variants[name].learning_rate == 1]
        if not at_common:
            budget = " and ".join(sorted({f"{variants[name].tokens:g}" for name in runs})) or "any share"
            where = f"at the common rate (a variant with rate 1 and {budget} of the tokens)"
            return f"no short run of dense {where} says that it leaves token frequencies there"
        low, high = Contrast(-excess(at_common).mean(axis=0)).interval(0.05)
        if high < CLEARED:
            below = f"ends {low:.2f} to {high:.2f} nats (95%) below token frequencies"
            return f"a short run of dense at the common rate {below}; {CLEARED:g} are needed"
        return None
