"""Any task or group of lm-eval's, generation too, by its own code and its own metric.

The paper reports such tasks next to its eight benchmarks. The table reasoning has a line per task or group, seed and
item. A run that diverged has none. These tasks read the Hugging Face hub. The items of all members of a group are put
together, so that each item counts the same.

* value: points under the task's metric, of 100; floor: the points that need no knowledge;
* length: in words, or as the task says; cut: whether the prompt is longer than the model's context.

RULER's tasks make their items by the run's tokenizer, at those of its lengths that the run's context holds.
"""

import logging
import random
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd
from lm_eval.api.task import ConfigurableTask
from lm_eval.evaluator import evaluate
from lm_eval.tasks import TaskManager

from stemrepro.common.errors import UserError, unknown
from stemrepro.common.files import write_json
from stemrepro.config.scores import PlannedReasoning
from stemrepro.data.tokenizer import read_tokenizer
from stemrepro.evaluation.lm import StemLM
from stemrepro.evaluation.weights import load_run
from stemrepro.evaluation.writing import Report, Result, Scored, Tables
from stemrepro.training.run import Run

SHOTS = 1234
"""Seed of the examples before a question, and of items that are made: lm-eval's own, the same for every run."""
GUESSES = 5  # how many of the most frequent answers are tried as the one answer to everything
LENGTHS = (4096, 8192, 16384, 32768, 65536, 131072)  # tokens of RULER's items with their answers
BY_LENGTH = "max_length"  # in place of a metric: the one that is called as this field of an item says, as RULER's are


def task_manager(tokenizer_file: Path, lengths: Sequence[int], folder: Path, **how: object) -> TaskManager:
    """Return lm-eval's task manager, for tasks that make items too, of so many tokens with their answers.

    `folder` gets the tokenizer in the form that these tasks read.
    """
    shutil.copyfile(tokenizer_file, folder / "tokenizer.json")
    write_json(folder / "tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast"})
    return TaskManager(metadata={"tokenizer": str(folder), "max_seq_lengths": list(lengths)}, **how)


def members(manager: TaskManager, name: str) -> dict[str, ConfigurableTask]:
    """Return the tasks of a group, or the task itself, by name; UserError where lm-eval has no such task or group."""
    names = [*manager.all_tasks, *manager.all_groups]
    if name not in names:
        raise unknown("task", name, names, "lm-eval")
    random.seed(SHOTS)  # some tasks draw their items while they are loaded
    tasks = dict(manager.load([name])["tasks"])
    for task in tasks.values():
        task.set_fewshot_seed(SHOTS)
    return tasks


def answer_of(task: ConfigurableTask, doc: Result) -> str:
    """Return the right answer, as text."""
    target = task.doc_to_target(doc)
    return str(target[0] if isinstance(target, list) and target else target)


def metric_of(metric: str, doc: Result) -> str:
    """Return what the metric of an item is called."""
    return str(doc[BY_LENGTH]) if metric == BY_LENGTH and BY_LENGTH in doc else metric


def floor_of(task: ConfigurableTask, docs: list[Result], metric: str) -> float:
    """Return the points that need no knowledge, by the task's own scoring.

    They are those of a draw among the choices, or of one of the most frequent answers given to every question;
    whichever is more.
    """
    answers = Counter(answer_of(task, doc) for doc in docs)
    if task.OUTPUT_TYPE == "multiple_choice":
        draw = float(np.mean([100 / len(task.doc_to_choice(doc)) for doc in docs]))
        return max(draw, 100 * max(answers.values()) / len(docs)) if len(docs) > 1 else draw
    if len(docs) < 2:
        return 0.0  # the only answer is no guess
    scores = [
        [100 * float(task.process_results(doc, [guess])[metric_of(metric, doc)]) for doc in docs]
        for guess, _ in answers.most_common(GUESSES)
    ]
    return float(np.max(np.mean(scores, axis=1)))


def task_items(task: ConfigurableTask, name: str, samples: list[Result], metric: str, lm: StemLM) -> list[Result]:
    """Return what is kept of each item, under the first of the task's filters; UserError: it has no such metric."""
    first = samples[0]["filter"]
    samples = sorted((s for s in samples if s["filter"] == first), key=lambda sample: sample["doc_id"])
    if metric_of(metric, samples[0]["doc"]) not in samples[0]:
        raise UserError(f"task '{name}' has no metric '{metric}'; it has {', '.join(samples[0]['metrics'])}")
    floor = floor_of(task, [sample["doc"] for sample in samples], metric)
    items = []
    for sample in samples:
        prompt, told = str(sample["arguments"][0][0]), sample["doc"].get("length")  # in words, as LongBench says
        value = 100 * float(sample[metric_of(metric, sample["doc"])])
        length = int(told) if isinstance(told, int | float) else len(prompt.split())
        about = {"cut": len(lm.tok_encode(prompt)) >= lm.context, "cluster": f"{name}/{sample['doc_id']}"}
        items.append({"value": value, "length": length, "floor": floor} | about)
    return items


def score_tasks(
    lm: StemLM, manager: TaskManager, planned: PlannedReasoning, report: Callable[[float], None]
) -> dict[str, pd.DataFrame]:
    """Return for each task or group a line per item; `report` gets the share that is done."""
    results = {}
    for number, (name, metric) in enumerate(planned.tasks.items()):
        tasks = members(manager, name)
        share = (number + 1) / len(planned.tasks)
        lm.on_batch = lambda *_, share=share: report(share)
        samples = evaluate(lm, {"tasks": tasks}, limit=planned.items, bootstrap_iters=0)["samples"]
        rows = [row for member, task in tasks.items() for row in task_items(task, member, samples[member], metric, lm)]
        results[name] = pd.DataFrame(rows)
    return results


def score(run: Run, report: Report, asked: PlannedReasoning, tokenizer_file: Path) -> dict[str, pd.DataFrame]:
    """Score one run on the planned tasks; {} where none is planned or the run diverged."""
    if run.diverged is not None or not asked.tasks:
        return {}
    logging.getLogger("lm_eval").setLevel(logging.ERROR)  # one line per metric and task
    lm = StemLM(load_run(run), read_tokenizer(tokenizer_file), run.training.sequence, asked.batch)
    lengths = [length for length in LENGTHS if length <= run.training.sequence] or LENGTHS[:1]
    with TemporaryDirectory() as folder:
        manager = task_manager(tokenizer_file, lengths, Path(folder))
        return score_tasks(lm, manager, asked, lambda share: report(int(share * run.training.steps), np.nan, 0.0))


def _items(result: dict[str, pd.DataFrame], name: str) -> pd.DataFrame:
    return result[name].assign(task=name, item=np.arange(len(result[name])))


def tables(scored: Scored) -> tuple[Result, Tables]:
    """Return the means of an arm by task or group, and its table (all its seeds)."""
    names = list(scored.ended[0][1]) if scored.ended else []
    frames = {name: scored.lines(_items, name) for name in names}
    about = {}
    for name, frame in frames.items():
        mean, floor = (round(float(frame[column].mean()), 6) for column in ("value", "floor"))
        about[name] = {"items": int(frame["item"].nunique()), "mean": mean, "floor": floor}
    return {"tasks": about}, {"reasoning": pd.concat(frames.values())} if frames else {}
