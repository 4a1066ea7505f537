"""Contrasts of benchmark items whose right answer is known, and the error between items against a bootstrap."""

import re

import numpy as np
import pandas as pd
import pytest

from stemrepro.common.errors import UserError
from stemrepro.config.recipe import Recipe
from stemrepro.measures.items import ArmItems, Sample, contrast, no_knowledge
from tests.made_up import edit, grid, write_scores

RECIPE = Recipe.model_validate({
    "title": "t", "paper_item": "p", "place": 1, "measure": "comparison", "origin": "control",
    "arms": ["dense", "stem-full"],
    "claims": {}, "scores": ["benchmarks"],
    "tasks": {name: {"label": name, "score": "acc"} for name in ("big", "small", "elsewhere")},
    "groups": {"both": ["big", "small", "elsewhere"]},
})  # fmt: skip


def write_items(
    folder, arm, right, seen=None, alone=None, margin=0.0, clusters=None, seeds=2, majority=0.1, recipe=RECIPE
):
    """`right` {task: [items] of 0 and 1, the same for every seed}."""
    tables = []
    for task, values in right.items():
        right_ones = np.tile(np.array(values, bool), seeds)
        answers = np.zeros_like(right_ones) if alone is None else np.tile(alone, seeds)
        tables.append(
            grid(seed=range(seeds), task=[task], item=range(len(values))).assign(
                cluster=np.tile([f"c{one:05}" for one in (clusters or range(len(values)))], seeds), gold=0,
                acc=right_ones, acc_norm=~right_ones, answer_acc=answers, answer_acc_norm=answers, margin=margin,
                seen=0 if seen is None else np.ravel(seen[task]),
            )
        )  # fmt: skip
    about = {task: {"chance": 0.25, "majority": majority, "items": len(values)} for task, values in right.items()}
    address = write_scores(folder, "benchmarks", arm, seeds, {"benchmarks": pd.concat(tables)}, tasks=about)
    return ArmItems(folder, address, recipe)


@pytest.fixture
def arms(tmp_path):
    dense = write_items(tmp_path, "dense", {"big": [1, 0, 0, 0], "small": [1, 0]}, margin=0.5)
    stem = write_items(tmp_path, "stem", {"big": [1, 1, 0, 0], "small": [1, 1]}, margin=0.75)
    return {"dense": dense, "stem-full": stem}


def test_every_task_of_a_group_counts_the_same(arms):
    assert contrast(arms["stem-full"], arms["dense"], "accuracy", "big").differences == pytest.approx([25, 25])
    assert contrast(arms["stem-full"], arms["dense"], "accuracy", "both").differences == pytest.approx([37.5, 37.5])
    assert contrast(arms["stem-full"], arms["dense"], "margin", "both").differences == pytest.approx([0.25, 0.25])


def test_arms_are_compared_over_the_seeds_that_both_have(arms, tmp_path):
    longer = write_items(tmp_path, "longer", {"big": [1, 0, 0, 0]}, seeds=3)

    def edited(**columns):
        edit(tmp_path, "benchmarks", "longer", "benchmarks", lambda rows: rows.assign(**columns))
        return ArmItems(tmp_path, longer.address, RECIPE)

    longer = edited(acc=[True, False, False, False, True, False, True, False, True, False, True, False])
    assert contrast(arms["stem-full"], longer, "accuracy", "big").differences == pytest.approx([25, 0])
    assert contrast(longer, arms["stem-full"], "accuracy", "big").differences == pytest.approx([-25, 0])
    longer = edited(seed=np.repeat([1, 0, 2], 4))
    with pytest.raises(UserError, match="different seeds or items"):
        contrast(arms["stem-full"], longer, "accuracy", "big")


def test_seen_items_are_chosen_seed_by_seed(tmp_path):
    seen = {"big": [[1, 0, 0, 2], [0, 3, 0, 0]], "small": [[0, 0], [0, 1]]}
    first = write_items(tmp_path, "a", {"big": [1, 0, 0, 0], "small": [1, 0]}, seen)
    second = write_items(tmp_path, "b", {"big": [0, 0, 0, 0], "small": [1, 1]}, seen)
    result = contrast(second, first, "accuracy", "both", True)
    assert result.differences == pytest.approx([-50, 50])  # items 1 and 4 of big; item 2 of big and item 2 of small


def test_item_error_is_that_of_a_bootstrap_over_clusters():
    rng = np.random.default_rng(0)
    clusters = rng.integers(0, 80, 300)
    values = rng.normal(0, 1, (3, 300)) + rng.normal(0, 1, 80)[clusters]
    weights = np.tile(np.where(np.arange(300) < 200, 1 / 400, 1 / 200), (3, 1))
    result = Sample(values, weights, clusters).contrast()
    means, draws = values.mean(axis=0), []
    members = [np.nonzero(clusters == cluster)[0] for cluster in range(80)]
    for _ in range(3000):
        chosen = np.concatenate([members[cluster] for cluster in rng.integers(0, 80, 80)])
        big, small = means[chosen[chosen < 200]], means[chosen[chosen >= 200]]
        draws.append((big.mean() + small.mean()) / 2)
    assert result.item_se == pytest.approx(np.std(draws), rel=0.06)


def failed(arms, *fields):
    return no_knowledge(arms["dense"], *fields)


def test_dense_must_not_be_shown_to_miss_chance_majority_and_the_answers_alone(arms, tmp_path):
    many = {"big": [1, 0, 0, 0] * 1500, "small": [1, 0] * 1500}
    dense = arms | {"dense": write_items(tmp_path, "many", many, margin=0.5)}
    assert re.fullmatch(
        r"dense scores 24\.\d to 25\.\d% \(95%\), less than 2 points above the 25.0 of chance",
        failed(dense, "accuracy", "big"),
    )
    assert failed(arms, "accuracy", "big") is None  # as many of four items show nothing
    assert failed(dense, "accuracy", "small") is None
    alone = write_items(tmp_path, "alone", {"big": [1, 1, 0, 0] * 1500}, alone=[True, True, False, False] * 1500)
    assert "the 50.0 of answers alone" in failed({"dense": alone}, "accuracy", "big")
    common = {"dense": write_items(tmp_path, "common", many, majority=0.9)}
    assert "the 90.0 of the most frequent answer" in failed(common, "accuracy", "small")
    assert "the 90.0 of what needs no knowledge" in failed(common, "accuracy", "both")
    assert failed(arms, "margin", "big") is None
    none = {"dense": write_items(tmp_path, "none", many, margin=0.01)}
    assert "add 0.010 to 0.010 bits (95%)" in failed(none, "margin", "big")


def test_the_floor_of_seen_items_is_theirs(tmp_path):
    seen = {"big": [[1, 1, 0, 0], [1, 1, 0, 0]]}
    arms = {"dense": write_items(tmp_path, "d", {"big": [1, 1, 0, 0]}, seen, alone=[True, False, False, False])}
    assert arms["dense"].floors("big", True)["answers alone"] == 50
    assert arms["dense"].floors("big")["answers alone"] == 25
    assert failed(arms, "accuracy", "big", True) is None


def test_other_items_are_refused(arms, tmp_path):
    other = write_items(tmp_path, "other", {"big": [1, 0, 0, 0]}, clusters=[4, 3, 2, 1])
    with pytest.raises(UserError, match="different seeds or items"):
        contrast(arms["stem-full"], other, "accuracy", "big")


def test_a_task_that_the_scale_lacks_is_nan(arms):
    assert np.isnan(contrast(arms["stem-full"], arms["dense"], "accuracy", "elsewhere").differences).all()
