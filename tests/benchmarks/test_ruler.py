"""RULER's items, answered by a model that copies and one that doesn't; needs `pip install -e '.[hub]'`."""

import re

import pytest
from tokenizers import Tokenizer

from benchmarks.ruler import TASKS, ruler
from stemrepro.evaluation.lm import StemLM
from stemrepro.model.transformer import build

pytest.importorskip("wonderwords", reason="RULER's words; pip install -e '.[hub]'")


@pytest.fixture
def lm(make_run, sample):
    return StemLM(build(make_run("stem-full").model, 0), Tokenizer.from_file(str(sample / "tokenizer.json")), 1024)


def test_who_reads_the_needle_is_right(lm, sample, monkeypatch):
    def read(self, requests, **_):
        texts = [request.args[0] for request in requests]
        keys = [re.search(r"magic \w+ for (\S+) mentioned", text)[1] for text in texts]
        return [re.search(rf"for {key} is: (\d+)\.", text)[1] for key, text in zip(keys, texts, strict=True)]

    monkeypatch.setattr(StemLM, "generate_until", read)
    assert ruler(lm, sample / "tokenizer.json", TASKS, 1024, 4) == dict.fromkeys(TASKS, 100.0)


def test_an_untrained_model_runs_through_and_finds_nothing(lm, sample):
    """Generation by the cache over a prompt as long as the context lets it be."""
    assert ruler(lm, sample / "tokenizer.json", TASKS[:1], 1024, 2) == {TASKS[0]: 0.0}
