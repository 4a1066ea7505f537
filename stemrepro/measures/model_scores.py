"""What a published model scores on benchmarks, and what conversion keeps: metrics of recipes/model_scoreboard.yaml.

A published model has no seeds. Intervals are over a hundred groups of items: each is left out once.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from stemrepro.common.errors import UserError
from stemrepro.common.paths import RECIPES
from stemrepro.common.yaml_records import Strict, parse, read_yaml
from stemrepro.measures.base import Measure
from stemrepro.measures.inputs import Inputs
from stemrepro.measures.metric import Field, metric
from stemrepro.measures.reading import read_table
from stemrepro.verdicts.contrast import Contrast, Unmeasured, left_out, logits_of

if TYPE_CHECKING:
    import pandas as pd

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
CHANCE, CARD = "chance", "card"
"""Arms that are numbers: of each item one over its choices, of each task the published accuracy."""


class Card(Strict):
    """Published accuracies of a model in percent, by task.

    Attributes:
        source: where they were read.
        read: when.
        instruct: of the model itself.
        base: of the model that it was tuned from.
        differences: between its scorer and ours.
    """

    source: str
    read: str
    instruct: dict[str, float]
    base: dict[str, float]
    differences: dict[str, str]


class ModelScores(Measure):
    """Accuracies in percent of a published model and of its conversions, item by item."""

    study, over = "scoreboard", "groups of items"
    fields: ClassVar[dict[str, Field]] = {"task": (*TASKS, MEAN)}

    def __init__(self, inputs: Inputs) -> None:
        super().__init__(inputs)
        home = inputs.folder / self.study
        self.models = sorted({path.name.split(".")[0] for path in home.glob("*.parquet")}) or ["dense"]
        self.items = {task: {model: read_table(home, f"{model}.{task}") for model in self.models} for task in TASKS}
        for task, tables in self.items.items():
            if any(not tables["dense"]["item"].equals(table["item"]) for table in tables.values()):
                raise UserError(f"{home}: models were scored on different items of '{task}'; delete its tables")

    @cached_property
    def card(self) -> Card:
        """The published accuracies of the scale's model; none are known where recipes/model_cards.yaml lacks it."""
        file, name = RECIPES / "model_cards.yaml", self.inputs.scale.published
        none = {"source": "none", "read": "never", "instruct": {}, "base": {}, "differences": {}}
        return parse(Card, read_yaml(file).get(name, none), file, str(name))

    def of(self, arm: str, task: str) -> np.ndarray:
        """Return what an arm has of each item of a task: 100 or 0, or its number in percent [items]."""
        table: pd.DataFrame = self.items[task]["dense" if arm in (CHANCE, CARD) else arm]
        if arm == CHANCE:
            return 100.0 / table["choices"].to_numpy()
        if arm == CARD:
            if task not in self.card.instruct:
                raise Unmeasured(f"no accuracy of '{self.inputs.scale.published}' on '{task}' is published")
            return np.full(len(table), self.card.instruct[task])
        return 100.0 * (table[TASKS[task][1]] == table["right"]).to_numpy()

    def accuracy(self, arm: str, task: str, less: str | None = None) -> Contrast:
        """Return an accuracy, or a difference of two, in percent, of a task or in the mean over tasks."""
        tasks = list(TASKS) if task == MEAN else [task]
        number = np.repeat(np.arange(len(tasks)), [len(self.of(arm, name)) for name in tasks])
        arms = [arm] if less is None else [arm, less]
        return over_items(number, *(np.concatenate([self.of(one, name) for name in tasks]) for one in arms))

    def discordant(self, task: str, model: str) -> tuple[int, int]:
        """Return how many items dense alone has right, and how many the other model alone."""
        first, second = self.of("dense", task) > 0, self.of(model, task) > 0
        return int((first & ~second).sum()), int((second & ~first).sum())

    def majority(self, task: str) -> float:
        """Return the share of the most frequent place of the right answer, in percent."""
        counts = self.items[task]["dense"]["right"].value_counts(normalize=True)
        return 100.0 * float(counts.max())

    def one_answer(self, task: str, model: str) -> float:
        """Return the share of items at which a model chooses the place that it chooses most, in percent."""
        return 100.0 * float(self.items[task][model][TASKS[task][1]].value_counts(normalize=True).max())

    @metric("accuracy:{task}", "the first arm's accuracy in points above the second's")
    def difference(self, high: str, low: str, task: str) -> Contrast:
        return self.accuracy(high, task, low)


def over_items(task: np.ndarray, first: np.ndarray, second: np.ndarray | None = None) -> Contrast:
    """Return a mean over tasks of shares of items, or a difference of two, in percent, with its interval on logits.

    Each of the groups of items is left out once. A share is known to one item, so that its variance is at least the
    square of what one moves.

    Args:
        task: number of each item's task, ascending [items].
        first: 100 where an item is right, else 0 [items].
        second: the same items, of another arm.
    """
    series = np.stack([np.ones_like(first), first] if second is None else [np.ones_like(first), first, second])
    signs = np.array([1.0, -1.0])[: len(series) - 1]
    place = np.arange(len(task)) - np.searchsorted(task, task)  # in its task
    sums = np.zeros((len(series), int(task.max()) + 1, GROUPS))
    np.add.at(sums, (slice(None), task, place % GROUPS), series)

    def shares(kept: np.ndarray) -> tuple[np.ndarray, float]:
        items, *right = kept.sum(axis=-1)
        return np.array([(each / items).mean() for each in right]), float(items.sum())

    points = left_out(lambda kept: float(signs @ shares(kept)[0]), sums)
    logits = left_out(lambda kept: float(signs @ logits_of(*shares(kept))[0]), sums)
    whole, steps = logits_of(*shares(sums))
    spread = (max(float(np.var(logits, ddof=1)), GROUPS * float(np.mean(steps**2))), GROUPS - 1.0)
    other = None if second is None else np.full(GROUPS, whole[1])
    return Contrast(points, spread=spread, logits=logits, other=other, over=ModelScores.over)


def mcnemar(alone: int, other: int) -> float:
    """Return the exact two-sided p of McNemar's test: how often chance splits discordant items as unevenly."""
    from scipy.stats import binomtest  # half a second that reading recipes can do without

    return float(binomtest(alone, alone + other).pvalue) if alone + other else 1.0
