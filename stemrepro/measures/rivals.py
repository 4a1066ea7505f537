"""What of STEM's gain is left over half of it: metrics of recipes/rivals.yaml."""

from stemrepro.measures.comparison import Comparison
from stemrepro.measures.metric import metric
from stemrepro.verdicts.contrast import Contrast


class Rivals(Comparison):
    """A comparison, and what the second arm takes off dense's loss beyond the first."""

    @metric("half-of-gain", "(high - low) less half of (dense - low), prose loss")
    def half_of_gain(self, high: str, low: str) -> Contrast:
        part = self.loss(high, low, "prose").differences
        gain = self.loss("dense", low, "prose").differences
        return Contrast(part - gain / 2)
