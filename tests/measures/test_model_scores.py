"""Accuracies of a published model from made-up tables, against closed forms."""

from math import comb

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from stemrepro.common.errors import UserError
from stemrepro.measures import model_scores
from stemrepro.measures.model_scores import TASKS, mcnemar, over_items
from stemrepro.measures.scores import Scores
from stemrepro.verdicts.effect import logits_of
from tests.conftest import ROOT


def choices(model, right):
    tables = []
    for task, (_, score) in TASKS.items():
        table = pd.DataFrame({"item": [f"{task}/{k}" for k in range(10)], "right": 1, "choices": 4})
        table[["acc", "acc_norm"]] = 0
        table[score] = [int(k in right) for k in range(10)]
        tables.append(table.assign(model=model, task=task))
    return pd.concat(tables, ignore_index=True)


@pytest.fixture
def table(monkeypatch):
    """Of ten items dense has six right by either metric, STEM 1/3 the last five of these, STEM full none."""
    monkeypatch.chdir(ROOT)
    right = {"dense": range(6), "stem-third": range(1, 6), "stem-full": range(0)}
    return pd.concat([choices(model, items) for model, items in right.items()], ignore_index=True)


def read(table, catalog, folder):
    (folder / "scoreboard").mkdir()
    table.to_parquet(folder / "scoreboard/choices.parquet")
    return Scores("model_scoreboard", catalog, "smollm2", folder)


def test_accuracies_are_compared_item_by_item(table, catalog, tmp_path):
    scores = read(table, catalog, tmp_path)
    assert model_scores.models(scores) == ["dense", "stem-full", "stem-third"]
    expected = {("chance", "mean"): 35, ("stem-third", "mean"): 10, ("stem-full", "boolq"): 60, ("card", "piqa"): -6.3}
    for (arm, task), mean in expected.items():
        effect = model_scores.accuracy(scores, "dense", arm, task)
        assert effect.mean == pytest.approx(mean)
        assert effect.over == "groups of items"
        low, high = effect.interval(0.05)
        assert low < mean < high
    assert model_scores.discordant(scores, "piqa", "stem-third") == (1, 0)
    assert model_scores.most_frequent(model_scores.choices(scores, "dense", "piqa")["right"]) == 100
    assert model_scores.most_frequent(model_scores.choices(scores, "dense", "piqa")["acc_norm"]) == 60


def test_other_items_are_refused(table, catalog, tmp_path):
    others = (table["model"] == "stem-full") & (table["task"] == "piqa")
    scores = read(pd.concat([table[~others], table[others][::-1]]), catalog, tmp_path)
    with pytest.raises(UserError, match="different items of 'piqa'"):
        model_scores.accuracy(scores, "dense", "stem-full", "piqa")


@pytest.mark.parametrize("groups", [400, 100])
def test_the_interval_of_a_difference_is_that_of_paired_items(groups, monkeypatch):
    """One task: the delta method on logits, of paired items; two tasks weigh the same whatever their items."""
    monkeypatch.setattr("stemrepro.measures.model_scores.GROUPS", groups)
    close = 0.02 if groups == 400 else 0.15  # groups of one item, or by chance
    generator = np.random.default_rng(0)
    first, second = (100.0 * (generator.random(400) < share) for share in (0.6, 0.5))
    contrast = over_items(np.zeros(400, int), first, second)
    slopes = [100 / (values.mean() * (100 - values.mean())) for values in (first, second)]
    error = np.std(slopes[0] * first - slopes[1] * second, ddof=1) / 20
    logits = [logits_of(np.array([values.mean()]), 400)[0][0] for values in (first, second)]
    half = stats.t.ppf(0.975, groups - 1) * error
    ends = [contrast.shown(logits[0] - logits[1] + sign * half) for sign in (-1, 1)]
    assert np.ptp(contrast.interval(0.05)) == pytest.approx(ends[1] - ends[0], rel=close)
    assert contrast.interval(0.05) == pytest.approx(ends, abs=5 * close)
    assert contrast.mean == pytest.approx(first.mean() - second.mean())
    task = np.repeat([0, 1], [300, 100])
    both = over_items(task, first)
    assert both.mean == pytest.approx((first[:300].mean() + first[300:].mean()) / 2)
    spread = np.sqrt(sum(np.var(part, ddof=1) / len(part) for part in (first[:300], first[300:]))) / 2
    low, high = both.interval(0.05)
    assert (high - low) / 2 == pytest.approx(stats.t.ppf(0.975, groups - 1) * spread, rel=close)


def test_mcnemar_counts_the_tails_of_a_fair_coin():
    assert mcnemar(1, 9) == pytest.approx(2 * sum(comb(10, k) for k in (0, 1)) / 2**10)
    assert mcnemar(9, 1) == mcnemar(1, 9)
    assert mcnemar(0, 0) == 1
