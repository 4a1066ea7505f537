"""Metrics of edits, on scores whose right answer is known."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from stemrepro.common.errors import UserError
from stemrepro.measures.knowledge import (
    before,
    closer,
    facts_learnt,
    pair_error,
    pairs_known,
    share_of,
    spill,
    success,
    success_without,
)
from stemrepro.measures.scores import Scores
from tests.made_up import grid, write_scores

NAMES = [f"c{k}" for k in range(12)]
PAIRS = [(a, b) for a in NAMES for b in NAMES if a != b][:60]
RELATIONS = ("capital", "code")
COUNT = len(PAIRS) * len(RELATIONS)


def write(
    folder: Path, arm: str, success: dict, known: float = 1.0, seeds=(0, 1, 2), told: float = 0.9, untold: float = 0.1
) -> None:
    """An arm in which a method succeeds in a share of cases (the first ones), or exactly in those of an array.

    Methods that begin with "longer" have cases of their own.
    """
    facts = pd.DataFrame({"fact": range(120), "entity": NAMES * 10, "told": [True] * 100 + [False] * 20})
    facts = facts.assign(relation=np.repeat([*RELATIONS, *"abcdefgh"], 12), answer="x", ambiguous=False, rare=False)
    answers = grid(seed=seeds, fact=range(120), prompt=range(10))
    fact = answers["fact"]
    answers = answers.assign(nats=1.0, first=(fact < 100 * told) | ((fact >= 100) & (fact < 100 + 20 * untold)))
    write_scores(folder, "facts", arm, len(seeds), {"facts": facts, "answers": answers})

    lines = [(*pair, relation, lengths) for lengths in ("equal", "longer") for pair in PAIRS for relation in RELATIONS]
    cases = pd.DataFrame(lines, columns=["source", "target", "relation", "lengths"]).rename_axis("case").reset_index()
    labels = {"ambiguous": cases["source"] == "c0", "rare": cases["target"] == "c1"}
    cases = cases.assign(source_tokens=1, target_tokens=1, **labels)
    before = grid(seed=seeds, case=range(2 * COUNT))
    before = before.assign(known=before["case"] % COUNT < known * COUNT)
    edits = []
    for method, share in success.items():
        moved = np.tile(np.arange(COUNT) < share * COUNT if np.isscalar(share) else share, len(seeds))
        trials = grid(seed=seeds, case=COUNT * method.startswith("longer") + np.arange(COUNT)).assign(method=method)
        trials = trials.assign(success=moved, kept=~moved, new=moved * 0.8, old=~moved * 0.7)
        edits.append(trials.assign(to_target=np.where(moved, 0.5, 4.0), to_source=np.where(moved, 3.0, 1.0)))
    tables = {"cases": cases, "known": before, "edits": pd.concat(edits)}
    write_scores(folder, "edits", arm, len(seeds), tables)


@pytest.fixture
def scores(catalog, tmp_path):
    by_pair = np.repeat(np.arange(len(PAIRS)) < 30, 2)  # both relations of a pair move, or none
    methods = {"rows": 0.75, "input": 0.25, "longer-left-pad": 0.5, "paired": by_pair}
    write(tmp_path, "stem-full", methods | {"code-stays": by_pair & (np.arange(COUNT) % 2 == 0)})
    write(tmp_path, "dense", {"rows": 0.5}, known=0.8)
    return Scores("knowledge_editing", catalog, "atlas", tmp_path)


def test_two_methods_on_the_same_cases(scores):
    contrast = success(scores, "stem-full", "dense", "rows", over="input")
    np.testing.assert_allclose(contrast.differences, 50.0)
    assert contrast.item_se > 0
    with pytest.raises(UserError, match="other cases"):
        success(scores, "stem-full", "dense", "rows", over="longer-left-pad")
    with pytest.raises(UserError, match=r"method 'row' is unknown; did you mean 'rows'"):
        success(scores, "stem-full", "dense", "row")


def test_what_one_method_does(scores):
    """Three quarters of the cases move: then the source's prompt is 2.5 nats further off, else 3 nats nearer."""
    np.testing.assert_allclose(closer(scores, "stem-full", "dense", "rows").differences, 0.75 * 2.5 - 0.25 * 3)
    np.testing.assert_allclose(share_of(scores, "stem-full", "new", "rows").differences, 75 * 0.8)


def test_names_with_a_label_against_the_others(scores):
    """Of c0's 11 pairs, the first ones, all 22 cases move; of the other 98 cases 68 do."""
    difference = success_without(scores, "stem-full", "dense", "ambiguous", "rows").differences
    np.testing.assert_allclose(difference, 100 * (68 / 98 - 1))


def test_two_arms_over_the_cases_that_both_knew(scores):
    """Of the first 80%, which dense knew, STEM moves 75/80 and dense 50/80."""
    np.testing.assert_allclose(success(scores, "stem-full", "dense", "rows").differences, 100 * 25 / 80)


def test_only_cases_that_were_known_before_count(scores):
    """Dense knew the first 80%, of which it moves 50 of 80."""
    np.testing.assert_allclose(share_of(scores, "dense", "success", "rows").differences, 100 * 50 / 80)


def test_the_sources_answer_before_the_edit(scores):
    """Every answer costs a nat."""
    np.testing.assert_allclose(before(scores, "dense").differences, 100 / np.e)


def test_spill_is_the_share_of_other_relations_that_moved_with_the_capital(scores):
    np.testing.assert_allclose(spill(scores, "stem-full", "dense", "paired").differences, 50.0)
    np.testing.assert_allclose(spill(scores, "stem-full", "dense", "code-stays").differences, -50.0)


def test_too_little_known_is_not_testable(scores, catalog, tmp_path):
    assert facts_learnt(scores) is None
    assert pairs_known(scores, "rows") is None
    write(tmp_path / "other", "stem-full", {"rows": 0.5}, known=0.5)
    write(tmp_path / "other", "dense", {"rows": 0.5}, told=0.7)
    poor = Scores("knowledge_editing", catalog, "atlas", tmp_path / "other")
    told = "dense recalls 67.3 to 72.2% (95%) of the told facts and 4.2 to 29.5% (95%) of the untold ones"
    assert facts_learnt(poor) == told
    assert pairs_known(poor, "rows") == "both prompts are answered right of 30 pairs; 50 are needed"
    write(tmp_path / "guess", "dense", {"rows": 0.5}, told=0.9, untold=0.8)
    assert "of the untold ones" in facts_learnt(Scores("knowledge_editing", catalog, "atlas", tmp_path / "guess"))


def ordered_pairs(size):
    first, second = np.meshgrid(np.arange(size), np.arange(size), indexing="ij")
    kept = first != second
    return first[kept].astype(str), second[kept].astype(str)


def test_the_error_of_pairs_is_the_spread_over_draws_of_new_countries():
    """Values are the sum of an effect of each country, so the mean is twice the effects' mean."""
    first, second = ordered_pairs(30)
    effects = np.random.default_rng(1).normal(size=30)
    values = effects[first.astype(int)] + effects[second.astype(int)]
    error = pair_error(values[None], np.ones((1, len(values)), bool), first, second)
    assert error == pytest.approx(2 * effects.std(ddof=1) / np.sqrt(30), rel=0.05)
    independent = values.std(ddof=1) / np.sqrt(len(values))
    assert error > 3 * independent


def test_in_the_error_seeds_are_averaged_and_unknown_pairs_left_out():
    first, second = ordered_pairs(12)
    rng = np.random.default_rng(0)
    values = rng.normal(size=(3, len(first)))
    kept = rng.random(values.shape) < 0.7
    error = pair_error(values, kept, first, second)
    assert error == pair_error(np.where(kept, values, 1e6), kept, first, second)
    assert error < pair_error(values[:1], kept[:1], first, second)


def test_of_too_few_countries_the_error_is_not_known():
    one = np.array(["a", "a"]), np.array(["b", "c"])
    assert np.isnan(pair_error(np.ones((1, 2)), np.ones((1, 2), bool), *one))
    assert np.isnan(pair_error(np.ones((1, 2)), np.zeros((1, 2), bool), *one))
