"""What a published model scores on benchmarks, and what conversion keeps: metrics of recipes/model_scoreboard.yaml.

A published model has no seeds. Intervals are over a hundred groups of items: each is left out once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import numpy as np

from stemrepro.common.errors import UserError
from stemrepro.common.paths import RECIPES
from stemrepro.common.yaml_records import Strict, parse, read_yaml
from stemrepro.measures.scores import Scores, kept
from stemrepro.measures.study import groups, rows
from stemrepro.verdicts.effect import Effect, Unmeasured, jackknife_of_shares

if TYPE_CHECKING:
    import pandas as pd

STUDY, OVER = "scoreboard", "groups of items"
TASKS = {
    "openbookqa": ("OpenBookQA", "acc_norm"),
    "piqa": ("PIQA", "acc_norm"),
    "social_iqa": ("Social IQa", "acc"),
    "commonsense_qa_cloze": ("CommonsenseQA", "acc_norm"),
    "boolq": ("BoolQ", "acc"),
    "mmlu_cloze": ("MMLU", "acc_norm"),
}
"""Label of each task, and lm-eval's metric that it is judged by."""
MEAN = "mean"
GROUPS = 100
"""Of items, which are dealt out to them in turn, task by task."""
DENSE, CHANCE, CARD = "dense", "chance", "card"
"""The model itself, and arms that are numbers: of each item one over its choices, of each task what is published."""


class Card(Strict):
    """Published accuracies of a model in percent, by task.

    Attributes:
        source: where they were read.
        read: when.
        instruct: of the model itself.
        differences: between its scorer and ours.
    """

    source: str
    read: str
    instruct: dict[str, float]
    differences: dict[str, str]


def models(scores: Scores) -> list[str]:
    """Return the models that were scored."""
    return [model for (model,) in groups(scores, STUDY, "choices", "model")]


@kept
def choices(scores: Scores, model: str, task: str) -> pd.DataFrame:
    """Return a model's choices by item; UserError where it was scored on other items than dense."""
    of = rows(scores, STUDY, "choices", model=model, task=task)
    if model != DENSE and list(of["item"]) != list(choices(scores, DENSE, task)["item"]):
        home = scores.folder / STUDY
        raise UserError(f"{home}: models were scored on different items of '{task}'; delete its tables")
    return of


@kept
def card(scores: Scores) -> Card:
    """Return published accuracies of the scale's model; none are known where recipes/model_cards.yaml lacks it."""
    file, name = RECIPES / "model_cards.yaml", str(scores.scale.published)
    none = {"source": "none", "read": "never", "instruct": {}, "differences": {}}
    return parse(Card, read_yaml(file).get(name, none), file, name)


def _right(scores: Scores, arm: str, task: str) -> np.ndarray:
    """Return what an arm has of each item of a task: 100 or 0, or its number in percent [items]."""
    of = choices(scores, DENSE if arm in (CHANCE, CARD) else arm, task)
    if arm == CHANCE:
        return 100.0 / of["choices"].to_numpy()
    if arm == CARD:
        if task not in card(scores).instruct:
            raise Unmeasured(f"no accuracy of '{scores.scale.published}' on '{task}' is published")
        return np.full(len(of), card(scores).instruct[task])
    return 100.0 * (of[TASKS[task][1]] == of["right"]).to_numpy()


def share(scores: Scores, task: str, *arms: str) -> Effect:
    """Return an arm's accuracy, or a difference of two arms', in percent, of a task or in the mean over tasks."""
    tasks = list(TASKS) if task == MEAN else [task]
    number = np.repeat(np.arange(len(tasks)), [len(choices(scores, DENSE, name)) for name in tasks])
    return over_items(number, *(np.concatenate([_right(scores, arm, name) for name in tasks]) for arm in arms))


def discordant(scores: Scores, task: str, model: str) -> tuple[int, int]:
    """Return how many items dense alone has right, and how many the other model alone."""
    first, second = _right(scores, DENSE, task) > 0, _right(scores, model, task) > 0
    return int((first & ~second).sum()), int((second & ~first).sum())


def most_frequent(places: pd.Series) -> float:
    """Return the share of the most frequent place of answers, in percent."""
    return 100.0 * float(places.value_counts(normalize=True).max())


def accuracy(scores: Scores, high: str, low: str, task: Annotated[str, (*TASKS, MEAN)]) -> Effect:
    """The first arm's accuracy in points above the second's."""
    return share(scores, task, high, low)


def over_items(task: np.ndarray, *arms: np.ndarray) -> Effect:
    """Return a mean over tasks of shares of items, or a difference of two, in percent, with its interval on logits.

    Each of the groups of items is left out once.

    Args:
        task: number of each item's task, ascending [items].
        arms: 100 where an item is right, else 0 [items], of one arm or of two.
    """
    series = np.stack([np.ones(len(task)), *arms])
    group = (np.arange(len(task)) - np.searchsorted(task, task)) % GROUPS  # by the place in its task
    sums = np.zeros((len(series), int(task.max()) + 1, GROUPS))
    for each, values in zip(sums, series, strict=True):
        np.add.at(each, (task, group), values)

    def shares(groups: np.ndarray) -> tuple[np.ndarray, float]:
        items, *right = groups.sum(axis=-1)
        return np.array([(each / items).mean() for each in right]), float(items.sum())

    return jackknife_of_shares(shares, sums, OVER)


def mcnemar(alone: int, other: int) -> float:
    """Return the exact two-sided p of McNemar's test: how often chance splits discordant items as unevenly."""
    from scipy.stats import binomtest  # half a second that reading recipes can do without

    return float(binomtest(alone, alone + other).pvalue) if alone + other else 1.0
