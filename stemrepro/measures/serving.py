"""How long prefill and decoding of a published model take, with tables and dense: metrics of recipes/serving.yaml.

Times of two arms are compared within a round of one process. Intervals are over the rounds, of one machine on one day.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from stemrepro.measures.base import Measure
from stemrepro.measures.inputs import Inputs
from stemrepro.measures.metric import WHOLE, Field, metric
from stemrepro.measures.reading import read_table
from stemrepro.verdicts.contrast import Contrast, Unmeasured

if TYPE_CHECKING:
    import pandas as pd

KINDS = ("float32", "bfloat16")
HALF, NINE_TENTHS = 50.0, 90.0
COLD = ("cold", "cold-ahead")


class Serving(Measure):
    """Seconds of a pass by arm, type of number, sequences and tokens of context, round by round."""

    study, over = "serving", "rounds of timing"
    fields: ClassVar[dict[str, Field]] = {
        "phase": ("decode", "prefill"), "kind": KINDS, "batch": WHOLE, "context": WHOLE,
    }  # fmt: skip

    def __init__(self, inputs: Inputs) -> None:
        import pandas as pd  # a second that reading recipes can do without

        super().__init__(inputs)
        home = inputs.folder / self.study
        names = sorted(path.stem for path in home.glob("*-*.parquet")) or ["decode-float32-1-128"]
        self.times = pd.concat([read_table(home, name) for name in names], ignore_index=True)

    @cached_property
    def parts(self) -> dict[tuple[str, str, int, int], pd.DataFrame]:
        """Times by phase, type, sequences and context."""
        return dict(iter(self.times.groupby(["phase", "kind", "batch", "context"])))

    def of(self, arm: str, phase: str, kind: str, batch: int, context: int) -> pd.DataFrame:
        """Return an arm's rounds in their order; Unmeasured where it took no part."""
        part = self.parts.get((phase, kind, batch, context))
        if part is None or arm not in set(part["arm"]):
            raise Unmeasured(f"'{arm}' took no part in {phase}, {kind}, {batch} x {context} tokens")
        rows = part[part["arm"] == arm].sort_values("round")
        if arm in COLD and rows["disk"].median() < rows["rows"].median() / 2:
            raise Unmeasured("rows of a cold file came from memory: it lies in memory, or other programs read it")
        return rows

    def ratios(self, high: str, low: str, *part: str | int) -> np.ndarray:
        """Return an arm's time over another's, by round."""
        first, second = (self.of(arm, *part)["seconds"].to_numpy() for arm in (high, low))
        return first / second

    def times_as_long(self, high: str, low: str, *part: str | int) -> Contrast:
        """Return an arm's time over another's, in percent."""
        return Contrast(100 * self.ratios(high, low, *part), over="rounds")

    @metric("saves:{phase}:{kind}:{batch}:{context}", "time of the second arm that the first saves, in percent")
    def saves(self, high: str, low: str, phase: str, kind: str, batch: int, context: int) -> Contrast:
        return Contrast(100 * (1 - self.ratios(high, low, phase, kind, batch, context)), over="rounds")

    @metric("slower:{phase}:{kind}:{batch}:{context}", "time that the first arm takes beyond the second's, in percent")
    def slower(self, high: str, low: str, phase: str, kind: str, batch: int, context: int) -> Contrast:
        return Contrast(100 * (self.ratios(high, low, phase, kind, batch, context) - 1), over="rounds")

    def bytes_of(self, arm: str, *part: str | int) -> int:
        """Return the bytes that a pass of decoding reads, in closed form."""
        return int(self.of(arm, "decode", *part)["bytes"].iloc[0])

    @metric(
        "through:{kind}:{batch}:{context}",
        "share of the bytes that the first arm reads less which its time is less by, in percent, less half",
    )
    def through(self, high: str, low: str, kind: str, batch: int, context: int) -> Contrast:
        part = (kind, batch, context)
        less = 1 - self.bytes_of(high, *part) / self.bytes_of(low, *part)
        return Contrast(100 * (1 - self.ratios(high, low, "decode", *part)) / less - HALF, over="rounds")

    @metric("reaches:{kind}:{batch}:{context}", "bytes a second of the first arm over the second's, less 90%")
    def reaches_enough(self, high: str, low: str, kind: str, batch: int, context: int) -> Contrast:
        return Contrast(self.reaches(high, low, kind, batch, context).differences - NINE_TENTHS, over="rounds")

    def reaches(self, high: str, low: str, *part: str | int) -> Contrast:
        """Return the bytes that an arm reads in a second over another's, in percent."""
        share = self.bytes_of("dense" if high == "hugging-face" else high, *part) / self.bytes_of(low, *part)
        return Contrast(100 * share / self.ratios(high, low, "decode", *part), over="rounds")

    @metric("uncounted", "largest difference between counted bytes of a pass and the closed form, in bytes", exact=True)
    def uncounted(self) -> float:
        return float((self.times["bytes"] - self.times["counted"]).abs().max())

    @metric("rate:{kind}", "bytes a second of a plain product, 10^9, median over rounds", exact=True)
    def rate(self, kind: str) -> float:
        rows = self.of("bandwidth", "decode", kind, 1, 128)
        return float((rows["bytes"] / rows["seconds"]).median() / 1e9)

    @metric("disk:{kind}", "bytes from the disk over those of the rows that a cold token reads, in percent", exact=True)
    def disk(self, kind: str) -> float:
        rows = self.of("cold", "decode", kind, 1, 128)
        return float(100 * (rows["disk"] / rows["rows"]).median())
