"""What of STEM's gain is left over half of it: metrics of recipes/rivals.yaml."""

from typing import ClassVar

from stemrepro.measures.comparison import Comparison
from stemrepro.verdicts.contrast import Contrast


class Rivals(Comparison):
    """A comparison, and the part of dense's loss that the second arm takes off beyond the first."""

    metrics: ClassVar[dict[str, str]] = Comparison.metrics | {
        "half-of-gain": "(high - low) less half of (dense - low), prose loss"
    }

    def contrast(self, high: str, low: str, metric: str) -> Contrast:
        """As a comparison; "half-of-gain": (high - low) less half of (dense - low)."""
        if metric != "half-of-gain":
            return super().contrast(high, low, metric)
        part = super().contrast(high, low, "prose").differences
        gain = super().contrast("dense", low, "prose").differences
        return Contrast(part - gain / 2)
