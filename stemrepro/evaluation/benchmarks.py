"""Benchmark scores of finished runs, by lm-eval's own code, and what the analyses need of each item.

The table benchmarks has a line per task, seed and item. A run that diverged has none.

* acc, acc_norm, answer_acc, answer_acc_norm: right or not, with the prompt and with the answers alone;
* margin: in bits; cluster: items of one cluster share a text; gold: place of the right answer;
* seen: how often its evidence was whole in a sequence of training.

"Answer-only" scores the answers after an empty prompt: what can be had without the question. The margin of an item is
in bits: how much more the prompt adds to the log-probability of the right answer than of a wrong one. It is averaged
over the wrong ones: log2 p(right | prompt) / p(right) - mean of log2 p(wrong | prompt) / p(wrong). A prompt that says
nothing about which answer is right has margin 0, however long or common the answers are.
"""

import logging
from pathlib import Path

import numpy as np
import pandas as pd
from lm_eval.api.task import ConfigurableTask
from lm_eval.evaluator import evaluate
from lm_eval.tasks import TaskManager
from tokenizers import Tokenizer

from stemrepro.common.errors import UserError
from stemrepro.config.scores import PlannedTasks
from stemrepro.data.blocks import TokenBlocks
from stemrepro.data.tokenizer import read_tokenizer
from stemrepro.evaluation.lm import StemLM, task_manager
from stemrepro.evaluation.weights import load_run
from stemrepro.evaluation.writing import Report, Result, Scored, Tables, halved
from stemrepro.training.run import Run

FIELDS = ("acc", "acc_norm", "answer_acc", "answer_acc_norm", "margin", "seen")  # numbers of an item that differ by run
METRICS = [
    {"metric": m, "aggregation": "mean", "higher_is_better": True} for m in ("acc", "acc_norm", "acc_mutual_info")
]


def load_task(manager: TaskManager, name: str) -> ConfigurableTask:
    """Return a multiple-choice task that also scores the answers alone.

    UserError: no such task, or one of another kind.
    """
    if name not in manager.all_tasks:
        raise UserError(f"benchmark task '{name}' is unknown; hub tasks need 'hub: true' in the scale's benchmarks")
    (task,) = manager.load([name])["tasks"].values()
    if task.OUTPUT_TYPE != "multiple_choice":
        raise UserError(f"benchmark task '{name}' is not multiple choice; score it through lm-eval's Python API")
    metrics = {entry["metric"] for entry in task.config.metric_list or ()}
    if metrics >= {entry["metric"] for entry in METRICS}:
        return task
    return ConfigurableTask(config=task.config.to_dict(keep_callable=True) | {"metric_list": METRICS})


def margin(gained: np.ndarray, gold: int) -> float:
    """Return the bits by which the right answer gained more than the wrong ones; `gained` [choices] in nats."""
    return float(gained[gold] - np.delete(gained, gold).mean()) / np.log(2)


def item_scores(task: ConfigurableTask, sample: Result) -> Result:
    """Return what is kept of one item; acc and acc_norm are lm-eval's own.

    UserError: a log-likelihood is not finite.
    """
    choices = task.doc_to_choice(sample["doc"])
    gold = (task.doc_to_text if task.multiple_input else task.doc_to_target)(sample["doc"])
    gold = choices.index(gold) if isinstance(gold, str) else int(gold)
    scores = np.array([score for score, _ in sample["filtered_resps"]])
    if not np.isfinite(scores).all():
        raise UserError(f"task '{task.config.task}': a log-likelihood is not finite; the model's weights are damaged")
    with_prompt, alone = scores[: len(choices)], scores[len(choices) :]
    lengths = np.array([len(choice) for choice in choices])
    return {
        "acc": sample["acc"],
        "acc_norm": sample["acc_norm"],
        "answer_acc": float(np.argmax(alone) == gold),
        "answer_acc_norm": float(np.argmax(alone / lengths) == gold),
        # Where the choices are the prompts, the answer is one and the same text, and its probability alone cancels.
        "margin": margin(with_prompt - (0 if task.multiple_input else alone), gold),
        "gold": gold,
        "answer": choices[gold],
        "choices": len(choices),
        "cluster": sample["doc"].get("cluster", f"{task.config.task}/{sample['doc_id']}"),
        "evidence": sample["doc"].get("evidence", ""),
    }


def times_seen(run: Run, tokenizer: Tokenizer, passages: list[str]) -> np.ndarray:
    """Return how often each passage was whole in a sequence that this run was trained on, [passages]; 0 for ''."""
    training, counts = run.training, np.zeros(len(passages), np.int64)
    if not any(passages):
        return counts
    blocks = TokenBlocks(run.blocks, "train", training.sequence, run.model.vocab)
    width, dtype = training.sequence + 1, blocks.tokens.dtype
    numbers = blocks.block_numbers(run.seed, 0, training.steps * training.batch)
    seen, drawn = np.unique(numbers, return_counts=True)
    text = blocks.at(seen).numpy().astype(dtype).tobytes()
    for number, passage in enumerate(passages):
        needle = np.array(tokenizer.encode(passage.rstrip(".")).ids, dtype).tobytes()
        at = text.find(needle) if needle else -1
        while at >= 0:
            first, last = at // dtype.itemsize, (at + len(needle)) // dtype.itemsize - 1
            if at % dtype.itemsize == 0 and first // width == last // width:
                counts[number] += drawn[first // width]
            at = text.find(needle, at + 1)
    return counts


def score(run: Run, report: Report, asked: PlannedTasks, tokenizer_file: Path, items: Path) -> dict[str, Result]:
    """Score one run on the planned benchmarks; {} for one that diverged.

    Return for each task the arrays FIELDS [items], "gold", "choices", "answer" and "clusters" [items], and how many
    requests lost the beginning of their prompt ("truncated", out of "requests").
    """
    logging.getLogger("lm_eval").setLevel(logging.ERROR)  # one line per metric and task
    if run.diverged is not None:
        return {}
    tokenizer = read_tokenizer(tokenizer_file)
    lm = StemLM(load_run(run), tokenizer, run.training.sequence, asked.batch)
    manager, results, evidence = task_manager(items, asked.hub), {}, {}
    for number, name in enumerate(asked.tasks):
        share = (number + 1) / len(asked.tasks)
        lm.on_batch = lambda _, loss, share=share: report(int(share * run.training.steps), loss, 0.0)
        lm.truncated, task = 0, load_task(manager, name)
        samples = evaluate(lm, {"tasks": {name: task}}, limit=asked.items, bootstrap_iters=0)["samples"][name]
        rows = [item_scores(task, sample) for sample in sorted(samples, key=lambda sample: sample["doc_id"])]
        columns = {field: np.array([row.get(field, 0) for row in rows]) for field in (*FIELDS, "gold", "choices")}
        columns["clusters"] = np.array([row["cluster"] for row in rows])
        columns["answer"] = np.array([row["answer"] for row in rows])
        results[name] = columns | {"truncated": lm.truncated, "requests": int(2 * columns["choices"].sum())}
        evidence[name] = [row["evidence"] for row in rows]
    counts = times_seen(run, tokenizer, [passage for passages in evidence.values() for passage in passages])
    for name, passages in evidence.items():
        results[name]["seen"], counts = np.split(counts, [len(passages)])
    return results


def _items(result: Result, name: str) -> pd.DataFrame:
    task = result[name]
    right = {field: task[field].astype(bool) for field in FIELDS if field not in ("margin", "seen")}
    about = {"task": name, "item": np.arange(len(task["gold"])), "cluster": task["clusters"], "gold": task["gold"]}
    return pd.DataFrame(about | right | {"margin": halved(task["margin"]), "seen": task["seen"]})


def tables(scored: Scored) -> tuple[Result, Tables]:
    """Return the means of an arm by task, and its table (all its seeds)."""
    results = [result for _, result in scored.ended]
    tasks = {}
    for name, first in (results[0] if results else {}).items():
        stacked = {field: np.stack([result[name][field] for result in results]) for field in FIELDS}
        means = {field: round(float(stacked[field].mean()), 6) for field in FIELDS if field != "seen"}
        tasks[name] = means | {
            "items": len(first["gold"]),
            "chance": round(float((1 / first["choices"]).mean()), 6),
            "majority": round(float(np.unique(first["answer"], return_counts=True)[1].max() / len(first["answer"])), 6),
            "truncated": round(first["truncated"] / first["requests"], 6),
            "seen": round(float((stacked["seen"] > 0).mean()), 6),
        }
    return {"tasks": tasks}, {"benchmarks": pd.concat([scored.lines(_items, name) for name in tasks])} if tasks else {}
