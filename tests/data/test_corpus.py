"""Duplicates and splits."""

import json

import pytest

from stemrepro.common.errors import UserError
from stemrepro.config.mixes import ArchiveMix, HubMix
from stemrepro.data import corpus as module
from stemrepro.data.corpus import (
    assign_splits,
    build_corpus,
    drop_near_duplicates,
    drop_near_passages,
    drop_repeated_passages,
)
from stemrepro.data.integrity import read_corpus
from stemrepro.data.readers import Document

LONG = "a rectangular block of hewn stone used for building purposes"
FOX = "the quick brown fox jumps over the lazy dog while seven wise owls watch from an old and hollow oak tree"
WORDS = f"{FOX} near the river".split()


def test_repeated_passages_go_and_the_first_stays():
    documents = [
        Document("s", "a", "", [LONG, "short"]),
        Document("s", "b", "", [f"A {LONG[2:].upper()}!", "short"]),
        Document("s", "c", "", [LONG]),
    ]
    kept = list(drop_repeated_passages(documents))
    assert [(d.id, d.passages) for d in kept] == [("a", [LONG, "short"]), ("b", ["short"])]


def test_near_duplicates_go_within_a_source():
    first = " ".join(WORDS * 3)
    second = first + " and one more"
    documents = [
        Document("s", "a", "", [first]),
        Document("s", "b", "", [second]),
        Document("t", "c", "", [first]),
        Document("s", "d", "", [" ".join(reversed(WORDS))]),
    ]
    assert [d.id for d in drop_near_duplicates(documents)] == ["a", "c", "d"]


def test_near_duplicate_passages_go_across_sources():
    first = " ".join(WORDS)
    documents = [
        Document("s", "a", "", [first, "I thank you all, my friends"]),
        Document("t", "b", "", [f"{first.upper()}!", LONG]),
        Document("t", "c", "", [f"{first} bank"]),
        Document("t", "d", "", ["I thank you all, my friends"]),
    ]
    kept, lost = drop_near_passages(documents)
    expected = {"a": documents[0].passages, "b": [LONG], "d": documents[3].passages}
    assert {d.id: d.passages for d in kept} == expected
    assert lost == {"s": 0, "t": 2}


def test_a_mix_says_what_is_compared(tmp_path, monkeypatch):
    """Forty made-up documents per source; one of the second source repeats a passage of the first with a word more."""
    made = []
    for source in ("speeches", "plays"):
        texts = [" ".join(f"{source}{i * 50 + k}" for k in range(50)) for i in range(40)]
        made += [Document(source, str(i), "", [text]) for i, text in enumerate(texts)]
    made.append(Document("plays", "again", "", [made[3].passages[0] + " indeed"]))
    monkeypatch.setattr(module, "read_documents", lambda *_: iter(made))
    reports = {}
    for compared in ("documents", "passages"):
        mix = ArchiveMix(kind="archives", sources=("speeches", "plays"), near_duplicates=compared)
        build_corpus("own", mix, tmp_path, tmp_path / compared)
        reports[compared] = json.loads((tmp_path / compared / "corpus.json").read_text())
    assert reports["documents"]["removed"] == {"repeated_passages_only": 0, "near_duplicates": 0}
    near = {"near_duplicate_passages": {"speeches": 0, "plays": 1}, "near_duplicates": 1}
    assert reports["passages"]["removed"] == {"repeated_passages_only": 0} | near


def test_splits_take_whole_documents_by_share():
    documents = [Document("s", str(i), "", ["x" * 100]) for i in range(1000)]
    splits = assign_splits(documents)
    counts = {split: list(splits.values()).count(split) for split in set(splits.values())}
    assert counts == {"validation": 80, "tune": 40, "train": 880}
    assert assign_splits(documents[::-1]) == splits


def test_few_documents_fill_every_split():
    splits = assign_splits([Document("s", str(i), "", ["x" * 5000]) for i in range(3)])
    assert sorted(splits.values()) == ["train", "tune", "validation"]


def test_the_sample_corpus(sample):
    rows = read_corpus(sample / "corpus" / "corpus.parquet")
    assert {row["source"] for row in rows} == {"speeches", "factbook", "bible"}
    report = json.loads((sample / "corpus" / "corpus.json").read_text())
    counted = sum(cell["documents"] for splits in report["kept"].values() for cell in splits.values())
    assert counted == len(rows) == len({(row["source"], row["id"]) for row in rows})


def user_text(texts, folder):
    """Documents of a user's text where they are read from, and their mix."""
    rows = [json.dumps({"id": str(number), "text": text}) for number, text in enumerate(texts)]
    (folder / "documents.jsonl").write_text("\n".join(rows))
    (folder / "hub.json").write_text(json.dumps({"revision": "local-1"}))
    return HubMix(kind="hub", dataset="own", megabytes=1, licence="mine", attribution="me")


def test_user_texts_that_differ_in_symbols_alone_both_stay(tmp_path):
    texts = ["C++ is not C#, whatever they say", "C is not C, whatever they say", "C++  is not c#, whatever they SAY"]
    texts += ["    return a + b  # of both of the arguments", "    return a - b  # of both of the arguments"]
    build_corpus("own", user_text(texts, tmp_path), tmp_path, tmp_path / "out")
    assert [row["text"] for row in read_corpus(tmp_path / "out/corpus.parquet")] == [*texts[:2], *texts[3:]]


def test_too_few_documents_are_named_with_what_became_of_them(tmp_path):
    words = r"source 'hub' has no document for train and tune \(read: 1,000, dropped as repeats: 999\); .*add some"
    with pytest.raises(UserError, match=words):
        build_corpus("own", user_text([LONG] * 1000, tmp_path), tmp_path, tmp_path / "out")
