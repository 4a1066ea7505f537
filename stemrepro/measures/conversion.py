"""What rows in the place of up-projections cost a published model: metrics of recipes/conversion.yaml.

A published model has no seeds. Intervals are over the held-out sequences: each is left out once (jackknife).
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from stemrepro.measures.base import Measure
from stemrepro.measures.inputs import Inputs
from stemrepro.measures.metric import Field, metric
from stemrepro.measures.reading import read_table
from stemrepro.verdicts.contrast import Contrast, jackknife

LAYERS = ("third", "half", "full", "early", "late")
OVER, CHOSEN = "sequences", ("linear", 2.0)
"""Units of the intervals; the prior of rows that all studies use, and how many places the prior counts for."""


class Conversion(Measure):
    """Losses of held-out text with rows, at once and after a training."""

    study, over = "conversion", "held-out sequences of text"
    fields: ClassVar[dict[str, Field]] = {"layers": LAYERS, "first": LAYERS, "second": LAYERS}

    def __init__(self, inputs: Inputs) -> None:
        import pandas as pd  # a second that reading recipes can do without

        super().__init__(inputs)
        home = inputs.folder / self.study
        names = sorted(path.stem for path in home.glob("trained-*.parquet")) or ["trained"]
        self.training = pd.concat([read_table(home, name) for name in names])
        self.steps = sorted(int(step) for step in self.training["step"].unique())
        at_once, priors = (read_table(home, name) for name in ("at-once", "priors"))
        self.at_once = dict(iter(at_once.groupby(["placement", "kind"])))
        self.priors = dict(iter(priors.groupby(["placement", "prior", "few"])))

    def cost(self, placement: str, kind: str = "rows") -> Contrast:
        """Return what the loss rises by at once with rows, or with a control, in nats per token."""
        return _over(self.at_once[placement, kind], self.at_once["none", "dense"])

    def gap(self, arm: str, step: int) -> Contrast:
        """Return what an arm's loss is above that of dense trained on the same tokens, in nats per token."""
        return _over(self._after(arm, step), self._after("dense", step))

    def prior(self, placement: str, prior: str, few: float) -> Contrast:
        """Return what the loss of the text for tuning is with a prior of rows, above that with the chosen one."""
        return _over(self.priors[placement, prior, few], self.priors[placement, *CHOSEN])

    def gain(self, step: int) -> Contrast:
        """Return what dense's training takes off its loss, in nats per token."""
        return _over(self._after("dense", 0), self._after("dense", step))

    def _after(self, arm: str, step: int) -> object:
        rows = self.training[(self.training["arm"] == arm) & (self.training["step"] == step)]
        return rows.sort_values("sequence")

    @metric("loss:{layers}", "loss at once, in these layers")
    def loss(self, high: str, low: str, layers: str) -> Contrast:
        return _over(self.at_once[layers, high], self.at_once[layers, low])

    @metric("layers:{first}>{second}", "loss at once of one set of layers, less that of another")
    def sets(self, high: str, low: str, first: str, second: str) -> Contrast:
        return _over(self.at_once[first, high], self.at_once[second, low])

    @metric("trained", "loss after the training")
    def trained(self, high: str, low: str) -> Contrast:
        return _over(self._after(high, self.steps[-1]), self._after(low, self.steps[-1]))

    @metric("given-back", "share that the training gives back of what the first arm costs, in percent, less half")
    def given_back(self, high: str, low: str) -> Contrast:
        return self.share_given_back(high, self.steps[-1], 50.0)

    def share_given_back(self, arm: str, step: int, less: float = 0.0) -> Contrast:
        """Return the share of an arm's cost at once that a training gives back, against dense's, in percent."""
        pairs = [(self._after(arm, of), self._after("dense", of)) for of in (0, step)]
        sums = np.stack([(first["nats"].to_numpy() - second["nats"].to_numpy()) for first, second in pairs])
        return jackknife(lambda kept: 100 * float(1 - kept[1].sum() / kept[0].sum()) - less, sums, OVER)


def _over(first, second) -> Contrast:  # type: ignore[no-untyped-def]
    """Return the difference of two losses of the same sequences, in nats per token."""
    sums = np.stack([first["nats"].to_numpy() - second["nats"].to_numpy(), first["tokens"].to_numpy()])
    return jackknife(lambda kept: float(kept[0].sum() / kept[1].sum()), sums, OVER)
