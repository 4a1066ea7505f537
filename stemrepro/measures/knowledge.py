"""Facts that models know, and their edits by reading other rows: metrics of recipes/knowledge_editing.yaml.

Shares are in points, of the cases whose two prompts a seed answered right before the edit. Pairs share countries on
both sides, so the error between items leaves out whole countries in turn (stemrepro.measures.clusters).
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from stemrepro.common.errors import UserError
from stemrepro.measures.base import Level, Measure, Precondition
from stemrepro.measures.clusters import pair_error
from stemrepro.measures.metric import NAME, Field, metric
from stemrepro.measures.reading import ArmScores, read_csv, read_npz
from stemrepro.verdicts.contrast import Contrast, of_share, of_shares
from stemrepro.verdicts.rule import TOO_SMALL

if TYPE_CHECKING:
    import pandas as pd


class ArmFacts(ArmScores):
    """An arm's answers to prompts for facts."""

    @cached_property
    def facts(self) -> pd.DataFrame:
        """A line per fact: entity, relation, answer, told, ambiguous, rare."""
        return read_csv(self.folder / "facts.csv", "told", "ambiguous", "rare")

    @cached_property
    def arrays(self) -> dict[str, np.ndarray]:
        """Arrays "seeds" [seeds], "nats", "first" [seeds, facts, prompts]; the last prompt is the held-out template."""
        path = self.whole().folder / "facts.npz"
        return read_npz(path, "seeds", "nats", "first", seeds=self.summary["seeds"])

    def recall(self, told: bool = True, held_out: bool = True) -> np.ndarray:
        """Return the share of facts whose answer is the first choice [seeds], of those told in training or not.

        It is that in the held-out template, else in those trained on.
        """
        which = self.facts["told"].to_numpy(bool) == told
        prompts = slice(-1, None) if held_out else slice(None, -2)
        return self.arrays["first"][:, which, prompts].mean(axis=(1, 2))


class ArmEdits(ArmScores):
    """An arm's answers when it reads another entity's rows."""

    @cached_property
    def cases(self) -> pd.DataFrame:
        """A line per case: source, target, relation, lengths, source_tokens, target_tokens, ambiguous, rare."""
        columns = ("source", "target", "relation", "lengths", "source_tokens", "target_tokens", "ambiguous", "rare")
        return read_csv(self.folder / "cases.csv", *columns)

    @cached_property
    def arrays(self) -> dict[str, np.ndarray]:
        """Arrays "seeds" [seeds] and "known" [seeds, cases]."""
        path = self.whole().folder / "edits.npz"
        return read_npz(path, "seeds", "known", seeds=self.summary["seeds"])

    @property
    def methods(self) -> list[str]:
        return self.summary["methods"]

    @property
    def tables(self) -> int:
        return self.summary["tables"]

    def lengths(self, method: str) -> str:
        first = method.partition("-")[0]
        return first if first in ("longer", "shorter") else "equal"

    def values(self, method: str, field: str) -> np.ndarray:
        """Return the results of a method's cases [seeds, its cases]; UserError where it wasn't tried."""
        name = f"{method}/{field}"
        return read_npz(self.whole().folder / "edits.npz", name)[name].astype(float)

    def own_cases(self, method: str) -> tuple[pd.DataFrame, np.ndarray]:
        """Return the cases of a method, and which of them a seed knew before the edit [seeds, its cases]."""
        chosen = (self.cases["lengths"] == self.lengths(method)).to_numpy()
        return self.cases[chosen], self.arrays["known"][:, chosen]


FIELDS = ("success", "kept", "new", "old")
"""Fields of a trial that are shares: does an answer come first, and the probabilities of the two."""
LEARNT, LEAD, PAIRS = 80.0, 50.0, 50
"""Points of the told facts that dense must recall, how many more than of the untold, and pairs STEM full must know."""
PRIMARY_RELATION = "capital"


def _mean(values: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Return the means of each seed over the cases that it knew [seeds]; NaN where it knew none."""
    counted = known.sum(axis=1).astype(float)
    return np.where(known, values, 0).sum(axis=1) / np.where(counted > 0, counted, np.nan)


def _contrast(values: np.ndarray, known: np.ndarray, cases: object) -> Contrast:
    error = pair_error(values, known, cases["source"].to_numpy(), cases["target"].to_numpy())
    return Contrast(_mean(values, known), error)


def _shares(first: np.ndarray, second: np.ndarray, known: np.ndarray, cases: object) -> Contrast:
    """Return the same of the difference of two shares in points [seeds, cases], with its interval on logits."""
    plain = _contrast(first - second, known, cases)
    means = (_mean(values, known) for values in (first, second))
    return of_shares(*means, known.sum(axis=1), plain.item_se)


class Knowledge(Measure):
    """Facts and edits of the recipe's arms."""

    fields: ClassVar[dict[str, Field]] = {
        "field": FIELDS, "method": NAME, "other": NAME, "label": ("ambiguous", "rare")
    }  # fmt: skip
    preconditions: ClassVar[dict[str, Precondition]] = {
        "facts-learnt": Precondition(
            f"dense recalls {LEARNT:g}% of the told facts in the held-out template, "
            f"and {LEAD:g} points fewer untold ones",
            TOO_SMALL, ("dense",),
        ),
        "pairs-known": Precondition(
            f"STEM full answers both prompts of {PAIRS} pairs right before the edit", TOO_SMALL, ("stem-full",)
        ),
    }  # fmt: skip

    @cached_property
    def facts(self) -> dict[str, ArmFacts]:
        return {arm: ArmFacts(self.inputs.scores("facts", arm)) for arm in self.inputs.recipe.arms}

    @cached_property
    def edits(self) -> dict[str, ArmEdits]:
        return {arm: ArmEdits(self.inputs.scores("edits", arm)) for arm in self.inputs.recipe.arms}

    def of(self, arm: str, field: str, method: str, known_before: bool = True) -> Contrast:
        """Return a method's mean of one of FIELDS, "closer" or "spill" in one arm, by seed.

        It is over the cases that were known before the edit, else over the others.
        """
        edits = self.edits[arm]
        cases, known = edits.own_cases(method)
        known = known == known_before
        if field == "closer":
            return _contrast(edits.values(method, "to_source") - edits.values(method, "to_target"), known, cases)
        if field == "spill":
            return self._spill(edits, method)
        plain = _contrast(100 * edits.values(method, field), known, cases)
        return of_share(plain.differences, known.sum(axis=1), plain.item_se)

    def _spill(self, edits: ArmEdits, method: str) -> Contrast:
        cases, known = edits.own_cases(method)
        moved = edits.values(method, "success") > 0
        pair = cases["source"] + ">" + cases["target"]
        capital = (cases["relation"] == PRIMARY_RELATION).to_numpy()
        told = zip(known, known & moved & capital, strict=True)
        with_it = np.stack([pair.isin(set(pair[moving])).to_numpy() & ~capital & of_seed for of_seed, moving in told])
        return _shares(100.0 * moved, np.full(moved.shape, 50.0), with_it, cases)

    def level(self, arm: str, told: bool, held_out: bool = True) -> Level:
        """Return the points of facts whose answer is an arm's first choice; see ArmFacts.recall."""
        facts = self.facts[arm]
        return Level(100 * facts.recall(told, held_out), float((facts.facts["told"] == told).sum()))

    @metric("{field}:{method}", "result of a method's edits, points, difference of two arms")
    def between(self, high: str, low: str, field: str, method: str) -> Contrast:
        one, other = self.edits[high], self.edits[low]
        count = min(len(edits.arrays["seeds"]) for edits in (one, other))
        (cases, known), (same, also) = one.own_cases(method), other.own_cases(method)
        if not (cases.equals(same) and np.array_equal(one.arrays["seeds"][:count], other.arrays["seeds"][:count])):
            raise UserError(f"{one.folder} and {other.folder} were scored on different seeds or cases")
        pair = (100 * edits.values(method, field)[:count] for edits in (one, other))
        return _shares(*pair, known[:count] & also[:count], cases)

    @metric("{field}:{method}>{other}", "the same of the first arm alone, difference of two methods on the same cases")
    def over_method(self, high: str, low: str, field: str, method: str, other: str) -> Contrast:
        edits = self.edits[high]
        if edits.lengths(method) != edits.lengths(other):
            raise UserError(f"'{method}' and '{other}' are methods of different cases")
        cases, known = edits.own_cases(method)
        pair = (100 * edits.values(name, field) for name in (method, other))
        return _shares(*pair, known, cases)

    @metric(
        "{field=closer}:{method}",
        "KL divergence of the edited distribution to the source's prompt less that to the target's, first arm",
    )
    @metric(
        "{field=spill}:{method}",
        f"of the cases in which the {PRIMARY_RELATION} moved, the other relations that moved too, "
        "in points above 50, first arm",
    )
    def alone(self, high: str, low: str, field: str, method: str) -> Contrast:
        return self.of(high, field, method)

    @metric("{label}:{method}", "success in cases without the label less that in cases with it, points, first arm")
    def over_label(self, high: str, low: str, label: str, method: str) -> Contrast:
        edits = self.edits[high]
        cases, known = edits.own_cases(method)
        has, values = cases[label].to_numpy(bool), 100 * edits.values(method, "success")
        without, labelled = (_contrast(values, known & which, cases) for which in (~has, has))
        count = np.minimum(*((known & which).sum(axis=1) for which in (~has, has)))
        error = float(np.hypot(without.item_se, labelled.item_se))
        return of_shares(without.differences, labelled.differences, count, error)

    def untestable(self, metric: str, precondition: str) -> str | None:
        if precondition == "facts-learnt":
            told, untold = (self.level("dense", told) for told in (True, False))
            lead = of_shares(told.percent, untold.percent, min(told.items, untold.items))
            if told.below(LEARNT) or lead.interval(0.05)[1] < LEAD:
                return f"dense recalls {told.words} of the told facts and {untold.words} of the untold ones"
        if precondition == "pairs-known":
            edits = self.edits["stem-full"]
            cases, known = edits.own_cases(self.parse(metric).fields["method"])
            pairs = (cases["source"] + ">" + cases["target"]).to_numpy()
            if (count := min(len(set(pairs[seed])) for seed in known)) < PAIRS:
                return f"both prompts are answered right of {count} pairs; {PAIRS} are needed"
        return None

    def runs(self) -> dict[str, ArmFacts]:
        return self.facts
