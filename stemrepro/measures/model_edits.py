"""What edits of a published model do: metrics of recipes/model_editing.yaml.

A published model has no seeds. Intervals are over countries: each is left out once, with all pairs that hold it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

from stemrepro.measures.scores import Scores
from stemrepro.measures.study import rows
from stemrepro.verdicts.effect import Effect, jackknife, jackknife_of_shares

if TYPE_CHECKING:
    import pandas as pd

STUDY, OVER = "edits", "countries"
EDITS, DAMAGE = "edits", "damage"
Layers = Literal["third", "half", "full", "all"]
Model = Literal["published", "converted"]


def _right(scores: Scores, method: str, layers: str, model: str, relation: str = "capital") -> pd.Series:
    """Return the successes of an edit in percent, by source and target."""
    pairs = rows(scores, STUDY, EDITS, relation=relation, model=model, method=method, layers=layers)
    return 100.0 * pairs.set_index(["source", "target"])["success"].astype(float)


def share(scores: Scores, method: str, layers: str, model: str, relation: str) -> Effect:
    """Return the share of pairs in which an edit makes the target's answer the first choice, in percent."""
    return over_countries(_right(scores, method, layers, model, relation))


def success(scores: Scores, high: str, low: str, layers: Layers, model: Model = "published") -> Effect:
    """Pairs in which the first arm's edit makes the target's answer the first choice, less the second's."""
    return over_countries(_right(scores, high, layers, model), _right(scores, low, layers, model))


def over_input(scores: Scores, high: str, low: str, layers: Layers) -> Effect:
    """Such pairs of rows, less those in which the target's input embedding does so."""
    return over_countries(_right(scores, high, layers, "published"), _right(scores, low, "all", "published"))


def layers(scores: Scores, high: str, low: str, first: Layers, over: Layers) -> Effect:
    """Such pairs of one set of layers, less those of another."""
    return over_countries(_right(scores, high, first, "published"), _right(scores, low, over, "published"))


def harm(scores: Scores, layers: str) -> Effect:
    """Return what the loss of text that holds a name rises by from the name on, in nats per token."""
    text = rows(scores, STUDY, DAMAGE, layers=layers).assign(rise=lambda row: row["nats"] - row["dense"])
    sums = text.groupby("sequence")[["rise", "tokens"]].sum().to_numpy().T
    return jackknife(lambda kept: float(kept[0].sum() / kept[1].sum()), sums, "sequences")


def damage(scores: Scores, high: str, low: str, layers: Layers) -> Effect:
    """Loss of text from a name on, with another's rows at the name."""
    return harm(scores, layers)


def over_countries(first: pd.Series, second: pd.Series | None = None) -> Effect:
    """Return the share of pairs of countries, or a difference of two, in percent, with its interval on logits.

    Each country is left out once, with all pairs that hold it.

    Args:
        first: 100 where an edit succeeds, else 0, by source and target.
        second: the same pairs, of another edit.
    """
    names, members = np.unique(np.array([list(pair) for pair in first.index]), return_inverse=True)
    left, right = members.reshape(-1, 2).T
    series = np.stack([each.to_numpy() for each in (first, second) if each is not None])

    def shares(kept: np.ndarray) -> tuple[np.ndarray, int]:
        inside = np.isin(left, kept) & np.isin(right, kept)
        return series[:, inside].mean(axis=1), int(inside.sum())

    return jackknife_of_shares(shares, np.arange(len(names)), "countries")
