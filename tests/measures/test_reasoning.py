"""Metrics of reasoning in context, on made-up sums and items."""

import re

import numpy as np
import pytest

from stemrepro.common.errors import UserError
from stemrepro.measures.base import levels_of
from stemrepro.measures.metric import Call
from stemrepro.measures.reasoning import growth, loss, prompts_fit, score
from stemrepro.measures.scores import Scores
from stemrepro.verdicts.effect import Untested
from tests.made_up import grid, write_scores

WORDS = np.array([[90, 10, 0], [10, 30, 60], [5, 0, 5], [7, 0, 0]])
"""How often four words are new, near, far."""
EDGES = (0, 1, 2, 4, 8, 16, 32)


def losses(folder, arm, by_distance, by_word, seeds=3):
    """An arm whose loss per target is by_distance[bucket] or by_word[word, kind], and a tenth of the seed more.

    It has two documents of each of two sources.
    """
    lines = grid(seed=range(seeds), by=("distance", "position"), document=range(4), at=EDGES)
    bucket = np.searchsorted(EDGES, lines["at"])
    tokens = 10 * (bucket + 1)
    source = np.array(["bible", "bible", "speeches", "speeches"])[lines["document"]]
    distance = lines.assign(
        source=source, tokens=tokens, nats=(np.array(by_distance)[bucket] + 0.1 * lines["seed"]) * tokens
    )
    words = grid(seed=range(seeds), token=range(4), at=(0, 1, 16)).assign(
        tokens=np.tile(WORDS.ravel(), seeds), nats=np.tile((np.array(by_word) * WORDS).ravel(), seeds)
    )
    write_scores(folder, "distance", arm, seeds, {"distance": distance, "words": words})


TASKS = ("longbench_hotpotqa_e", "longbench_2wikimqa_e")


def items(folder, arm, values, seeds=3, cut=0):
    """An arm with so many points on four items of 1,000 to 9,000 words of a task, and one more on those of another.

    The last `cut` items don't fit the context.
    """
    lines = grid(seed=range(seeds), task=TASKS, item=range(4))
    item = lines["item"].to_numpy()
    lines = lines.assign(
        cluster=lines["task"] + "/" + lines["item"].astype(str),
        floor=10.0,
        cut=item >= 4 - cut,
        value=np.array(values)[item] + (lines["task"] == TASKS[1]),
        length=np.array([1000, 5000, 8000, 9000])[item],
    )
    write_scores(folder, "reasoning", arm, seeds, {"reasoning": lines}, tasks={task: {} for task in TASKS})


DENSE, FULL = (4, 3, 3, 3, 3, 2, 2), (3.9, 2.5, 2.5, 2.5, 2.5, 1.8, 1.8)
LEADS = np.array([[0.1, 0.2, 0], [1.0, 1.1, 1.3], [0.5, 0, 0.1], [9.0, 0, 0]])
"""Of STEM full over dense by word and kind: a frequent word leads by more, wherever it is."""


PAIR = ("stem-third", "dense")


@pytest.fixture
def scores(catalog, tmp_path):
    losses(tmp_path, "dense", DENSE, np.full((4, 3), 12.0))
    losses(tmp_path, "stem-full", FULL, 12 - LEADS)
    items(tmp_path, "dense", (20.0, 30, 40, 60))
    items(tmp_path, "stem-third", (24.0, 30, 44, 62))
    return Scores("contextual_reasoning", catalog, "laptop", tmp_path)


def again(scores):
    """The same folder, read anew."""
    return Scores(scores.name, scores.catalog, scores.scale_name, scores.folder)


def test_leads_in_a_range_of_distances(scores):
    """Targets 4 to 31 tokens back, of which STEM full leads on 40 + 50 of 150 by 0.5 nats and on 60 by 0.2."""
    lead = loss(scores, "dense", "stem-full", "distance", 4, 32)
    np.testing.assert_allclose(lead.differences, (40 * 0.5 + 50 * 0.5 + 60 * 0.2) / 150)
    losses(scores.folder, "stem-third", FULL, np.full((4, 3), 12.0), seeds=2)
    with pytest.raises(UserError, match="different seeds or targets"):
        loss(scores, "dense", "stem-third", "distance")


def test_growths_compare_the_same_words(scores):
    """By hand: of each word its two means, weighted by n1 n2 / (n1 + n2); words of one kind alone say nothing."""
    first, second, third = 0.2 - 0.1, (30 * 1.1 + 60 * 1.3) / 90 - 1.0, 0.1 - 0.5
    weights = np.array([90 * 10 / 100, 10 * 90 / 100, 5 * 5 / 10])
    wanted = np.average([first, second, third], weights=weights)
    contrast = growth(scores, "dense", "stem-full", "repeat")
    np.testing.assert_allclose(contrast.differences, wanted)
    assert contrast.item_se > 0
    np.testing.assert_allclose(growth(scores, "dense", "stem-full", "far").differences, 1.3 - 1.1)


def test_words_that_lead_alike_everywhere_show_no_growth(scores):
    """Though the lead on repeated targets is larger in the mean: they are other words."""
    losses(scores.folder, "stem-full", FULL, 12 - np.array([[0.1] * 3, [1.0] * 3, [0.5] * 3, [0.2] * 3]))
    np.testing.assert_allclose(growth(scores, "dense", "stem-full", "repeat").differences, 0, atol=1e-12)
    lead = np.array([0.1, 1.0, 0.5, 0.2])
    means = [np.average(lead, weights=WORDS[:, kinds].sum(axis=1)) for kinds in ([0], [1, 2])]
    assert means[1] - means[0] > 0.5


def test_scores_by_length(scores):
    np.testing.assert_allclose(score(scores, *PAIR, "multihop").differences, 10 / 4)
    np.testing.assert_allclose(score(scores, *PAIR, "multihop", below=4000).differences, 4.0)
    np.testing.assert_allclose(score(scores, *PAIR, "multihop", 4000, 8000).differences, 0.0)
    np.testing.assert_allclose(score(scores, *PAIR, "multihop", 8000).differences, 3.0)
    np.testing.assert_allclose(score(scores, *PAIR, "longbench_2wikimqa_e", 8000).differences, 3.0)
    with pytest.raises(Untested, match="this scale asks for none"):
        score(scores, *PAIR, "bbh")
    with pytest.raises(Untested, match="no item is of that length"):
        score(scores, *PAIR, "multihop", 10000)


def test_dense_must_beat_what_needs_no_knowledge(scores):
    def failures():
        return [level.failure() for level in levels_of(Call(score, {"task": "multihop"}), again(scores))]

    assert failures() == [None]
    items(scores.folder, "dense", (10.0, 11, 12, 11))
    assert failures() == [None]  # three seeds on eight items show nothing
    items(scores.folder, "dense", (2.0, 2, 2, 2), seeds=100)
    reason = failures()[0][0]
    assert re.fullmatch(
        r"dense scores \d\.\d to \d+\.\d% \(95%\), less than 2 points above the 10.0 of what needs no knowledge", reason
    )


def test_prompts_that_are_cut_are_not_judged(scores):
    assert prompts_fit(scores, "multihop") is None
    items(scores.folder, "dense", (20.0, 30, 40, 60), cut=2)
    cut = again(scores)
    assert prompts_fit(cut, "multihop", below=4000) is None
    reason = prompts_fit(cut, "multihop")
    assert reason == "50% of the prompts are longer than the models' context and would lose their beginning"
