"""How long prefill and decoding of a published model take, with tables and dense: metrics of recipes/serving.yaml.

Times of two arms are compared within a round of one process. Intervals are over the rounds, of one machine on one day.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

from stemrepro.measures.scores import Scores
from stemrepro.measures.study import rows, table
from stemrepro.verdicts.effect import Effect, Unmeasured

if TYPE_CHECKING:
    import pandas as pd

STUDY, OVER, TIMES = "serving", "rounds of timing", "times"
KINDS = ("float32", "bfloat16")
Phase = Literal["decode", "prefill"]
Kind = Literal["float32", "bfloat16"]


def rounds(scores: Scores, arm: str, phase: str, kind: str, batch: int, context: int) -> pd.DataFrame:
    """Return an arm's rounds in their order; Unmeasured where it took no part."""
    found = rows(scores, STUDY, TIMES, phase=phase, kind=kind, batch=batch, context=context, arm=arm)
    if arm in ("cold", "cold-ahead") and found["disk"].median() < found["rows"].median() / 2:
        raise Unmeasured("rows of a cold file came from memory: it lies in memory, or other programs read it")
    return found.sort_values("round")


def _ratios(scores: Scores, high: str, low: str, phase: str, kind: str, batch: int, context: int) -> np.ndarray:
    first, second = (rounds(scores, arm, phase, kind, batch, context)["seconds"].to_numpy() for arm in (high, low))
    return first / second


def _bytes(scores: Scores, arm: str, kind: str, batch: int, context: int) -> int:
    return int(rounds(scores, arm, "decode", kind, batch, context)["bytes"].iloc[0])


def times_as_long(scores: Scores, high: str, low: str, phase: Phase, kind: Kind, batch: int, context: int) -> Effect:
    """Time of the first arm over the second's, in percent."""
    return Effect(100 * _ratios(scores, high, low, phase, kind, batch, context), over="rounds")


def saves(scores: Scores, high: str, low: str, phase: Phase, kind: Kind, batch: int, context: int) -> Effect:
    """Time of the second arm that the first saves, in percent."""
    return Effect(100 * (1 - _ratios(scores, high, low, phase, kind, batch, context)), over="rounds")


def slower(scores: Scores, high: str, low: str, phase: Phase, kind: Kind, batch: int, context: int) -> Effect:
    """Time that the first arm takes beyond the second's, in percent."""
    return Effect(100 * (_ratios(scores, high, low, phase, kind, batch, context) - 1), over="rounds")


def through(scores: Scores, high: str, low: str, kind: Kind, batch: int, context: int) -> Effect:
    """Share of the bytes that the first arm reads less which its time is less by, in percent, less half."""
    part = (kind, batch, context)
    less = 1 - _bytes(scores, high, *part) / _bytes(scores, low, *part)
    return Effect(100 * (1 - _ratios(scores, high, low, "decode", *part)) / less - 50, over="rounds")


def relative_rate(scores: Scores, high: str, low: str, kind: Kind, batch: int, context: int) -> Effect:
    """Bytes that the first arm reads in a second over the second's, in percent."""
    part = (kind, batch, context)
    share = _bytes(scores, "dense" if high == "hugging-face" else high, *part) / _bytes(scores, low, *part)
    return Effect(100 * share / _ratios(scores, high, low, "decode", *part), over="rounds")


def reaches(scores: Scores, high: str, low: str, kind: Kind, batch: int, context: int) -> Effect:
    """Bytes a second of the first arm over the second's, less 90%."""
    return Effect(relative_rate(scores, high, low, kind, batch, context).differences - 90, over="rounds")


def uncounted(scores: Scores) -> float:
    """Largest difference between counted bytes of a pass and the closed form, in bytes."""
    times = table(scores, STUDY, TIMES)
    return float((times["bytes"] - times["counted"]).abs().max())


def rate(scores: Scores, kind: Kind) -> float:
    """Bytes a second of a plain product, 10^9, median over rounds."""
    product = rounds(scores, "bandwidth", "decode", kind, 1, 128)
    return float((product["bytes"] / product["seconds"]).median() / 1e9)


def disk(scores: Scores, kind: Kind) -> float:
    """Bytes from the disk over those of the rows that a cold token reads, in percent."""
    cold = rounds(scores, "cold", "decode", kind, 1, 128)
    return float(100 * (cold["disk"] / cold["rows"]).median())
