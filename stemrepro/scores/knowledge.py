"""Reads what an arm knows of a mix of facts, and what came of its edits."""

from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd

from stemrepro.claims import Unmeasured
from stemrepro.config.address import Address
from stemrepro.scores.reading import SEEDS, Array, read_csv, read_npz, read_summary

FACTS = {
    "seeds": SEEDS,
    "nats": Array("numbers", "seeds facts prompts"),
    "first": Array("yes or no", "seeds facts prompts"),
}
KNOWN = {"seeds": SEEDS, "known": Array("yes or no", "seeds cases")}
TRIALS = dict.fromkeys(("success", "kept"), Array("yes or no", "seeds cases"))
TRIALS |= dict.fromkeys(("new", "old"), Array("numbers", "seeds cases", most=1))
TRIALS |= dict.fromkeys(("to_target", "to_source"), Array("numbers", "seeds cases", least=None))
"""What came of a method's cases; a divergence that is 0 can be rounded to below."""


class ArmScores:
    """One part of an arm's scores.

    Args:
        folder: `scores/<scale>/<part>/...` of the arm.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @cached_property
    def summary(self) -> dict:
        """summary.json."""
        return read_summary(self.folder / "summary.json")

    def whole(self) -> "ArmScores":
        """This; Unmeasured where a run diverged."""
        for seed, step in self.summary.get("diverged", {}).items():
            raise Unmeasured(f"{self.folder.name} diverged: the loss of seed {seed} is no number from step {step} on")
        return self


class ArmFacts(ArmScores):
    """What an arm answers when it is asked for facts."""

    @cached_property
    def facts(self) -> pd.DataFrame:
        """A line a fact: entity, relation, answer, told, ambiguous, rare."""
        return read_csv(self.folder / "facts.csv", flags=("told", "ambiguous", "rare"))

    @cached_property
    def arrays(self) -> dict[str, np.ndarray]:
        """ "seeds", and "nats" and "first" [seeds, facts, prompts]; the last prompt is the held-out template that is reported."""
        path = self.whole().folder / "facts.npz"
        return read_npz(path, FACTS, seeds=self.summary["seeds"], facts=len(self.facts))

    def recall(self, told: bool = True, held_out: bool = True) -> np.ndarray:
        """Share of facts whose answer is the first choice [seeds]; in the held-out template, or in those trained on."""
        which = self.facts["told"].to_numpy(bool) == told
        prompts = slice(-1, None) if held_out else slice(None, -2)
        return self.arrays["first"][:, which, prompts].mean(axis=(1, 2))


class ArmEdits(ArmScores):
    """What an arm says when it reads another entity's rows."""

    @cached_property
    def cases(self) -> pd.DataFrame:
        """A line a case: source, target, relation, lengths, source_tokens, target_tokens, ambiguous, rare."""
        words, flags = ("source", "target", "relation", "lengths"), ("ambiguous", "rare")
        return read_csv(self.folder / "cases.csv", "source_tokens", "target_tokens", words=words, flags=flags)

    @cached_property
    def arrays(self) -> dict[str, np.ndarray]:
        """ "seeds", and "known" [seeds, cases]."""
        path = self.whole().folder / "edits.npz"
        return read_npz(path, KNOWN, seeds=self.summary["seeds"], cases=len(self.cases))

    @property
    def methods(self) -> list[str]:
        """Names of the methods."""
        return self.summary["methods"]

    @property
    def tables(self) -> int:
        """Layers that read rows."""
        return self.summary["tables"]

    def lengths(self, method: str) -> str:
        """The lengths of the cases that a method is for."""
        first = method.partition("-")[0]
        return first if first in ("longer", "shorter") else "equal"

    def values(self, method: str, field: str) -> np.ndarray:
        """What came of a method's cases [seeds, its cases]; UserError where it wasn't tried."""
        name, own = f"{method}/{field}", (self.cases["lengths"] == self.lengths(method)).sum()
        path, seeds = self.whole().folder / "edits.npz", self.summary["seeds"]
        return read_npz(path, {name: TRIALS[field]}, seeds=seeds, cases=int(own))[name].astype(float)

    def own_cases(self, method: str) -> tuple[pd.DataFrame, np.ndarray]:
        """The cases of a method, and which of them a seed knew before the edit [seeds, its cases]."""
        own = (self.cases["lengths"] == self.lengths(method)).to_numpy()
        return self.cases[own], self.arrays["known"][:, own]


def facts_of(folder: Path, address: Address) -> ArmFacts:
    """Of `scores/<scale>`."""
    return ArmFacts(folder / "facts" / address.path)


def edits_of(folder: Path, address: Address) -> ArmEdits:
    """Of `scores/<scale>`."""
    return ArmEdits(folder / "edits" / address.path)
