"""A made-up row of verdicts.json, and a recipe with a measure whose values are given."""

from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from stemrepro.config.catalog import Catalog
from stemrepro.config.recipe import Claim, Estimate
from stemrepro.measures.base import Level, condition, on_scale
from stemrepro.measures.scores import Scores
from stemrepro.report.evidence import METHOD
from stemrepro.verdicts.effect import Effect, Unmeasured, Untested
from stemrepro.verdicts.rule import NOT_TESTED, TOO_SHORT, TOO_SMALL

PAPER = {"value": 0.05, "unit": "nats/token", "source": "Fig. 5b", "confidence": "figure"}
ENDS = {"ci_low": 0.05, "ci_high": 0.15, "ci99_low": 0.02, "ci99_high": 0.18}


def row(claim: str, verdict: str, **fields: object) -> dict:
    about = {"claim": claim, "sentence": f"Sentence of {claim}.", "origin": "paper", "kind": "greater", "paper": PAPER}
    asked = {"metric": "loss: prose", "unit": "nats/token", "arms": ["dense", "stem-full"], "smallest_effect": 0.02}
    found = {"ours": 0.1, **ENDS, "method": METHOD, "seeds": 5, "scale": "laptop", "reason": "because <b>"}
    found |= {"verdict": verdict, "untested": TOO_SMALL if verdict == NOT_TESTED else None}
    return about | asked | found | dict.fromkeys(("differences", "item_se", "size", "expected")) | fields


VALUES = {
    "high": np.array([3.0, 3.1, 2.9, 3.0]),
    "low": np.array([1.0, 1.2, 1.1, 1.0]),
    "gap": np.array([1.0, np.nan, 1.0, 1.0]),
}
"""Of arms by seed; the arm `lost` was never measured."""


def plain(scores: Scores, high: str, low: str) -> Effect:
    """The first less the second."""
    if "lost" in (high, low):
        raise Unmeasured("lost diverged at step 3")
    return Effect(VALUES[high] - VALUES[low], item_se=0.01)


def both_rates(scores: Scores, high: str, low: str, own: bool = False) -> Effect:
    """Twice as much at own settings."""
    return Effect((2 if own else 1) * (VALUES[high] - VALUES[low]))


def never(scores: Scores, high: str, low: str) -> Effect:
    """What no scale asks."""
    raise Untested("no <item> was asked")


def number(scores: Scores) -> float:
    """A number without arms."""
    return 7.25


def dense_stands(scores: Scores, percent: float) -> list[Level]:
    return [Level(np.full(4, percent) + np.arange(4) / 10, 1000)]


@on_scale(dense_stands)
def share(scores: Scores, high: str, low: str, percent: float) -> Effect:
    """A share on which dense stands at so many percent."""
    return plain(scores, high, low)


@condition(TOO_SMALL)
def passes(scores: Scores) -> str | None:
    """A thing holds."""
    return None


@condition(TOO_SHORT)
def fails(scores: Scores) -> str | None:
    """A thing holds that doesn't."""
    return "fails"


@condition(TOO_SMALL)
def fails_too(scores: Scores) -> str | None:
    """Another doesn't."""
    return "fails too"


@condition(TOO_SMALL)
def counts(scores: Scores, smallest_effect: float) -> str | None:
    """What counts is asked."""
    return f"counts at {smallest_effect}"


MEASURE: tuple[Callable, ...] = (plain, both_rates, never, number, share, passes, fails, fails_too, counts)


def given(
    catalog: Catalog,
    monkeypatch: pytest.MonkeyPatch,
    claims: Mapping[str, Claim] | None = None,
    estimates: Mapping[str, Estimate] | None = None,
) -> Scores:
    """Return scores of a recipe whose measure has the functions above, and which has these claims and estimates."""
    module = ModuleType("given")
    module.__dict__.update({function.__name__: function for function in MEASURE})
    monkeypatch.setattr("stemrepro.measures.base.measure_module", lambda name: module)
    asked = {"claims": dict(claims or {}), "estimates": dict(estimates or {})}
    recipes = {"rivals": catalog.recipes["rivals"].model_copy(update=asked)}
    return Scores("rivals", catalog.model_copy(update={"recipes": recipes}), "laptop", Path("none"))
