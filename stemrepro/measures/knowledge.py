"""Facts that models know, and their edits by reading other rows: metrics of recipes/knowledge_editing.yaml.

Shares are in points, of the cases whose two prompts a seed answered right before the edit. Pairs share countries on
both sides, so the error between items leaves out whole countries in turn (`pair_error`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np

from stemrepro.common.errors import UserError, unknown
from stemrepro.measures.base import Level, condition
from stemrepro.measures.reading import arm_table, array
from stemrepro.measures.scores import Scores, kept
from stemrepro.verdicts.effect import Effect, of_share, of_shares

if TYPE_CHECKING:
    import pandas as pd
from stemrepro.verdicts.rule import TOO_SMALL

Share = Literal["success", "kept", "new", "old"]
"""Results of a trial that are shares: does the target's answer, or still the source's, come first, and what are their
probabilities?"""
LEARNT, LEAD, PAIRS = 80.0, 50.0, 50
"""Points of the told facts that dense must recall, how many more than of the untold, and pairs STEM full must know."""


def recall(scores: Scores, arm: str, told: bool, held_out: bool = True) -> Level:
    """Return the points of facts, told in training or not, whose answer is an arm's first choice.

    They are of the held-out template, the last prompt, or of those trained on.
    """
    first = array(arm_table(scores, "answers", arm), "first", "seed", "fact", "prompt")
    which = arm_table(scores, "facts", arm)["told"].to_numpy(bool) == told
    right = first[:, which, -1:] if held_out else first[:, which, :-2]
    return Level(100 * right.mean(axis=(1, 2)), float(which.sum()))


@dataclass(frozen=True)
class Trials:
    """What a method did in an arm.

    Attributes:
        lines: by seed and case: known (before the edit), success, kept, new, old, to_target, to_source.
        cases: source, target, relation, ambiguous, rare of each.
    """

    lines: pd.DataFrame
    cases: pd.DataFrame

    def values(self, field: str) -> np.ndarray:
        """Return a result [seeds, cases]."""
        return array(self.lines, field, "seed", "case").astype(float)

    @cached_property
    def known(self) -> np.ndarray:
        """Whether both prompts were answered right before the edit [seeds, cases]."""
        return array(self.lines, "known", "seed", "case")

    @cached_property
    def pairs(self) -> np.ndarray:
        """Source and target of each case, in a word [cases]."""
        return (self.cases["source"] + ">" + self.cases["target"]).to_numpy()

    def contrast(self, values: np.ndarray, kept: np.ndarray) -> Effect:
        """Return means of values over the cases kept [seeds, cases], with the error between countries."""
        error = pair_error(values, kept, self.cases["source"].to_numpy(), self.cases["target"].to_numpy())
        return Effect(_mean(values, kept), error)

    def share(self, values: np.ndarray) -> Effect:
        """Return the mean of shares [seeds, cases] over the cases that were known, in points."""
        plain = self.contrast(100 * values, self.known)
        return of_share(plain.differences, self.known.sum(axis=1), plain.item_se)

    def shares(self, first: np.ndarray, second: np.ndarray, kept: np.ndarray) -> Effect:
        """Return the same of the difference of two shares in points [seeds, cases], with its interval on logits."""
        error = self.contrast(first - second, kept).item_se
        return of_shares(_mean(first, kept), _mean(second, kept), kept.sum(axis=1), error)


def _mean(values: np.ndarray, kept: np.ndarray) -> np.ndarray:
    """Return the means of each seed over the cases that it keeps [seeds]; NaN where it keeps none."""
    counted = kept.sum(axis=1).astype(float)
    return np.where(kept, values, 0).sum(axis=1) / np.where(counted > 0, counted, np.nan)


def pair_error(values: np.ndarray, kept: np.ndarray, first: np.ndarray, second: np.ndarray) -> float:
    """Return the standard error between countries of the mean over seeds of each seed's mean over the pairs it keeps.

    It is the delete-one jackknife over countries. A bootstrap would give too small an error for few countries: one that
    is drawn twice makes no pair with itself. NaN where a seed keeps no pair without some country.

    Args:
        values, kept: [seeds, pairs].
        first, second: names of each pair's countries [pairs].
    """
    names, members = np.unique(np.concatenate([first, second]), return_inverse=True)
    left, right = np.split(members, 2)
    chosen, counted = np.where(kept, values, 0.0), kept.astype(float)
    holds = np.array([(left == number) | (right == number) for number in range(len(names))])
    absent = (~holds[(holds @ counted.T).any(axis=1)]).astype(float)  # without each country that some seed's pairs have
    totals = absent @ counted.T
    if len(totals) < 2 or not (totals > 0).all():
        return float("nan")
    without = ((absent @ chosen.T) / totals).mean(axis=1)
    count = len(without)
    return float(np.sqrt((count - 1) / count * ((without - without.mean()) ** 2).sum()))


@kept
def trials(scores: Scores, arm: str, method: str) -> Trials:
    """Return what a method did in an arm; UserError where it wasn't tried."""
    edits = arm_table(scores, "edits", arm)
    if method not in (tried := edits["method"].unique()):
        raise unknown("method", method, tried, f"{scores.folder}/edits.parquet of {arm}")
    lines = edits[edits["method"] == method]
    lines = lines.merge(arm_table(scores, "known", arm), on=["seed", "case"], validate="many_to_one")
    return Trials(lines, arm_table(scores, "cases", arm).set_index("case").loc[lines["case"].unique()])


def share_of(scores: Scores, arm: str, field: Share, method: str) -> Effect:
    """Return points of a method's cases in one arm, of those that were known before the edit."""
    edits = trials(scores, arm, method)
    return edits.share(edits.values(field))


def before(scores: Scores, arm: str) -> Effect:
    """Return the probability of the source's answer before the edit, in points, in the known cases of "rows"."""
    import pandas as pd

    edits, facts = trials(scores, arm, "rows"), arm_table(scores, "facts", arm)
    nats = array(arm_table(scores, "answers", arm), "nats", "seed", "fact", "prompt")[:, :, -1]
    places = pd.Series(range(len(facts)), index=facts.set_index(["entity", "relation"]).index)
    asked = places[list(edits.cases[["source", "relation"]].itertuples(index=False, name=None))].to_numpy()
    return edits.share(np.exp(-nats[:, asked].astype(float)))


def success(scores: Scores, high: str, low: str, method: str, over: str | None = None) -> Effect:
    """Points of the cases in which a method's edit makes the target's answer the first choice.

    Args:
        over: a method that the first arm has instead, on the same cases; the second arm then counts for nothing.
    """
    edits = trials(scores, high, method)
    other = trials(scores, high if over else low, over or method)
    count = min(len(edits.known), len(other.known))
    seeds = (one.lines["seed"].unique()[:count] for one in (edits, other))
    if not (edits.cases.equals(other.cases) and np.array_equal(*seeds)):
        whose = f"'{over}' of it" if over else f"that of {low}"
        raise UserError(f"'{method}' of {high} and {whose} have other cases or seeds")
    first, second = (100 * one.values("success")[:count] for one in (edits, other))
    return edits.shares(first, second, edits.known[:count] & other.known[:count])


def closer(scores: Scores, high: str, low: str, method: str) -> Effect:
    """KL divergence of the edited distribution to the source's prompt less that to the target's, first arm."""
    edits = trials(scores, high, method)
    return edits.contrast(edits.values("to_source") - edits.values("to_target"), edits.known)


def spill(scores: Scores, high: str, low: str, method: str) -> Effect:
    """Of cases where the capital moved, the other relations that moved too, in points above 50, first arm."""
    edits = trials(scores, high, method)
    moved = edits.values("success") > 0
    capital = (edits.cases["relation"] == "capital").to_numpy()
    told = zip(edits.known, edits.known & moved & capital, strict=True)
    with_it = [np.isin(edits.pairs, edits.pairs[moving]) & ~capital & known for known, moving in told]
    return edits.shares(100.0 * moved, np.full(moved.shape, 50.0), np.stack(with_it))


def success_without(scores: Scores, high: str, low: str, label: Literal["ambiguous", "rare"], method: str) -> Effect:
    """Success of a method in cases whose names have no such label less that in the others, points, first arm."""
    edits = trials(scores, high, method)
    has, values = edits.cases[label].to_numpy(bool), 100 * edits.values("success")
    groups = [edits.known & which for which in (~has, has)]
    without, labelled = (edits.contrast(values, kept) for kept in groups)
    count = np.minimum(*(kept.sum(axis=1) for kept in groups))
    return of_shares(without.differences, labelled.differences, count, np.hypot(without.item_se, labelled.item_se))


@condition(TOO_SMALL, ("dense",))
def facts_learnt(scores: Scores) -> str | None:
    """Dense recalls 80% of the told facts in the held-out template, and 50 points fewer untold ones."""
    told, untold = (recall(scores, "dense", told) for told in (True, False))
    lead = of_shares(told.percent, untold.percent, min(told.items, untold.items))
    if told.below(LEARNT) or lead.interval(0.05)[1] < LEAD:
        return f"dense recalls {told.words} of the told facts and {untold.words} of the untold ones"
    return None


@condition(TOO_SMALL, ("stem-full",))
def pairs_known(scores: Scores, method: str) -> str | None:
    """STEM full answers both prompts of 50 pairs right before the edit."""
    edits = trials(scores, "stem-full", method)
    if (count := min(len(set(edits.pairs[known])) for known in edits.known)) < PAIRS:
        return f"both prompts are answered right of {count} pairs; {PAIRS} are needed"
    return None
