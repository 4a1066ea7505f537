"""What a longer context touches and is worth in a published model: metrics of recipes/model_capacity.yaml.

A published model has no seeds. Intervals are over held-out documents.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar

from stemrepro.measures.base import Measure, Precondition
from stemrepro.measures.inputs import Inputs
from stemrepro.measures.metric import WHOLE, Field, metric
from stemrepro.measures.reading import read_table
from stemrepro.verdicts.contrast import Contrast
from stemrepro.verdicts.rule import CONFOUNDED

if TYPE_CHECKING:
    import pandas as pd

MODELS = ("dense", "third", "full")
OVER = "documents"


class ModelCapacity(Measure):
    """Distinct tokens of documents, and losses of the same tokens after more and less context."""

    study, over = "capacity", "held-out documents"
    fields: ClassVar[dict[str, Field]] = {"length": WHOLE}
    preconditions: ClassVar[dict[str, Precondition]] = {
        "full-reads": Precondition("STEM full's loss is below that of a guess at random", CONFOUNDED, ("full",)),
    }

    def __init__(self, inputs: Inputs) -> None:
        super().__init__(inputs)
        home = inputs.folder / self.study
        self.counts = read_table(home, "counts")
        losses = {model: read_table(home, f"losses-{model}") for model in MODELS}
        self.losses = {
            model: rows.pivot(index="document", columns="context", values="nats") for model, rows in losses.items()
        }

    def untestable(self, metric: str, precondition: str) -> str | None:
        """Return why what context is worth says nothing: a model that is worse than a guess may be less so."""
        if precondition != "full-reads":
            return None
        losses = self.losses["full"]
        loss, guess = losses[losses.columns.min()].mean(), math.log(self.counts["vocab"].iloc[0])
        return f"STEM full's loss is {loss:.1f}, a guess at random has {guess:.1f}" if loss > guess else None

    def touched(self, length: int) -> pd.DataFrame:
        """Return the counts of the documents that have so many tokens."""
        return self.counts[self.counts["length"] == length].set_index("document")

    def worth(self, model: str, context: int) -> pd.Series:
        """Return what so many tokens of context take off the loss after the fewest, by document."""
        losses = self.losses[model]
        return losses[losses.columns.min()] - losses[context]

    @metric("touched:{length}", "parameters of a table's touched rows over those of the up-projection, less 1")
    def over_matrix(self, high: str, low: str, length: int) -> Contrast:
        rows = self.touched(length)
        return Contrast((rows["distinct"] / rows["width"] - 1).to_numpy(), over=OVER)

    @metric(
        "repeated:{length}", "share by which a document's distinct tokens are fewer than those drawn from its source"
    )
    def repeated(self, high: str, low: str, length: int) -> Contrast:
        rows = self.touched(length)
        return Contrast((1 - rows["distinct"] / rows["drawn"]).to_numpy(), over=OVER)

    @metric(
        "worth", "what the longest context takes off the loss after the shortest, of the first arm less the second's"
    )
    def growth(self, high: str, low: str) -> Contrast:
        longest = self.losses[high].columns.max()
        return Contrast((self.worth(high, longest) - self.worth(low, longest)).to_numpy(), over=OVER)
