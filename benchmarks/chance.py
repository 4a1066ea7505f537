"""Are the benchmarks wired right? An oracle must score 100, and answers by lot must score chance.

    python -m benchmarks.chance --scale laptop

Every task of a scale is scored, also by an untrained model, which may prefer short answers. Exit code 1 if the oracle
or the lot is off. The scale's items and tokenizer must exist:

    stemrepro plan --scale laptop
    dvc repro plan/dvc.yaml:items@text-8 plan/dvc.yaml:blocks@laptop-text-8
"""

import argparse
import hashlib
import logging
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
from lm_eval.api.model import LM
from lm_eval.evaluator import evaluate
from scipy.stats import binom

from stemrepro.config.arm import shaped
from stemrepro.data.tokenizer import read_tokenizer
from stemrepro.evaluation.benchmarks import item_scores, load_task
from stemrepro.evaluation.lm import StemLM, task_manager
from stemrepro.measures.catalog import load
from stemrepro.model.transformer import build
from stemrepro.pipeline.plan import make_params

LEVEL = 0.99


class Answers(LM):
    """A model that scores an answer by a function of (prompt, answer)."""

    def __init__(self, function: Callable[[str, str], float]) -> None:
        super().__init__()
        self.function = function

    def loglikelihood(self, requests: list, **_: object) -> list[tuple[float, bool]]:
        """Return what the function gives for each request."""
        return [(self.function(*request.args), False) for request in requests]

    def loglikelihood_rolling(self, requests: list, **_: object) -> list[float]:
        """Raise: multiple choice doesn't need it."""
        raise TypeError("multiple choice only")

    generate_until = loglikelihood_rolling


def by_lot(prompt: str, answer: str) -> float:
    """Return a number that has nothing to do with the text's meaning or length."""
    return -float(int(hashlib.sha256(f"{prompt}|{answer}".encode()).hexdigest()[:12], 16))


def main() -> None:
    """Print a row per task."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", default="laptop")
    name = parser.parse_args().scale
    logging.getLogger("lm_eval").setLevel(logging.ERROR)
    catalog = load()
    scale = catalog.scale(name)
    items, tokenizer = Path("data") / scale.data / "items", read_tokenizer(Path("data") / name / "tokenizer.json")
    untrained = StemLM(build(shaped(scale.model, catalog.arms["dense"]), 0), tokenizer, scale.model.sequence)
    untrained.on_batch = lambda *_: None
    planned = make_params(catalog, name).scale[name].benchmarks
    manager, tests = task_manager(items), len(planned.tasks)
    good, gap = True, "  "
    print(
        f"{'task':22}{'items':>6}{gap}oracle{gap}{'chance':>6}{gap}"
        f"by lot ({LEVEL:.0%} for all tasks){gap}untrained: acc, acc_norm, answers alone"
    )
    for task_name in planned.tasks:

        def accuracy(model: LM, name: str = task_name) -> list[dict]:
            task = load_task(manager, name)
            samples = evaluate(model, {"tasks": {name: task}}, limit=planned.items, bootstrap_iters=0)["samples"][name]
            return [item_scores(task, sample) | {"sample": sample} for sample in samples]

        lots = accuracy(Answers(by_lot))
        right = {tuple(row["sample"]["arguments"][row["gold"]]) for row in lots}
        oracle = np.mean(
            [row["acc"] for row in accuracy(Answers(lambda *pair, right=right: 0.0 if pair in right else -1.0))]
        )
        chance, count, hits = np.mean([1 / row["choices"] for row in lots]), len(lots), sum(row["acc"] for row in lots)
        low, high = binom.interval(1 - (1 - LEVEL) / tests, count, chance)
        fine = oracle == 1 and low <= hits <= high
        good = good and fine
        plain = accuracy(untrained)
        untrained_scores = "  ".join(
            f"{100 * np.mean([row[key] for row in plain]):5.1f}" for key in ("acc", "acc_norm", "answer_acc")
        )
        lot = f"{100 * hits / count:5.1f} ({100 * low / count:.1f} to {100 * high / count:.1f})"
        print(
            f"{task_name:22}{count:6}{gap}{100 * oracle:6.1f}{gap}{100 * chance:6.1f}{gap}"
            f"{lot:34}{untrained_scores}{'' if fine else '  WRONG'}",
            flush=True,
        )
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
