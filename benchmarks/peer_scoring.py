"""Requests per second of our adapter for lm-eval and of lm-eval's own Hugging Face model, on the same weights."""

import gc
import logging
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
import yaml
from lm_eval.api.instance import Instance
from safetensors.torch import save_file

from benchmarks.interleaved import Row, compared, interleaved
from benchmarks.peer_training import MISSING, Steps
from stemrepro.common.files import atomic_write, digest, write_json
from stemrepro.common.provenance import provenance
from stemrepro.convert.folder import export
from stemrepro.data.integrity import read_corpus
from stemrepro.evaluation.lm import StemLM
from stemrepro.model.transformer import build

MEASURE, PEER = "scoring", "lm-eval's HFLM"
TARGET = 2.0
ARMS = ("dense", "stem-full")
CHOICES, PROMPT, ANSWER = 4, 24, 4
"""Answers to a question, words of a question and of an answer."""
CLOSE = 1e-3
"""Nats between the two scorers; more would mean that they don't do the same work."""


def requests(corpus: Path, count: int) -> list[Instance]:
    """Return answers to score: neighbouring words of the corpus, some answers to each question."""
    words = " ".join(row["text"] for row in read_corpus(corpus)).split()
    draw, instances = np.random.default_rng(0), []
    for _ in range(count // CHOICES):
        first, *others = draw.integers(0, len(words) - PROMPT, CHOICES + 1)
        prompt = " ".join(words[first : first + PROMPT])
        for start in others:
            answer = " " + " ".join(words[start : start + ANSWER])
            instances.append(Instance("loglikelihood", {}, (prompt, answer), len(instances)))
    return instances


def random_run(steps: Steps, arm: str, home: Path) -> Path:
    """Return the folder of a run as training leaves it, with the weights that it would begin with."""
    run = replace(steps.run(arm), folder=home / "runs/tiny/main" / arm / "seed0")
    run.folder.mkdir(parents=True)
    atomic_write(run.folder / "config.yaml", yaml.safe_dump(run.config))
    save_file(build(run.model, 0).state_dict(), run.weights, {"config": digest(run.config)})
    write_json(run.folder / "provenance.json", provenance() | {"epochs": 0.0})
    return run.folder


def measure(steps: Steps, home: Path, count: int, batch: int, rounds: int, tick: Callable[[], None]) -> list[Row]:
    """Return each arm through both scorers.

    Args:
        home: has corpus/, data/tiny/tokenizer.json and results/tiny/data_card.md.

    Raises:
        AssertionError: the scores differ, so that the times can't be compared.
    """
    rows = []
    for arm in ARMS:
        what = f"{arm}, {steps.name}"
        try:
            from lm_eval.models.huggingface import HFLM
        except ImportError:
            rows.append(Row(MEASURE, what, PEER, "requests/s", bound="at least", target=TARGET, note=MISSING))
            continue
        logging.getLogger("lm_eval").setLevel(logging.ERROR)
        folder, out = random_run(steps, arm, home), home / "exported" / arm
        export(folder, out, home / "data", home / "scores", home / "results")
        instances = requests(home / "corpus/corpus.parquet", count)
        ours = StemLM.from_folder(folder, home / "data/tiny/tokenizer.json", batch)
        theirs = HFLM(
            str(out), device=steps.device, dtype="float32", batch_size=batch, trust_remote_code=arm != "dense"
        )
        answers: dict[str, list] = {}

        def scored(
            name: str, model: object, instances: list = instances, answers: dict = answers
        ) -> Callable[[int], None]:
            return lambda _: answers.update({name: model.loglikelihood(instances, disable_tqdm=True)})

        turns = {"ours": scored("ours", ours), "theirs": scored("theirs", theirs)}
        with torch.no_grad():
            seconds = interleaved(turns, rounds, tick, warm_up=1)
        gap = max(abs(a - b) for (a, _), (b, _) in zip(answers["ours"], answers["theirs"], strict=True))
        if gap > CLOSE:
            raise AssertionError(f"{arm}: the scorers differ by {gap} nats, so their times can't be compared")
        rows.append(
            compared(
                MEASURE,
                what,
                f"{PEER} {version('lm-eval')}",
                "requests/s",
                seconds["ours"],
                seconds["theirs"],
                len(instances),
                "at least",
                TARGET,
                note=f"{len(instances)} requests, batches of {batch}; scores within {CLOSE:g} nats of each other",
            )
        )
        del ours, theirs, turns
        gc.collect()
    return rows
