"""A scale's own text with texts of other kinds, in shares of the training tokens."""

import json
from pathlib import Path

import numpy as np
import pytest

from stemrepro.common.errors import UserError
from stemrepro.common.files import read_json
from stemrepro.common.yaml_records import dumped, parse
from stemrepro.config.mixes import BlendMix, HubMix
from stemrepro.data import hub
from stemrepro.data.archives import fetch
from stemrepro.data.blend import PIECE, pieces, so_many, write_blend
from stemrepro.data.blocks import TokenBlocks
from stemrepro.data.corpus import build_corpus
from stemrepro.data.integrity import read_corpus, verified_hash
from stemrepro.data.large import write_large
from stemrepro.data.tokenizer import read_tokenizer, train_tokenizer

TOKENS = 20_000


@pytest.fixture(scope="module")
def blended(sample, catalog, tmp_path_factory):
    out = tmp_path_factory.mktemp("mid")
    place = (sample / "corpus", sample / "tokenizer.json", out, out / "card.md")
    write_blend("mid-sample", catalog.mixes["mid-sample"], TOKENS, *place)
    return out


def test_shares_are_of_the_tokens(blended, sample):
    """Counted in the flat file of tokens by its end marks and by encoding each text again."""
    tokenizer = read_tokenizer(sample / "tokenizer.json")
    rows = [row for row in read_corpus(blended / "corpus" / "corpus.parquet") if row["split"] == "train"]
    kind = {tuple(tokenizer.encode(row["text"]).ids): row["source"] for row in rows}
    tokens = np.array(TokenBlocks(blended / "blocks", "train", 32, 300).tokens)
    counts = dict.fromkeys(("own", "mathematics", "code"), 0)
    for document in np.split(tokens, np.flatnonzero(tokens == 0) + 1)[:-1]:
        source = kind[tuple(document[:-1].tolist())]
        counts[source if source in counts else "own"] += len(document)
    for name, share in (("own", 0.65), ("mathematics", 0.05), ("code", 0.3)):
        assert counts[name] == pytest.approx(share * TOKENS, abs=5)  # a text that is cut may have other tokens


def test_what_was_held_out_stays_held_out(blended, sample):
    before = read_corpus(sample / "corpus" / "corpus.parquet")
    after = read_corpus(blended / "corpus" / "corpus.parquet")
    for split in ("tune", "validation"):
        held_out = {row["text"] for row in before if row["split"] == split}
        assert held_out == {
            row["text"] for row in after if row["split"] == split and row["source"] not in ("mathematics", "code")
        }
        assert not any(row["text"] in text for row in after if row["split"] == "train" for text in held_out)


def test_pieces_end_at_line_ends():
    text = "\n".join(f"{'word ' * (k % 40)}{k}" for k in range(400)) + "\n" + "x" * 9000 + "\nend"
    cut = [piece["text"] for piece in pieces({"id": "a", "text": text})]
    assert "".join(cut) == text
    assert len(cut) > 5
    assert all(len(piece) <= PIECE for piece in cut)
    assert all(piece.endswith("\n") or set(piece) == {"x"} for piece in cut[:-1])


def test_held_out_documents_of_other_kinds_are_not_trained_on(blended):
    rows = read_corpus(blended / "corpus" / "corpus.parquet")
    rows = [row for row in rows if row["source"] in ("mathematics", "code")]
    trained = {row["id"].rpartition("#")[0] for row in rows if row["split"] == "train"}
    assert trained
    assert not trained & {row["id"] for row in rows if row["split"] != "train"}


def test_a_text_that_is_too_short_is_named(sample):
    tokenizer = read_tokenizer(sample / "tokenizer.json")
    rows = [{"source": "code", "id": "a", "split": "train", "text": "def f():\n    return 1\n"}]
    count = len(tokenizer.encode(rows[0]["text"]).ids) + 1
    assert len(so_many("code", rows, count, tokenizer)) == 1
    with pytest.raises(UserError, match=rf"'code' has {count} training tokens"):
        so_many("code", rows, 4000, tokenizer)
    (cut,) = so_many("code", rows, count - 3, tokenizer)
    assert rows[0]["text"].startswith(cut["text"])
    assert len(tokenizer.encode(cut["text"]).ids) + 1 == count - 3


@pytest.fixture
def large(tmp_path, monkeypatch):
    """A text and a text of programs in files, the first of them as shards; documents, by folder."""
    monkeypatch.setattr(hub, "PART", 5000)
    texts = {
        "own": [f"{k} Document {k} tells of {k * k} things. {'word ' * (k % 7)}" for k in range(400)],
        "programs": [f"def f{k}():\n    return {k} * {k * k}  # {'why ' * (k % 5)}" for k in range(400)],
    }
    for name, every in texts.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "all.jsonl").write_text("\n".join(json.dumps({"text": text}) for text in every))
    own = large_mix(tmp_path / "own")
    fetch(own, tmp_path / "raw")
    build_corpus("my", own, tmp_path / "raw", tmp_path / "corpus")
    train_tokenizer(tmp_path / "corpus/corpus.parquet", 300, tmp_path / "tokenizer.json")
    write_large(tmp_path / "raw", tmp_path / "corpus/corpus.parquet", tmp_path / "tokenizer.json", tmp_path / "blocks")
    return tmp_path, {name: {text.rstrip() for text in every} for name, every in texts.items()}


def large_mix(folder):
    about = {"licence": "CC0-1.0", "attribution": "nobody"}
    return HubMix(kind="hub", dataset=str(folder), megabytes=1, sample=6, **about)


def documents_of(folder, split):
    tokenizer = read_tokenizer(folder.parent / "tokenizer.json")
    tokens = TokenBlocks(folder / "blocks", split, 8, 300).tokens[:]
    ends = np.flatnonzero(tokens == 0) + 1
    assert ends[-1] == len(tokens)
    return [tokenizer.decode(part[:-1].tolist()) for part in np.split(tokens, ends)[:-1]]


def test_a_blend_of_shards_reads_the_shards_of_each_text(large):
    """The first tokens of every shard, in their shares, and far more than the samples that are its corpus."""
    folder, texts = large
    mid = folder / "mid"
    mathematics = {"share": 0.05, "mix": {"kind": "sample", "file": "mathematics"}}  # the one text without shards
    parts = {"mathematics": mathematics, "programs": {"share": 0.3, "mix": dumped(large_mix(folder / "programs"))}}
    mix = parse(BlendMix, {"kind": "blend", "own": 0.65, "parts": parts}, Path())
    place = (folder / "corpus", folder / "tokenizer.json", mid, mid / "card.md")
    write_blend("large", mix, 6000, *place, own=folder / "blocks")
    about = read_json(mid / "blocks/index.json")["splits"]["train"]
    assert about["tokens_by_source"] == {"hub": 3900, "mathematics": 300, "programs": 1800}
    assert verified_hash(mid / "blocks", whole=True) == about["sha256"]
    before = sorted((folder / "blocks").glob("hub-*.bin"))
    assert len(before) > 3
    whole = [np.fromfile(path, np.uint16) for path in before]
    for shard, tokens_before in zip(about["shards"], whole, strict=False):
        tokens = np.fromfile(mid / "blocks" / shard["name"], np.uint16)
        assert shard["name"].startswith("own-")
        assert np.array_equal(tokens[:-1], tokens_before[: len(tokens) - 1])
        assert tokens[-1] == 0
        assert len(tokens) == pytest.approx(3900 * len(tokens_before) / sum(map(len, whole)), abs=1)
    train, counts = documents_of(mid, "train"), about["text_by_source"]
    of_own, of_programs = counts["hub"]["documents"], counts["programs"]["documents"]
    assert counts["hub"]["bytes"] == sum(len(text.encode()) for text in train[:of_own])
    assert len(train) == of_own + counts["mathematics"]["documents"] + of_programs
    assert sum(text not in texts["own"] for text in train[:of_own]) <= len(whole)  # the last of each shard is cut
    assert sum(text not in texts["programs"] for text in train[-of_programs:]) <= len(whole)
    sampled = {row["text"] for row in read_corpus(folder / "corpus/corpus.parquet") if row["split"] == "train"}
    assert len(set(train) & texts["own"] - sampled) > len(sampled)
    for split in ("tune", "validation"):
        held_out = set(documents_of(mid, split))
        assert held_out & texts["own"]
        assert held_out & texts["programs"]
        assert not held_out & set(train)
    assert not (mid / "parts/programs/shards").exists()
    assert "| programs | train |" in (mid / "card.md").read_text()
