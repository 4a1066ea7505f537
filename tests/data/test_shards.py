"""A large text in shards against the same files read and encoded by hand; killed and gone on with."""

import gzip
import json
import os

import numpy as np
import pandas as pd
import pyarrow
import pytest
from tokenizers import Tokenizer

from stemrepro.common.errors import UserError
from stemrepro.common.files import read_json, sha256
from stemrepro.config.mixes import ShardsMix
from stemrepro.data import shards
from stemrepro.data.archives import fetch
from stemrepro.data.blocks import TokenBlocks
from stemrepro.data.card import data_card
from stemrepro.data.integrity import read_corpus, verified_hash
from stemrepro.data.shards import write_sample, write_shards
from stemrepro.data.tokenizer import train_tokenizer

DOCUMENTS = [f"{k} Document {k} tells of {k * k} things; <|end|> isn't it. ä {'word ' * (k % 7)}." for k in range(90)]


def mix_of(folder, **more):
    source = {"dataset": str(folder), "licence": "CC0-1.0", "attribution": "nobody"}
    return ShardsMix(kind="shards", sources={"mine": source}, **{"held_out": 1, "sample": 3, **more})


@pytest.fixture
def folder(tmp_path):
    """Files of each kind, with 30 documents in three, one of them in two compressed pieces, and one in the fourth."""
    (tmp_path / "text" / "deep").mkdir(parents=True)
    pd.DataFrame({"text": DOCUMENTS[:30], "n": range(30)}).to_parquet(tmp_path / "text/a.parquet")
    lines = [json.dumps({"text": text}) for text in DOCUMENTS]
    (tmp_path / "text/deep/b.jsonl").write_text("\n".join(lines[30:60]) + "\n\n")
    whole = "\n".join(lines[60:]).encode()
    (tmp_path / "text/c.json.gz").write_bytes(gzip.compress(whole[:900]) + gzip.compress(whole[900:]))
    (tmp_path / "text/d.txt").write_text("\n\nOne document\n\nof several lines.\n")
    (tmp_path / "text/readme.md").write_text("not read")
    return tmp_path / "text"


@pytest.fixture
def home(folder, tmp_path):
    """raw/, corpus/ and tokenizer.json."""
    mix = mix_of(folder)
    fetch(mix, tmp_path / "raw")
    write_sample("my", mix, tmp_path / "raw", tmp_path / "corpus")
    train_tokenizer(tmp_path / "corpus/corpus.parquet", 270, tmp_path / "tokenizer.json")
    return tmp_path


def write(home, mix, out, workers=1):
    write_shards(mix, home / "corpus/corpus.parquet", home / "tokenizer.json", home / out, workers)
    return home / out


def decoded(home, tokens):
    tokenizer = Tokenizer.from_file(str(home / "tokenizer.json"))
    parts = np.split(tokens, np.flatnonzero(tokens == 0) + 1)
    return [tokenizer.decode(part[:-1].tolist()) for part in parts[:-1]]


def test_every_document_is_in_one_split(folder, home):
    out = write(home, mix_of(folder), "blocks")
    rows = read_corpus(home / "corpus/corpus.parquet")
    held_out = {split: [row["text"] for row in rows if row["split"] == split] for split in ("validation", "tune")}
    train = decoded(home, TokenBlocks(out, "train", 8, 270).tokens[:])
    expected = [text.rstrip() for text in DOCUMENTS] + ["One document\n\nof several lines."]
    assert sorted(train + held_out["validation"] + held_out["tune"]) == sorted(expected)
    assert {row["text"] for row in rows if row["split"] == "train"} <= set(train)
    for split, texts in held_out.items():
        assert sorted(decoded(home, TokenBlocks(out, split, 8, 270).tokens[:])) == sorted(texts)
        size = sum(len(text.encode()) for text in texts)
        wanted = {"validation": 1000, "tune": 500}[split]
        assert wanted <= size < wanted + 150  # the last document crosses the limit


def test_the_index_tells_what_was_written(folder, home):
    out = write(home, mix_of(folder), "blocks")
    about = read_json(out / "index.json")["splits"]["train"]
    train = decoded(home, TokenBlocks(out, "train", 8, 270).tokens[:])
    assert about["text_by_source"] == {"mine": {"documents": len(train), "bytes": sum(len(t.encode()) for t in train)}}
    assert about["tokens_by_source"] == {"mine": about["tokens"]}
    for shard in about["shards"]:
        tokens = np.fromfile(out / shard["name"], np.uint16)
        assert sha256(out / shard["name"]) == shard["sha256"]
        ends = np.fromfile(out / f"{shard['name']}.index", np.uint64)
        assert ends.tolist() == (np.flatnonzero(tokens == 0) + 1).tolist()
    assert verified_hash(out, whole=True) == about["sha256"]
    assert not (home / "blocks.part").exists()
    data_card(home, out, home / "card.md")
    card = (home / "card.md").read_text()
    assert f"| mine | train | {len(train)} |" in card
    assert "compared with nothing" in card


def test_a_killed_run_goes_on_to_the_same_bytes(folder, home, monkeypatch):
    """Tasks that ended aren't repeated; the one that was cut off leaves nothing of itself."""
    mix = mix_of(folder)
    whole = write(home, mix, "whole")
    texts, read = shards.texts, []

    def dying(source, file):
        for number, text in enumerate(texts(source, file)):
            if file.endswith("c.json.gz") and number == 20:
                raise KeyboardInterrupt
            yield text

    def noted(source, file):
        read.append(os.path.basename(file))
        return texts(source, file)

    monkeypatch.setattr(shards, "texts", dying)
    with pytest.raises(KeyboardInterrupt):
        write(home, mix, "cut")
    assert not (home / "cut").exists()
    monkeypatch.setattr(shards, "texts", noted)
    cut = write(home, mix, "cut")
    assert "a.parquet" not in read
    assert "c.json.gz" in read
    names = sorted(path.name for path in whole.iterdir())
    assert names == sorted(path.name for path in cut.iterdir())
    assert all((whole / name).read_bytes() == (cut / name).read_bytes() for name in names)


@pytest.mark.slow
def test_tasks_side_by_side_write_the_same_bytes(folder, home):
    one, two = write(home, mix_of(folder), "one"), write(home, mix_of(folder), "two", workers=2)
    assert all(path.read_bytes() == (two / path.name).read_bytes() for path in one.iterdir())


def test_what_is_unfinished_of_another_text_is_left_behind(folder, home, monkeypatch):
    (home / "blocks.part").mkdir()
    (home / "blocks.part/request.json").write_text("{}")
    (home / "blocks.part/mine.log/completions").mkdir(parents=True)
    (home / "blocks.part/mine.log/completions/00000").touch()
    out = write(home, mix_of(folder), "blocks")
    assert len(read_json(out / "index.json")["splits"]["train"]["shards"]) >= 3


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("e.jsonl", b'{"text": "a"}\n{"text"', r"e\.jsonl: .*mend it"),
        ("e.jsonl", b"[1]\n", r"e\.jsonl: line 1 is no JSON object"),
        ("e.jsonl", b'{"words": "a"}\n', r"e\.jsonl has no column 'text'; it has words"),
        ("e.txt", b"\xff\xfe", r"e\.txt: .*utf-8"),
        ("e.parquet", b"PAR1", r"e\.parquet: "),
    ],
)
def test_a_file_that_cannot_be_read(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=message):
        list(shards.texts(mix_of(tmp_path).sources["mine"], str(tmp_path / name)))


@pytest.mark.parametrize(("kind", "codec"), [("jsonl.zst", "zstd"), ("json.zst", "zstd"), ("json.gz", "gzip")])
def test_compressed_files_are_read_to_their_end(tmp_path, kind, codec):
    """Writers of large files begin a new frame every now and then, even within a line."""
    lines = "\n".join(json.dumps({"text": text}) for text in DOCUMENTS).encode()
    pieces = [pyarrow.compress(piece, codec, asbytes=True) for piece in (lines[:1000], lines[1000:])]
    file = tmp_path / f"a.{kind}"
    file.write_bytes(b"".join(pieces))
    mix = mix_of(tmp_path)
    fetch(mix, tmp_path / "raw")
    assert read_json(tmp_path / "raw/files.json")["mine"]["files"] == [[file.name, sum(map(len, pieces))]]
    assert list(shards.texts(mix.sources["mine"], str(file))) == [text.rstrip() for text in DOCUMENTS]
    file.write_bytes(b"".join(pieces)[:-9])
    with pytest.raises(UserError, match=r"a\.json.*: Truncated compressed stream; mend it"):
        list(shards.texts(mix.sources["mine"], str(file)))


def test_a_folder_without_text(tmp_path):
    (tmp_path / "readme.md").write_text("x")
    with pytest.raises(UserError, match=r"has no \.parquet, .* file that matches"):
        fetch(mix_of(tmp_path), tmp_path / "raw")


def test_too_little_text(folder, tmp_path):
    mix = mix_of(folder, held_out=100)
    fetch(mix, tmp_path / "raw")
    with pytest.raises(UserError, match="no training text apart from 150 kB that are held out"):
        write_sample("my", mix, tmp_path / "raw", tmp_path / "corpus")
