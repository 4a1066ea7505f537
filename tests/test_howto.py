"""Examples of docs/howto.md work as they stand: a run, a sweep, text files, an experiment, and DVC's flowchart.

The other one of a run is tested in tests/pipeline/test_stages.py.
"""

import json
import re

import pandas as pd
import pytest
import yaml
from transformers import LlamaConfig, LlamaForCausalLM

from stemrepro.config.mixes import parse_mix
from stemrepro.data.archives import fetch
from stemrepro.data.corpus import build_corpus
from stemrepro.data.integrity import read_corpus
from stemrepro.sweeps.trials import combinations, read_sweep
from tests.conftest import ROOT


def example(word, language="python"):
    """The one example that has a word."""
    examples = re.findall(rf"```{language}\n(.*?)```", (ROOT / "docs/howto.md").read_text(encoding="utf-8"), re.DOTALL)
    (code,) = (code for code in examples if word in code)
    return code


def test_a_llama_becomes_stem(tmp_path, monkeypatch, capsys):
    config = LlamaConfig(
        vocab_size=50, hidden_size=16, num_hidden_layers=4, num_attention_heads=2, intermediate_size=24
    )
    LlamaForCausalLM(config).save_pretrained(tmp_path / "my/llama")
    monkeypatch.chdir(tmp_path)
    exec(example("load_llama"), {})
    assert "[4, 64, 50]" in capsys.readouterr().out


def test_playing_with_a_run(monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    exec(example("EditSession"), {})
    said = capsys.readouterr().out
    assert "Berlin" in said
    assert "0." in said


@pytest.mark.parametrize(
    ("suffix", "more", "documents"),
    [("txt", "", 3), ("txt", "document: line, ", 9), ("jsonl", "", 3), ("csv", "", 3), ("parquet", "", 3)],
)
def test_a_text_of_ones_own(tmp_path, monkeypatch, suffix, more, documents):
    """Three documents of three lines in each kind of file, as the page describes them."""
    texts = pd.DataFrame(
        {"text": [f"Title {n}\n\nOne line of document {n} it is.\nAnother." for n in ("one", "two", "three")]}
    )
    (tmp_path / "my/text").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    if suffix == "txt":
        for number, text in enumerate(texts.text):
            (tmp_path / f"my/text/{number}.txt").write_text(text)
    elif suffix == "jsonl":
        texts.to_json("my/text/a.jsonl", orient="records", lines=True)
    else:
        getattr(texts, f"to_{suffix}")(f"my/text/a.{suffix}", index=False)
    about = yaml.safe_load(example("my-text", "yaml").replace("megabytes", f"{more}megabytes"))["my-text"]
    mix = parse_mix(about, tmp_path / "mixes.yaml", "my-text")
    fetch(mix, tmp_path / "raw")
    build_corpus("my-text", mix, tmp_path / "raw", tmp_path / "corpus")
    assert json.loads((tmp_path / "corpus/corpus.json").read_text())["documents_read"] == documents
    if not more:
        assert [row["text"] for row in read_corpus(tmp_path / "corpus/corpus.parquet")] == list(texts.text)


def test_the_grid_is_a_sweep_of_known_arms(catalog, tmp_path):
    (tmp_path / "grid.yaml").write_text(example("sampler", "yaml"))
    space = read_sweep(tmp_path / "grid.yaml").space
    assert set(space["arm"]) <= set(catalog.arms)
    assert len(combinations(space)) == 18
