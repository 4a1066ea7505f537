"""Metrics of reasoning in context, on made-up sums and items."""

import json
import re

import numpy as np
import pytest

from stemrepro.measures.inputs import Inputs
from stemrepro.measures.reasoning import Reasoning
from tests.made_up import write_summary

WORDS = np.array([[90, 10, 0], [10, 30, 60], [5, 0, 5], [7, 0, 0]])
"""How often four words are new, near, far."""


def losses(folder, arm, by_distance, by_word, seeds=3):
    """An arm whose loss per target is by_distance[bucket] or by_word[word, kind], and a tenth of the seed more.

    It has two documents of each of two sources.
    """
    place = folder / "distance/main" / arm
    write_summary(place, seeds)
    tokens = np.tile(np.arange(1, 8) * 10, (4, 1))
    values = np.array(by_distance) * tokens + np.arange(seeds)[:, None, None] * 0.1 * tokens
    np.savez(place / "distance.npz", seeds=np.arange(seeds),
             source=np.array(["bible", "bible", "speeches", "speeches"]),
             distance=values, distance_tokens=tokens, position=values, position_tokens=tokens,
             word=np.array([np.array(by_word) * WORDS] * seeds), word_tokens=WORDS)  # fmt: skip


def items(folder, arm, values, seeds=3, cut=0):
    """An arm with so many points on four items of 1,000 to 9,000 words, of two tasks.

    The last `cut` items don't fit the context.
    """
    place = folder / "reasoning/main" / arm
    write_summary(place, seeds)
    about = json.loads((place / "summary.json").read_text())
    names = ("longbench_hotpotqa_e", "longbench_2wikimqa_e")
    tasks = {name: {"items": 4, "mean": 0.0, "floor": 10.0} for name in names}
    (place / "summary.json").write_text(json.dumps(about | {"tasks": tasks if values is not None else {}}))
    arrays = {"seeds": np.arange(seeds)}
    for number, name in enumerate(names if values is not None else ()):
        arrays |= {
            f"{name}/value": np.tile(values, (seeds, 1)) + number, f"{name}/length": np.array([1000, 5000, 8000, 9000]),
            f"{name}/floor": np.full(4, 10.0), f"{name}/cut": np.arange(4) >= 4 - cut,
            f"{name}/clusters": np.array([f"{name}/{k}" for k in range(4)]),
        }  # fmt: skip
    np.savez(place / "reasoning.npz", **arrays)


DENSE, FULL = (4, 3, 3, 3, 3, 2, 2), (3.9, 2.5, 2.5, 2.5, 2.5, 1.8, 1.8)
LEADS = np.array([[0.1, 0.2, 0], [1.0, 1.1, 1.3], [0.5, 0, 0.1], [9.0, 0, 0]])
"""Of STEM full over dense by word and kind: a frequent word leads by more, wherever it is."""


@pytest.fixture
def measure(catalog, tmp_path):
    losses(tmp_path, "dense", DENSE, np.full((4, 3), 12.0))
    losses(tmp_path, "stem-full", FULL, 12 - LEADS)
    items(tmp_path, "dense", np.array([20.0, 30, 40, 60]))
    items(tmp_path, "stem-third", np.array([24.0, 30, 44, 62]))
    return Reasoning(Inputs("contextual_reasoning", catalog, "laptop", tmp_path))


def test_growths_compare_the_same_words(measure):
    """By hand: of each word its two means, weighted by n1 n2 / (n1 + n2); words of one kind alone say nothing."""
    first, second, third = 0.2 - 0.1, (30 * 1.1 + 60 * 1.3) / 90 - 1.0, 0.1 - 0.5
    weights = np.array([90 * 10 / 100, 10 * 90 / 100, 5 * 5 / 10])
    wanted = np.average([first, second, third], weights=weights)
    contrast = measure.contrast("dense", "stem-full", "growth:repeat")
    np.testing.assert_allclose(contrast.differences, wanted)
    assert contrast.item_se > 0
    np.testing.assert_allclose(measure.contrast("dense", "stem-full", "growth:far").differences, 1.3 - 1.1)


def test_words_that_lead_alike_everywhere_show_no_growth(measure, tmp_path):
    """Though the lead on repeated targets is larger in the mean: they are other words."""
    losses(tmp_path, "stem-full", FULL, 12 - np.array([[0.1] * 3, [1.0] * 3, [0.5] * 3, [0.2] * 3]))
    fresh = Reasoning(measure.inputs)
    np.testing.assert_allclose(fresh.contrast("dense", "stem-full", "growth:repeat").differences, 0, atol=1e-12)
    lead = np.array([0.1, 1.0, 0.5, 0.2])
    means = [np.average(lead, weights=WORDS[:, kinds].sum(axis=1)) for kinds in ([0], [1, 2])]
    assert means[1] - means[0] > 0.5


def test_scores_by_length(measure):
    def differences(metric):
        return measure.contrast("stem-third", "dense", metric).differences

    np.testing.assert_allclose(differences("score:multihop"), 10 / 4)
    np.testing.assert_allclose(differences("score:multihop:0-4000"), 4.0)
    np.testing.assert_allclose(differences("score:multihop:4000-8000"), 0.0)
    np.testing.assert_allclose(differences("score:multihop:8000-"), 3.0)
    np.testing.assert_allclose(differences("score:longbench_2wikimqa_e:8000-"), 3.0)
    assert np.isnan(differences("score:bbh")).all()


def test_dense_must_beat_what_needs_no_knowledge(measure, tmp_path):
    assert measure.untestable("score:multihop", "none") is None
    assert measure.untestable("score:multihop", "dense-answers") is None
    assert measure.untestable("growth:repeat", "none") is None
    items(tmp_path, "dense", np.array([10.0, 11, 12, 11]))
    assert measure.untestable("score:multihop", "dense-answers") is None  # three seeds on eight items show nothing
    items(tmp_path, "dense", np.array([2.0, 2, 2, 2]), seeds=100)
    reason = measure.untestable("score:multihop", "dense-answers")
    assert re.fullmatch(
        r"dense scores \d\.\d to \d+\.\d% \(95%\), less than 2 points above the 10.0 of what needs no knowledge", reason
    )


def test_prompts_that_are_cut_are_not_judged(measure, tmp_path):
    items(tmp_path, "dense", np.array([20.0, 30, 40, 60]), cut=2)
    assert measure.untestable("score:multihop:0-4000", "dense-answers") is None
    reason = measure.untestable("score:multihop", "dense-answers")
    assert reason == "50% of the prompts are longer than the models' context and would lose their beginning"
    assert measure.untestable("score:multihop:10000-", "none") == "no item is of that length"
