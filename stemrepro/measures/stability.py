"""Loss spikes of whole runs, and short runs at ever higher learning rates, from losses and norms of every step.

Of short runs: the rate up to which they learn more than token frequencies, and how much of the loss the rate decides.
"""

from itertools import product

import numpy as np

from stemrepro.config.scale import Variant
from stemrepro.measures.base import condition
from stemrepro.measures.comparison import (
    loss,
    no_gain_without_information,
    own_is_common,
    pair_of_losses,
    variant_losses,
)
from stemrepro.measures.losses import ArmLosses, arm_losses
from stemrepro.measures.reading import difference
from stemrepro.measures.scores import Scores
from stemrepro.verdicts.effect import Effect, Unmeasured
from stemrepro.verdicts.rule import CONFOUNDED, TOO_SHORT

__all__ = ["loss", "no_gain_without_information"]  # of comparison, for recipes
WINDOW, DEVIATIONS, SKIPPED = 50, 6.0, 0.1
"""A spike is a step above the median of the WINDOW steps before by more than DEVIATIONS times their median absolute
deviation (scaled to a standard deviation), after the first SKIPPED share of the run. Neighbours are one spike."""
EXPECTED = 1.0
"""Spikes that must be expected in all seeds together, by the paper's rate for Hash-MoE, for a count to be testable."""
CLEARED = 0.5
"""Nats below token frequencies at which dense must end in a short run at the common rate."""
EARLY = ("stem-third", "hash-moe")
"""The arms that the paper compares early in training."""
SPIKES = ("largest_at", "second_at", "third_at")
"""Columns of the paper's fig-5a-spikes that name one after the first 5e10 tokens."""


def spike_limits(loss: np.ndarray) -> np.ndarray:
    """Return the loss above which each step would be a spike, infinite where nobody looks; loss [steps]."""
    limits, start = np.full(len(loss), np.inf), max(WINDOW, int(SKIPPED * len(loss)))
    if start < len(loss):
        before = np.lib.stride_tricks.sliding_window_view(loss[start - WINDOW : -1], WINDOW)
        median = np.median(before, axis=1)
        deviation = 1.4826 * np.median(np.abs(before - median[:, None]), axis=1)
        limits[start:] = median + DEVIATIONS * deviation
    return limits


def spike_steps(loss: np.ndarray) -> np.ndarray:
    """Return the steps at which a spike begins; loss [steps]. Steps whose loss is NaN are spikes."""
    limits = spike_limits(loss)
    high = (limits != np.inf) & ~(loss <= limits)
    return np.flatnonzero(high & ~np.roll(high, 1))


def rate(series: np.ndarray) -> np.ndarray:
    """Return the spikes per thousand steps of each seed; series [seeds, steps]."""
    return np.array([1000 * len(spike_steps(values)) / counted(series) for values in series])


def counted(series: np.ndarray) -> int:
    """Return the steps among which `spike_steps` looks, at least 1; series [seeds, steps]."""
    return max(1, series.shape[1] - max(WINDOW, int(SKIPPED * series.shape[1])))


def coincidence(first: np.ndarray, second: np.ndarray) -> tuple[float, float]:
    """Return the shares of `first`'s spikes that `second` has too, within a step; both [seeds, steps].

    The first share is that of runs of the same seed, which saw the same batches, the second that of other seeds. Where
    the first is larger, batches make spikes. A share without spikes is NaN.
    """
    hits: dict[bool, list[bool]] = {True: [], False: []}
    for (i, one), (j, other) in product(enumerate(first), enumerate(second)):
        others = spike_steps(other)
        hits[i == j] += [bool((np.abs(others - step) <= 1).any()) for step in spike_steps(one)]
    same, apart = (float(np.mean(hits[key])) if hits[key] else float("nan") for key in (True, False))
    return same, apart


def end(arm: ArmLosses) -> np.ndarray:
    """Return the mean training loss over the last tenth of the steps, by seed; infinite where it became NaN."""
    loss = arm.steps["loss"]
    return np.nan_to_num(loss[:, -max(1, loss.shape[1] // 10) :].mean(axis=1), nan=np.inf)


def start(arm: ArmLosses) -> np.ndarray:
    """Return the training loss at initialisation, that of the first step, by seed."""
    return arm.steps["loss"][:, 0]


def _by_rate(runs: list[ArmLosses]) -> tuple[np.ndarray, list[ArmLosses]]:
    """Return the learning rates of an arm's runs, rising, and the runs in this order."""
    ordered = sorted(runs, key=lambda arm: arm.summary["learning_rate"])
    return np.array([arm.summary["learning_rate"] for arm in ordered]), ordered


def excess(runs: list[ArmLosses]) -> np.ndarray:
    """Return the loss at the end of training less the entropy of the training tokens [rates, seeds]; rates rise."""
    return np.stack([end(arm) - arm.summary["training_entropy"] for arm in _by_rate(runs)[1]])


def unlimited(runs: list[ArmLosses]) -> np.ndarray:
    """Return whether an arm learns more than token frequencies at all rates tried, so that its limit is a bound."""
    return np.all(excess(runs) < 0, axis=0)


def rate_limit(runs: list[ArmLosses], base_rate: float) -> np.ndarray:
    """Return log2 of the learning rate at which a short run stops to learn more than token frequencies, by seed.

    It is taken between two rates by a straight line. An arm that learns more at all rates counts as one doubling beyond
    the last, one that learns more at none as the first. A run that merely learns slowly stays at token frequencies too.
    """
    at, limits = np.log2(_by_rate(runs)[0] / base_rate), []
    for losses in excess(runs).T:
        failed = np.flatnonzero(~(losses < 0))
        k = failed[0] if len(failed) else len(at)
        if 0 < k < len(at):
            share = -losses[k - 1] / (losses[k] - losses[k - 1]) if np.isfinite(losses[k]) else 1.0
            limits.append(at[k - 1] + share * (at[k] - at[k - 1]))
        else:
            limits.append(at[0] if k == 0 else at[-1] + 1)
    return np.array(limits)


def sensitivity(runs: list[ArmLosses]) -> np.ndarray:
    """Return an arm's mean deviation from the best loss over the rates tried, in nats, by seed (arXiv 2309.14322).

    The loss at a rate is that at the end of training, at most that at initialisation. Its mean is log-uniform over
    rates, by trapezia over log2 of the rate, so that unevenly spaced rates don't count unevenly.
    """
    rates, ordered = _by_rate(runs)
    at = np.log2(rates)
    loss = np.stack([np.minimum(end(arm), start(arm)) for arm in ordered])
    return np.trapezoid(loss, at, axis=0) / (at[-1] - at[0]) - loss.min(axis=0)


def first_mark(arm: ArmLosses) -> np.ndarray:
    """Return the prose loss at the first mark of training, by seed."""
    curve = arm.whole().curve
    return curve[curve.tokens == curve.tokens.min()].sort_values("seed")["prose"].to_numpy()


def short_runs(scores: Scores, arm: str) -> dict[str, ArmLosses]:
    """Return an arm's short runs by variant: these differ from the scale in learning rate and budget alone.

    They have the smallest budget of the variants with another learning rate than the scale's. Where the recipe has some
    at multiples of its family's own rate, these.
    """
    runs = variant_losses(scores, arm)
    variants = {name: scores.catalog.variants[name] for name in runs}
    budget = min((variant.tokens for variant in variants.values() if variant.learning_rate != 1), default=0)
    short: dict[bool, dict[str, ArmLosses]] = {True: {}, False: {}}
    for name, one in variants.items():
        plain = Variant(tokens=one.tokens, learning_rate=one.learning_rate, tuned=one.tuned)
        if one.tokens == budget and one == plain:
            short[one.tuned][name] = runs[name]
    return short[True] or short[False]


def _spikes(scores: Scores, high: str, low: str, series: str, own: bool) -> Effect | None:
    pair = pair_of_losses(scores, high, low, own=own)
    return difference(*(rate(arm.steps[series]) for arm in pair)) if pair else None


def spikes(scores: Scores, high: str, low: str, own: bool = False) -> Effect | None:
    """Loss spikes per thousand steps."""
    return _spikes(scores, high, low, "loss", own)


def norm_spikes(scores: Scores, high: str, low: str, own: bool = False) -> Effect | None:
    """Spikes of the gradient norm per thousand steps."""
    return _spikes(scores, high, low, "norm", own)


def early(scores: Scores, high: str, low: str, own: bool = False) -> Effect | None:
    """Prose loss at the first mark of training."""
    pair = pair_of_losses(scores, high, low, own=own)
    return difference(*map(first_mark, pair)) if pair else None


def _tried(scores: Scores, high: str, low: str) -> tuple[list[ArmLosses], list[ArmLosses]]:
    """Return two arms' short runs; Unmeasured unless both were tried at the same multiples of a rate.

    Else the one that was also tried at lower ones would seem more sensitive.
    """
    one, other = (short_runs(scores, arm) for arm in (high, low))
    rates = [sorted(scores.catalog.variants[name].learning_rate for name in runs) for runs in (one, other)]
    if not one or rates[0] != rates[1]:
        raise Unmeasured(f"{high} and {low} have no short runs at the same high rates")
    return list(one.values()), list(other.values())


def _at_own_rates(scores: Scores, *arms: str) -> bool:
    """Tell whether arms' short runs are at their own studied settings, which aren't the common ones of all."""
    variants, common = scores.catalog.variants, [own_is_common(scores, arm) for arm in arms]
    tuned = [all(variants[name].tuned for name in short_runs(scores, arm)) for arm in arms]
    return None not in common and not all(common) and all(map(any, zip(common, tuned, strict=True)))


def learning_rate_limit(scores: Scores, high: str, low: str) -> Effect:
    """Log2 of the learning rate, over the scale's, from which on a short run learns no more than token frequencies.

    Unmeasured where no run of either arm reaches one.
    """
    tried = _tried(scores, high, low)
    neither = np.logical_and(*map(unlimited, tried))
    if neither.any():
        lost = f"in {neither.sum()} of {len(neither)} seeds both arms"
        raise Unmeasured(f"{lost} learn more than token frequencies at every rate that was tried")
    return difference(*(rate_limit(runs, scores.scale.learning_rate) for runs in tried))


def rate_sensitivity(scores: Scores, high: str, low: str, own: bool = False) -> Effect | None:
    """Short runs' mean loss over the learning rates tried less the lowest.

    `own` only asks whether these are multiples of each arm's own rate.
    """
    tried = _tried(scores, high, low)
    return None if own and not _at_own_rates(scores, high, low) else difference(*map(sensitivity, tried))


@condition(TOO_SHORT)
def spikes_expected(scores: Scores) -> str | None:
    """At the rate of the paper's Hash-MoE (Fig. 5a) an arm's runs lead one to expect a spike."""
    paper, scale = scores.catalog.paper, scores.scale
    seen = sum(np.isfinite(paper.value(f"fig-5a-spikes/hash-moe/{column}")) for column in SPIKES)
    shown = 1e11 * float(paper.blocks["fig-5a"].columns[-1])
    steps = arm_losses(scores, scores.recipe.arms[0]).steps["loss"].size
    expected = seen * steps * scale.training.batch * scale.model.sequence / shown
    if expected >= EXPECTED:
        return None
    return f"at the paper's rate all runs of an arm lead one to expect {expected:.1g} spikes, fewer than {EXPECTED:g}"


@condition(CONFOUNDED)
def equally_warm(scores: Scores) -> str | None:
    """At their own studied settings both arms have warmed up by the first mark of training, or for as long.

    Else the one whose warm-up is shorter has had the higher rates by then. Common settings have one warm-up for all.
    """
    training, families = scores.scale.training, (scores.catalog.arms[arm].family for arm in EARLY)
    tuned = [best for arm in zip(EARLY, families, strict=True) if (best := scores.scale.tuned_of(*arm))]
    shares = [best.warmup or training.warmup or 0.0 for best in tuned]
    if len(tuned) < len(EARLY) or len(set(shares)) == 1 or max(shares) <= 1 / training.evals:
        return None
    parts = " and ".join(f"{arm}'s {100 * share:.1f}%" for arm, share in zip(EARLY, shares, strict=True))
    mark = f"the first mark is after {100 / training.evals:.0f}% of the tokens"
    return f"{mark}, and at own settings warm-up takes {parts} of them"


@condition(TOO_SHORT, ("dense",))
def dense_clears_unigram(scores: Scores) -> str | None:
    """A short run of dense at the common rate learns more than token frequencies."""
    variants, runs = scores.catalog.variants, short_runs(scores, "dense")
    at_common = [run for name, run in runs.items() if variants[name].learning_rate == 1]
    if not at_common:
        budget = " and ".join(sorted({f"{variants[name].tokens:g}" for name in runs})) or "any share"
        where = f"at the common rate (a variant with rate 1 and {budget} of the tokens)"
        return f"no short run of dense {where} says that it leaves token frequencies there"
    low, high = Effect(-excess(at_common).mean(axis=0)).interval(0.05)
    if high < CLEARED:
        below = f"ends {low:.2f} to {high:.2f} nats (95%) below token frequencies"
        return f"a short run of dense at the common rate {below}; {CLEARED:g} are needed"
    return None
