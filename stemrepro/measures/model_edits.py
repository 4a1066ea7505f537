"""What edits of a published model do: metrics of recipes/model_editing.yaml.

A published model has no seeds. Intervals are over countries: each is left out once, with all pairs that hold it.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from stemrepro.measures.base import Measure
from stemrepro.measures.inputs import Inputs
from stemrepro.measures.metric import NAME, Field, metric
from stemrepro.measures.reading import read_table
from stemrepro.verdicts.contrast import Contrast, jackknife, left_out, logits_of

if TYPE_CHECKING:
    import pandas as pd

MODELS = ("published", "converted")


class ModelEdits(Measure):
    """Shares of pairs of countries in which an edit makes the target's answer the first choice, in percent."""

    study, over = "edits", "countries"
    fields: ClassVar[dict[str, Field]] = {
        "model": MODELS, "layers": ("third", "half", "full", "all"), "first": NAME, "second": NAME,
    }  # fmt: skip

    def __init__(self, inputs: Inputs) -> None:
        import pandas as pd  # a second that reading recipes can do without

        super().__init__(inputs)
        home = inputs.folder / self.study
        names = sorted(path.stem for path in home.glob("edits-*.parquet")) or ["edits"]
        self.edits = pd.concat([read_table(home, name) for name in names])
        self.examples, damage = (read_table(home, name) for name in ("examples", "damage"))
        self.damaged = dict(iter(damage.groupby("layers")))

    @cached_property
    def pairs(self) -> dict[tuple[str, str, str, str], pd.DataFrame]:
        """Edits by relation, model, method and layers."""
        return dict(iter(self.edits.groupby(["relation", "model", "method", "layers"])))

    def of(self, method: str, layers: str, model: str = "published", relation: str = "capital") -> pd.Series:
        """Return the successes of an edit in percent, by source and target."""
        rows = self.pairs[relation, model, method, layers].set_index(["source", "target"])
        return 100.0 * rows["success"].astype(float)

    def share(self, method: str, layers: str, model: str = "published", relation: str = "capital") -> Contrast:
        """Return the share of pairs in which an edit succeeds, in percent."""
        return over_countries(self.of(method, layers, model, relation))

    @metric(
        "success:{layers}[:{model}]",
        "pairs in which the first arm's edit makes the target's answer the first choice, less the second's",
    )
    def success(self, high: str, low: str, layers: str, model: str = "published") -> Contrast:
        return over_countries(self.of(high, layers, model), self.of(low, layers, model))

    @metric("over-input:{layers}", "the same of rows, less those in which the target's input embedding does so")
    def over_input(self, high: str, low: str, layers: str) -> Contrast:
        return over_countries(self.of(high, layers), self.of(low, "all"))

    @metric("layers:{first}>{second}", "the same of one set of layers, less that of another")
    def sets(self, high: str, low: str, first: str, second: str) -> Contrast:
        return over_countries(self.of(high, first), self.of(low, second))

    @metric("damage:{layers}", "loss of text from a name on, with another's rows at the name")
    def damage(self, high: str, low: str, layers: str) -> Contrast:
        return self.harm(layers)

    def harm(self, layers: str) -> Contrast:
        """Return what the loss of text that holds a name rises by from the name on, in nats per token."""
        rows = self.damaged[layers].assign(rise=lambda row: row["nats"] - row["dense"])
        sums = rows.groupby("sequence")[["rise", "tokens"]].sum().to_numpy().T
        return jackknife(lambda kept: float(kept[0].sum() / kept[1].sum()), sums, "sequences")


def over_countries(first: pd.Series, second: pd.Series | None = None) -> Contrast:
    """Return the share of pairs of countries, or a difference of two, in percent, with its interval on logits.

    Each country is left out once, with all pairs that hold it. A share is known to one pair, so that its variance is at
    least the square of what one pair moves.

    Args:
        first: 100 where an edit succeeds, else 0, by source and target.
        second: the same pairs, of another edit.
    """
    names, members = np.unique(np.array([list(pair) for pair in first.index]), return_inverse=True)
    left, right = members.reshape(-1, 2).T
    series = [each.to_numpy() for each in (first, second) if each is not None]
    signs = np.array([1.0, -1.0])[: len(series)]

    def means(kept: np.ndarray) -> tuple[np.ndarray, int]:
        inside = np.isin(left, kept) & np.isin(right, kept)
        return np.array([values[inside].mean() for values in series]), int(inside.sum())

    every = np.arange(len(names))
    points = left_out(lambda kept: float(signs @ means(kept)[0]), every)
    logits = left_out(lambda kept: float(signs @ logits_of(*means(kept))[0]), every)
    whole, steps = logits_of(*means(every))
    least = len(every) * float(np.mean(steps**2))
    spread = (max(float(np.var(logits, ddof=1)), least), len(every) - 1.0)
    other = np.full(len(every), whole[1]) if second is not None else None
    return Contrast(points, spread=spread, logits=logits, other=other, over="countries")
