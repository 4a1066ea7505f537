"""Benchmark scores of a run against lm-eval's own numbers and counting by hand."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from datasets import Dataset, DatasetDict
from lm_eval import simple_evaluate, tasks
from lm_eval.evaluator import evaluate
from lm_eval.tasks import manager
from tokenizers import Tokenizer

from stemrepro.common.errors import UserError
from stemrepro.config.scores import PlannedTasks
from stemrepro.data.blocks import TokenBlocks
from stemrepro.evaluation import benchmarks
from stemrepro.evaluation.benchmarks import item_scores, load_task, score, times_seen
from stemrepro.evaluation.lm import StemLM, task_manager
from stemrepro.evaluation.weights import load_run
from stemrepro.model.transformer import build
from stemrepro.training.train import train
from tests.conftest import TASKS, quiet, run_of, tables_of


@pytest.fixture(scope="module")
def scored(sample, tiny, catalog, tmp_path_factory):
    run = run_of(tmp_path_factory.mktemp("run"), sample, "sample", "stem-third", catalog.arms["stem-third"], tiny)
    train(run, quiet)
    planned = PlannedTasks(**tiny.benchmarks.model_dump(), tasks=TASKS)
    return run, score(run, quiet, planned, sample / "tokenizer.json", sample / "items")


def test_accuracies_are_lm_evals(scored, sample):
    run, scores = scored
    lm = StemLM.from_folder(run.folder, sample / "tokenizer.json")
    own = task_manager(sample / "items")
    results = simple_evaluate(lm, tasks=list(TASKS), task_manager=own, limit=6, bootstrap_iters=0)["results"]
    for task in TASKS:
        for metric in ("acc", "acc_norm"):
            assert scores[task][metric].mean() == pytest.approx(results[task][f"{metric},none"])


def test_margins_and_answers_alone_by_hand(scored, sample):
    run, scores = scored
    lm = StemLM.from_folder(run.folder, sample / "tokenizer.json")
    items = [json.loads(line) for line in (sample / "items" / "openbookqa.jsonl").read_text().splitlines()[:6]]

    def nats(prompt, choices):
        context = lm.tok_encode(prompt) if prompt else [0]
        whole = [lm.tok_encode(f"{prompt} {choice}") for choice in choices]
        rows = [(("", ""), context, row[len(context) if prompt else 0 :]) for row in whole]
        return np.array([value for value, _ in lm._loglikelihood_tokens(rows)])

    for number, item in enumerate(items):
        alone = nats("", item["choices"])
        bits = (nats(item["query"], item["choices"]) - alone) / np.log(2)
        wrong = [bits[place] for place in range(4) if place != item["gold"]]
        assert scores["openbookqa"]["margin"][number] == pytest.approx(bits[item["gold"]] - sum(wrong) / 3, abs=1e-3)
        assert scores["openbookqa"]["answer_acc"][number] == (int(np.argmax(alone)) == item["gold"])


def test_times_seen_counts_the_batches(scored, sample):
    run, scores = scored
    tokenizer = Tokenizer.from_file(str(sample / "tokenizer.json"))
    blocks = TokenBlocks(run.blocks, "train", 32, 300)
    rows = [row for k in range(run.training.steps * 2) for row in blocks.batch(run.seed, k, 2).tolist()]
    passages = [tokenizer.decode(rows[0][4:12]), tokenizer.decode(rows[7][20:26]), " qzx qzx qzx", ""]

    def count(passage):
        ids = tokenizer.encode(passage).ids
        starts = range(33 - len(ids) + 1)
        return sum(row[i : i + len(ids)] == ids for row in rows for i in starts) if passage else 0

    assert times_seen(run, tokenizer, passages).tolist() == [count(passage) for passage in passages]
    assert times_seen(run, tokenizer, passages)[0] > 0
    assert scores["openbookqa"]["seen"].sum() == 0


def test_a_line_per_task_seed_and_item(scored):
    run, scores = scored
    seen = np.array([256, 300, 255, 1, 0, 512])
    results = [scores, scores | {"openbookqa": scores["openbookqa"] | {"seen": seen}}]
    about, tables = tables_of("benchmarks", [run, replace(run, seed=1)], results)
    frame, told = tables["benchmarks"], about["tasks"]["openbookqa"]
    assert frame[["task", "seed", "item"]].to_numpy().tolist() == [
        [task, seed, item] for task in TASKS for seed in (0, 1) for item in range(6)
    ]
    second = frame[(frame["task"] == "openbookqa") & (frame["seed"] == 1)]
    assert second["seen"].tolist() == seen.tolist()
    for field in ("acc", "acc_norm", "answer_acc", "answer_acc_norm", "gold"):
        assert second[field].tolist() == scores["openbookqa"][field].tolist()
    np.testing.assert_allclose(second["margin"], scores["openbookqa"]["margin"], rtol=1e-3)
    assert told["acc"] == pytest.approx(scores["openbookqa"]["acc"].mean(), abs=1e-6)
    assert told["seen"] == pytest.approx(5 / 12, abs=1e-6)
    assert (told["chance"], told["items"]) == (0.25, 6)


def test_majority_is_the_most_frequent_answer(scored):
    run, scores = scored
    changed = scores["openbookqa"] | {"answer": np.array(["yes", "no", "yes", "yes", "no", "yes"])}
    about, _ = tables_of("benchmarks", [run], [{"openbookqa": changed}])
    assert about["tasks"]["openbookqa"]["majority"] == pytest.approx(4 / 6, abs=1e-6)


def test_log_likelihoods_that_are_not_finite_are_refused(scored, asked, sample, monkeypatch):
    run, _ = scored
    model = load_run(run)
    model.head.weight.data.fill_(3e38)
    monkeypatch.setattr(benchmarks, "load_run", lambda _: model)
    with pytest.raises(UserError, match="log-likelihoods that are not finite; its weights are damaged"):
        score(run, quiet, asked, sample / "tokenizer.json", sample / "items")


def test_a_task_that_does_not_ask_for_the_answers_alone_is_made_to(sample, tmp_path):
    """As lm-eval's own tasks from the hub."""
    text = """
task: plain
custom_dataset: !function stemrepro.evaluation.task_items.load
dataset_kwargs: {task: openbookqa}
output_type: multiple_choice
test_split: test
doc_to_text: "{{query}}"
doc_to_choice: "{{choices}}"
doc_to_target: gold
metric_list: [{metric: acc, aggregation: mean, higher_is_better: true}]
metadata: {version: 1}
"""
    (tmp_path / "plain.yaml").write_text(text)
    (tmp_path / "other.yaml").write_text(text.replace("plain", "other").replace("multiple_choice", "generate_until"))
    metadata = {"items": str(sample / "items")}
    manager = tasks.TaskManager(include_path=tmp_path, include_defaults=False, metadata=metadata)
    assert "acc_mutual_info" in load_task(manager, "plain")._metric_fn_list
    with pytest.raises(UserError, match="'other' is not multiple choice"):
        load_task(manager, "other")


CHOICES = {"label": ["A", "B", "C"], "text": ["one", "two", "three"]}
ARC = {"answerKey": "C", "choices": CHOICES}
WINOGRANDE = {"option1": "the case", "option2": "the trophy", "answer": "2"}
ROWS = {
    "allenai/ai2_arc": [ARC | {"question": f"Which is number {n}?"} for n in range(4)],
    "allenai/winogrande": [WINOGRANDE | {"sentence": f"The {n} fits in it because _ is small."} for n in range(4)],
}


@pytest.mark.slow
def test_lm_evals_own_tasks_from_the_hub(sample, make_run, monkeypatch, tmp_path):
    """Its task files, on local rows of the hub's form: gold, answers alone and margins come out as for our own.

    A task manager reads all files of its folder, some thousands; here those of benchmarks that the paper has.
    """
    paths, families = [], Path(manager.__file__).parent
    for name in ("arc", "hellaswag", "winogrande", "super_glue", "piqa", "siqa", "openbookqa"):
        shutil.copytree(families / name, tmp_path / name)
    monkeypatch.setattr(manager, "__file__", str(tmp_path / "manager.py"))

    def load_dataset(path, name=None, **_):
        paths.append(path)
        rows = Dataset.from_list(ROWS[path])
        return DatasetDict({split: rows for split in ("train", "validation", "test")})

    monkeypatch.setattr("datasets.load_dataset", load_dataset)
    every = task_manager(sample / "items", hub=True)
    theirs = {"arc_easy", "arc_challenge", "hellaswag", "winogrande", "boolq", "piqa", "openbookqa"}
    assert {"social_iqa", "atlas_capital", *theirs} <= set(every.all_tasks)
    lm = StemLM(build(make_run("dense").model, 0), Tokenizer.from_file(str(sample / "tokenizer.json")), 32)
    for name, gold in (("arc_easy", 2), ("winogrande", 1)):
        task = load_task(every, name)
        rows = [item_scores(task, s) for s in evaluate(lm, {"tasks": {name: task}}, bootstrap_iters=0)["samples"][name]]
        assert [row["gold"] for row in rows] == [gold] * 4
        assert rows[0]["cluster"] == f"{name}/0"
        assert {row["acc"] for row in rows} <= {0.0, 1.0}
    assert set(paths) == set(ROWS)
    with pytest.raises(UserError, match=r"openbookqa\.jsonl is missing"):
        task_manager(sample / "none").load(["openbookqa"])  # without the hub the name is the archive's
