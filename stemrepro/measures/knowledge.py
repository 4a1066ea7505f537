"""Facts that models know, and their edits by reading other rows: metrics of recipes/knowledge_editing.yaml.

Shares are in points, of the cases whose two prompts a seed answered right before the edit. Pairs share countries on
both sides, so the error between items leaves out whole countries in turn (stemrepro.measures.clusters).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np

from stemrepro.common.errors import UserError, unknown
from stemrepro.config.address import MAIN, Address
from stemrepro.measures.base import Level, condition
from stemrepro.measures.clusters import pair_error
from stemrepro.measures.reading import ArmScores, array
from stemrepro.measures.scores import Scores, kept
from stemrepro.verdicts.effect import Effect, of_share, of_shares
from stemrepro.verdicts.rule import TOO_SMALL

if TYPE_CHECKING:
    import pandas as pd

Share = Literal["success", "kept", "new", "old"]
"""Results of a trial that are shares: does the target's answer, or still the source's, come first, and what are their
probabilities?"""
LEARNT, LEAD, PAIRS = 80.0, 50.0, 50
"""Points of the told facts that dense must recall, how many more than of the untold, and pairs STEM full must know."""
PRIMARY_RELATION = "capital"


class ArmFacts(ArmScores):
    """An arm's answers to prompts for facts."""

    kind = "facts"

    @cached_property
    def told(self) -> np.ndarray:
        """Whether each fact was told in training [facts]."""
        return self.lines("facts")["told"].to_numpy(bool)

    @cached_property
    def first(self) -> np.ndarray:
        """Whether an answer is the first choice [seeds, facts, prompts]; the last prompt is the held-out template."""
        return array(self.by_seed("answers"), "first", "seed", "fact", "prompt")

    def level(self, told: bool, held_out: bool = True) -> Level:
        """Return the points of facts, told in training or not, whose answer is the first choice.

        It is that in the held-out template, else in those trained on.
        """
        prompts = slice(-1, None) if held_out else slice(None, -2)
        right = self.first[:, self.told == told, prompts]
        return Level(100 * right.mean(axis=(1, 2)), float(right.shape[1]))


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

    def shares(self, first: np.ndarray, second: np.ndarray, kept: np.ndarray) -> Effect:
        """Return the same of the difference of two shares in points [seeds, cases], with its interval on logits."""
        means = (_mean(values, kept) for values in (first, second))
        return of_shares(*means, kept.sum(axis=1), self.contrast(first - second, kept).item_se)


def _mean(values: np.ndarray, kept: np.ndarray) -> np.ndarray:
    """Return the means of each seed over the cases that it keeps [seeds]; NaN where it keeps none."""
    counted = kept.sum(axis=1).astype(float)
    return np.where(kept, values, 0).sum(axis=1) / np.where(counted > 0, counted, np.nan)


class ArmEdits(ArmScores):
    """An arm's answers when it reads another entity's rows."""

    kind = "edits"

    @cached_property
    def _by_method(self) -> dict[str, pd.DataFrame]:
        lines = self.by_seed("edits").merge(self.by_seed("known"), on=["seed", "case"], validate="many_to_one")
        return dict(list(lines.groupby("method", sort=False)))

    @cached_property
    def _cases(self) -> pd.DataFrame:
        return self.lines("cases").set_index("case")

    @property
    def methods(self) -> list[str]:
        return list(self._by_method)

    @property
    def tables(self) -> int:
        return self.summary["tables"]

    def trials(self, method: str) -> Trials:
        """Return what a method did; UserError where it wasn't tried."""
        if method not in self._by_method:
            raise unknown("method", method, self.methods, f"{self.folder}/edits.parquet of {self}")
        lines = self._by_method[method]
        return Trials(lines, self._cases.loc[lines["case"].unique()])


@kept
def arm_facts(scores: Scores, arm: str) -> ArmFacts:
    """Return what an arm knows."""
    return ArmFacts(scores.folder, Address(MAIN, arm))


@kept
def arm_edits(scores: Scores, arm: str) -> ArmEdits:
    """Return the edits of an arm."""
    return ArmEdits(scores.folder, Address(MAIN, arm))


def share_of(scores: Scores, arm: str, field: Share, method: str, known_before: bool = True) -> Effect:
    """Return points of a method's cases in one arm, of those that were known before the edit or of the others."""
    trials = arm_edits(scores, arm).trials(method)
    kept = trials.known == known_before
    plain = trials.contrast(100 * trials.values(field), kept)
    return of_share(plain.differences, kept.sum(axis=1), plain.item_se)


def success(scores: Scores, high: str, low: str, method: str, over: str | None = None) -> Effect:
    """Points of the cases in which a method's edit makes the target's answer the first choice.

    Args:
        over: a method that the first arm has instead, on the same cases; the second arm then counts for nothing.
    """
    trials = arm_edits(scores, high).trials(method)
    other = arm_edits(scores, high if over else low).trials(over or method)
    count = min(len(trials.known), len(other.known))
    seeds = (one.lines["seed"].unique()[:count] for one in (trials, other))
    if not (trials.cases.equals(other.cases) and np.array_equal(*seeds)):
        whose = f"'{over}' of it" if over else f"that of {low}"
        raise UserError(f"'{method}' of {high} and {whose} have other cases or seeds")
    points = (100 * one.values("success")[:count] for one in (trials, other))
    return trials.shares(*points, trials.known[:count] & other.known[:count])


def closer(scores: Scores, high: str, low: str, method: str) -> Effect:
    """KL divergence of the edited distribution to the source's prompt less that to the target's, first arm."""
    trials = arm_edits(scores, high).trials(method)
    return trials.contrast(trials.values("to_source") - trials.values("to_target"), trials.known)


def spill(scores: Scores, high: str, low: str, method: str) -> Effect:
    """Of cases where the capital moved, the other relations that moved too, in points above 50, first arm."""
    trials = arm_edits(scores, high).trials(method)
    moved = trials.values("success") > 0
    capital = (trials.cases["relation"] == PRIMARY_RELATION).to_numpy()
    told = zip(trials.known, trials.known & moved & capital, strict=True)
    with_it = [np.isin(trials.pairs, trials.pairs[moving]) & ~capital & known for known, moving in told]
    return trials.shares(100.0 * moved, np.full(moved.shape, 50.0), np.stack(with_it))


def ambiguous(scores: Scores, high: str, low: str, method: str) -> Effect:
    """Success in cases without an ambiguous name less that in cases with one, points, first arm."""
    return _without_label(arm_edits(scores, high).trials(method), "ambiguous")


def rare(scores: Scores, high: str, low: str, method: str) -> Effect:
    """Success in cases without a rare name less that in cases with one, points, first arm."""
    return _without_label(arm_edits(scores, high).trials(method), "rare")


def _without_label(trials: Trials, label: str) -> Effect:
    has, values = trials.cases[label].to_numpy(bool), 100 * trials.values("success")
    groups = [trials.known & which for which in (~has, has)]
    without, labelled = (trials.contrast(values, kept) for kept in groups)
    count = np.minimum(*(kept.sum(axis=1) for kept in groups))
    error = float(np.hypot(without.item_se, labelled.item_se))
    return of_shares(without.differences, labelled.differences, count, error)


@condition(TOO_SMALL, ("dense",))
def facts_learnt(scores: Scores) -> str | None:
    """Dense recalls 80% of the told facts in the held-out template, and 50 points fewer untold ones."""
    told, untold = (arm_facts(scores, "dense").level(told) for told in (True, False))
    lead = of_shares(told.percent, untold.percent, min(told.items, untold.items))
    if told.below(LEARNT) or lead.interval(0.05)[1] < LEAD:
        return f"dense recalls {told.words} of the told facts and {untold.words} of the untold ones"
    return None


@condition(TOO_SMALL, ("stem-full",))
def pairs_known(scores: Scores, method: str) -> str | None:
    """STEM full answers both prompts of 50 pairs right before the edit."""
    trials = arm_edits(scores, "stem-full").trials(method)
    if (count := min(len(set(trials.pairs[known])) for known in trials.known)) < PAIRS:
        return f"both prompts are answered right of {count} pairs; {PAIRS} are needed"
    return None
