"""Two things timed in turns: every round takes one turn of each, in another order each time.

What else the machine does in the meantime so falls on both.
"""

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from scipy.stats import bootstrap

Bound = Literal["at least", "at most"]
Turn = Callable[[int], object]
"""Does its work once; the number of the round, equal for all that are compared, chooses the data."""


@dataclass(frozen=True)
class Row:
    """Ours compared with a peer's.

    Attributes:
        measure: which of the five measurements it belongs to.
        what, peer: what is compared with what.
        unit: of `ours` and `theirs`, medians over rounds.
        ratio, low, high: ours / theirs with the ends of its 95% interval; None where nothing was measured.
        bound, target: what the ratio should be; "" and None where nothing was set.
        met: "yes" where the whole interval keeps to the target, else "no"; "" without a target or a measurement.
        flop_ratio: FLOPs of ours / theirs by stemrepro/model/cost.py, where times are compared with it.
        note: why nothing was measured, or what else a reader needs.
    """

    measure: str
    what: str
    peer: str
    unit: str
    ours: float | None = None
    theirs: float | None = None
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    bound: Bound | Literal[""] = ""
    target: float | None = None
    met: Literal["yes", "no", ""] = ""
    flop_ratio: float | None = None
    note: str = ""


def interleaved(
    turns: Mapping[str, Turn], rounds: int, tick: Callable[[], None], warm_up: int = 3, device: str = "cpu",
    cpu_time: bool = False,
) -> dict[str, np.ndarray]:  # fmt: skip
    """Return the seconds of each turn in each round, [rounds]; earlier rounds warm up.

    Args:
        tick: called after each round that counts.
        cpu_time: count this process's seconds on a processor, not those on the wall.
    """
    seconds, order = {name: np.empty(rounds) for name in turns}, list(turns)
    clock = time.process_time if cpu_time else time.perf_counter
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    for number in range(-warm_up, rounds):
        random.Random(number + warm_up).shuffle(order)
        for name in order:
            wait()
            start = clock()
            turns[name](number + warm_up)
            wait()
            if number >= 0:
                seconds[name][number] = clock() - start
        if number >= 0:
            tick()
    return seconds


def quotient(ours: np.ndarray, theirs: np.ndarray) -> tuple[float, float, float]:
    """Return median of ours / median of theirs, both [rounds], with the ends of its 95% interval.

    The interval is a percentile bootstrap over whole rounds.
    """

    def statistic(a: np.ndarray, b: np.ndarray, axis: int) -> np.ndarray:
        return np.median(a, axis=axis) / np.median(b, axis=axis)

    interval = bootstrap(
        (ours, theirs), statistic, paired=True, vectorized=True, method="percentile", n_resamples=2000, rng=0
    ).confidence_interval
    return float(statistic(ours, theirs, 0)), float(interval.low), float(interval.high)


def compared(
    measure: str, what: str, peer: str, unit: str, ours: np.ndarray, theirs: np.ndarray, work: float | None = None,
    bound: Bound | Literal[""] = "", target: float | None = None, flop_ratio: float | None = None, note: str = "",
) -> Row:  # fmt: skip
    """Return a row of seconds by round.

    Args:
        ours, theirs: seconds [rounds] of the same rounds.
        work: amount done in a turn, of what `unit` counts per second; None where times are compared, in milliseconds.
    """
    if work is None:
        sizes, (ratio, low, high) = (1e3 * np.median(ours), 1e3 * np.median(theirs)), quotient(ours, theirs)
    else:
        sizes, (ratio, low, high) = (work / np.median(ours), work / np.median(theirs)), quotient(theirs, ours)
    met = ""
    if bound:
        met = "yes" if (low >= target if bound == "at least" else high <= target) else "no"
    return Row(
        measure, what, peer, unit, *map(float, sizes), ratio, low, high, bound, target, met, flop_ratio, note
    )  # fmt: skip
