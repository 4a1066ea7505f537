"""The design of tables: losses, and bits per byte over vocabularies. Metrics of recipes/table_design.yaml."""

import numpy as np

from stemrepro.measures import losses
from stemrepro.measures.comparison import Comparison
from stemrepro.measures.losses import ArmLosses, paired
from stemrepro.measures.metric import metric
from stemrepro.verdicts.contrast import Contrast


class Tables(Comparison):
    """A comparison, also over vocabularies."""

    def vocabularies(self, arm: str) -> dict[int, ArmLosses]:
        """Return an arm's runs by size of the vocabulary, the scale's among them, all of as much text."""
        catalog, scale, at = self.inputs.catalog, self.inputs.scale, self.arms[arm].variants
        others = {
            catalog.variants[name].at(scale).model.vocab: runs
            for name, runs in at.items()
            if catalog.variants[name].vocab != 1
        }
        return dict(sorted({**others, scale.model.vocab: self.arms[arm].losses}.items()))

    @metric("vocabulary", "slope of the difference in bits per byte per doubling of the vocabulary, by seed")
    def over_vocabularies(self, high: str, low: str) -> Contrast:
        first, second = self.vocabularies(high), self.vocabularies(low)
        pairs = [paired(first[size], second[size]) for size in first]
        gaps = [(one.bits_per_byte - other.bits_per_byte).to_numpy() for one, other in pairs]
        return Contrast(losses.slope(np.array(list(first)), np.stack(gaps)))

    def own(self, high: str, low: str, metric: str) -> Contrast | None:
        """Return the same at own rates, of dense against STEM full alone: those of the other arms are not known."""
        has_rates = {high, low} <= {"dense", "stem-full"} and self.parse(metric).fields.get("mix") == "prose"
        return super().own(high, low, metric) if has_rates else None
