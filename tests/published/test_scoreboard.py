"""Benchmarks of a tiny model and of its conversion, against a plain loop; a killed study resumes."""

import json
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch

from stemrepro.published import scoreboard
from stemrepro.published.converted import convert

ITEMS = {"piqa": 3, "mmlu_cloze": 2}
QUESTIONS = [
    {"query": "the is", "choices": ["the the the the the", "12"], "gold": 0},
    {"query": "1 2 is", "choices": ["is a b c", "the"], "gold": 1},
    {"query": "the a", "choices": ["b", "is is is"], "gold": 0},
    {"query": "beyond the limit", "choices": ["a", "b"], "gold": 0},
]
MMLU = [
    {"question": f"the {word}?", "options": "A. is\nB. the the\nC. 1\nD. a b c", "answer": "C. 1"} for word in "xyz"
]


@pytest.fixture
def home(model, rows, tmp_path, monkeypatch):
    """A text's folder with items, and the study's ways to its model, its rows and the archive."""
    items = [one | {"id": f"piqa/{k}", "cluster": "", "evidence": ""} for k, one in enumerate(QUESTIONS)]
    archive = SimpleNamespace(read=lambda _: "\n".join(map(json.dumps, MMLU)).encode())
    (tmp_path / "items").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "items/piqa.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in items))
    monkeypatch.setattr(scoreboard, "opened", lambda *_: nullcontext(archive))
    monkeypatch.setattr(scoreboard, "load", lambda _: model)
    monkeypatch.setattr(scoreboard, "rows_of", lambda *_: rows)
    monkeypatch.setattr(scoreboard, "ITEMS", ITEMS)
    monkeypatch.setattr(scoreboard, "kept_model", lambda model, *_: convert(model, rows, (2,)))
    return tmp_path


def make(home):
    scoreboard.make("tiny", home / "corpus/corpus.parquet", home / "rows", home / "out")
    return {path.stem.removeprefix("choices."): pd.read_parquet(path) for path in (home / "out").iterdir()}


def test_choices_are_those_of_a_plain_loop(model, rows, home):
    tables = make(home)
    assert set(tables) == {f"{kind}.{task}" for kind in scoreboard.MODELS for task in ITEMS}
    decoders = {"dense": model.decoder, "stem-third-trained": convert(model, rows, (2,))}
    for name, layers in (("stem-third", (1,)), ("stem-full", (1, 2))):
        decoders[name] = convert(model, rows, layers, torch.bfloat16)
    seen = set()
    for kind, decoder in decoders.items():
        for number, item in enumerate(QUESTIONS[: ITEMS["piqa"]]):
            totals = []
            for choice in item["choices"]:
                prompt, answer = model.tokens(item["query"]), model.tokenizer.encode(f" {choice}").ids
                with torch.no_grad():
                    logs = decoder(torch.tensor([prompt + answer])).log_softmax(dim=-1)[0]
                totals.append(sum(float(logs[len(prompt) - 1 + k, token]) for k, token in enumerate(answer)))
            row = tables[f"{kind}.piqa"].iloc[number]
            each = [total / len(choice) for total, choice in zip(totals, item["choices"], strict=True)]
            assert (row["model"], row["task"]) == (kind, "piqa")
            assert (row["item"], row["right"], row["choices"]) == (f"piqa/{number}", item["gold"], 2)
            assert (row["acc"], row["acc_norm"]) == (np.argmax(totals), np.argmax(each))
            seen.add((row["acc"], row["acc_norm"]))
    assert len(seen) > 2  # both metrics matter, and answers differ


def test_answers_of_mmlu_are_read_without_letters():
    items = scoreboard.mmlu(map(json.dumps, MMLU))
    assert sorted(item.query for item in items) == [f"Question: the {word}?\nAnswer:" for word in "xyz"]
    assert {(*item.choices, item.gold) for item in items} == {("is", "the the", "1", "a b c", 2)}
    assert {item.id for item in items} == {f"mmlu_cloze/{number}" for number in range(3)}


def test_a_killed_study_resumes(home, monkeypatch, capsys):
    first = make(home)
    assert "8 tables" in capsys.readouterr().out
    asked = []
    (home / "out/choices.stem-full.piqa.parquet").unlink()
    score = scoreboard.chosen
    monkeypatch.setattr(scoreboard, "chosen", lambda lm, task, items: asked.append(items) or score(lm, task, items))
    again = make(home)
    assert asked == [3]
    assert all(again[name].equals(table) for name, table in first.items())
    monkeypatch.setattr(scoreboard, "load", None)  # it isn't loaded where nothing is missing
    make(home)
