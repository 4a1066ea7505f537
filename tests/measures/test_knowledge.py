"""Metrics of edits, on scores whose right answer is known."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from stemrepro.measures.inputs import Inputs
from stemrepro.measures.knowledge import Knowledge
from tests.made_up import write_summary

NAMES = [f"c{k}" for k in range(12)]
PAIRS = [(a, b) for a in NAMES for b in NAMES if a != b][:60]
RELATIONS = ("capital", "code")


def write(
    folder: Path, arm: str, success: dict, known: float = 1.0, seeds=(0, 1, 2), told: float = 0.9, untold: float = 0.1
) -> None:
    """An arm in which a method succeeds in a share of cases (the first ones), or exactly in those of an array."""
    facts, edits = (folder / part / "main" / arm for part in ("facts", "edits"))
    write_summary(facts, len(seeds), recall={})
    table = pd.DataFrame({
        "entity": NAMES * 10, "relation": "capital", "answer": "x", "told": [True] * 100 + [False] * 20,
        "ambiguous": False, "rare": False,
    })  # fmt: skip
    table.to_csv(facts / "facts.csv", index=False)
    first = np.zeros((len(seeds), 120, 10), bool)
    first[:, : round(100 * told)] = True
    first[:, 100 : 100 + round(20 * untold)] = True
    np.savez(facts / "facts.npz", seeds=np.array(seeds), nats=np.ones(first.shape), first=first)
    write_summary(edits, len(seeds), methods=list(success), tables=3)
    cases = pd.DataFrame([
        {"source": a, "target": b, "relation": r, "lengths": "equal", "source_tokens": 1, "target_tokens": 1,
         "ambiguous": a == "c0", "rare": b == "c1"}
        for a, b in PAIRS for r in RELATIONS
    ])  # fmt: skip
    longer = cases.assign(lengths="longer", source_tokens=2)
    cases = pd.concat([cases, longer], ignore_index=True)
    cases.to_csv(edits / "cases.csv", index=False)
    count = len(PAIRS) * len(RELATIONS)
    arrays = {"seeds": np.array(seeds), "known": np.tile(np.arange(2 * count) % count < known * count, (len(seeds), 1))}
    for name, share in success.items():
        moved = np.arange(count) < share * count if np.isscalar(share) else share
        moved = np.tile(moved, (len(seeds), 1))
        arrays |= {
            f"{name}/success": moved, f"{name}/kept": ~moved,
            f"{name}/new": moved * 0.8, f"{name}/old": ~moved * 0.7,
            f"{name}/to_target": np.where(moved, 0.5, 4.0), f"{name}/to_source": np.where(moved, 3.0, 1.0),
        }  # fmt: skip
    np.savez(edits / "edits.npz", **arrays)


@pytest.fixture
def measure(catalog, tmp_path):
    by_pair = np.repeat(np.arange(len(PAIRS)) < 30, 2)  # both relations of a pair move, or none
    write(
        tmp_path,
        "stem-full",
        {
            "rows": 0.75,
            "input": 0.25,
            "longer-left-pad": 0.5,
            "paired": by_pair,
            "code-stays": by_pair & (np.arange(120) % 2 == 0),
        },
    )
    write(tmp_path, "dense", {"rows": 0.5}, known=0.8)
    return Knowledge(Inputs("knowledge_editing", catalog, "atlas", tmp_path))


def test_two_methods_on_the_same_cases(measure):
    contrast = measure.contrast("stem-full", "dense", "success:rows>input")
    np.testing.assert_allclose(contrast.differences, 50.0)
    assert contrast.item_se > 0
    np.testing.assert_allclose(measure.contrast("stem-full", "dense", "new:rows>input").differences, 40.0)


def test_two_arms_over_the_cases_that_both_knew(measure):
    """Of the first 80%, which dense knew, STEM moves 75/80 and dense 50/80."""
    np.testing.assert_allclose(measure.contrast("stem-full", "dense", "success:rows").differences, 100 * 25 / 80)


def test_cases_that_were_not_known_before_stand_apart(measure):
    """Dense knew the first 80%, of which it moves 50 of 80; of the others it moves none."""
    np.testing.assert_allclose(measure.of("dense", "success", "rows").differences, 100 * 50 / 80)
    np.testing.assert_allclose(measure.of("dense", "success", "rows", known_before=False).differences, 0.0)
    assert np.isnan(measure.of("stem-full", "success", "rows", known_before=False).differences).all()


def test_spill_is_the_share_of_other_relations_that_moved_with_the_capital(measure):
    np.testing.assert_allclose(measure.contrast("stem-full", "dense", "spill:paired").differences, 50.0)
    np.testing.assert_allclose(measure.contrast("stem-full", "dense", "spill:code-stays").differences, -50.0)


def test_too_little_known_is_not_testable(measure, catalog, tmp_path):
    assert measure.untestable("success:rows>input", "facts-learnt") is None
    assert measure.untestable("success:rows>input", "pairs-known") is None
    write(tmp_path / "other", "stem-full", {"rows": 0.5}, known=0.5)
    write(tmp_path / "other", "dense", {"rows": 0.5}, told=0.7)
    poor = Knowledge(Inputs("knowledge_editing", catalog, "atlas", tmp_path / "other"))
    assert (
        poor.untestable("closer:rows", "facts-learnt")
        == "dense recalls 67.3 to 72.2% (95%) of the told facts and 4.2 to 29.5% (95%) of the untold ones"
    )
    assert poor.untestable("closer:rows", "pairs-known") == "both prompts are answered right of 30 pairs; 50 are needed"
    write(tmp_path / "guess", "dense", {"rows": 0.5}, told=0.9, untold=0.8)
    guessed = Knowledge(Inputs("knowledge_editing", catalog, "atlas", tmp_path / "guess"))
    assert "(95%) of the untold ones" in guessed.untestable("closer:rows", "facts-learnt")
