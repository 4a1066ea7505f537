"""Text from a dataset: a local folder of the hub's form goes all the way to token blocks."""

import json

import pytest
from datasets import Dataset

from stemrepro.data.archives import fetch
from stemrepro.data.blocks import TokenBlocks
from stemrepro.data.card import data_card
from stemrepro.data.corpus import build_corpus
from stemrepro.data.encoding import write_blocks
from stemrepro.data.hub import take
from stemrepro.data.items import write_items
from stemrepro.data.mixes import HubMix
from stemrepro.data.tokenizer import train_tokenizer
from stemrepro.errors import UserError
from stemrepro.files import write_json

README = "---\nconfigs:\n- config_name: small\n  data_files:\n  - split: train\n    path: small/*.parquet\n---\n"


@pytest.fixture
def dataset(tmp_path):
    """60 documents in two parquet files under a configuration."""
    folder = tmp_path / "dataset"
    folder.mkdir()
    (folder / "README.md").write_text(README)
    rows = [
        {"body": f"Document {n} tells of {n * 7} ships.\n\nIts second part is the {n}th of many.", "url": str(n)}
        for n in range(60)
    ]
    (folder / "small").mkdir()
    for part in range(2):
        Dataset.from_list(rows[30 * part : 30 * part + 30]).to_parquet(folder / "small" / f"{part}.parquet")
    return folder


def mix(folder, **fields):
    settings = {
        "kind": "hub",
        "dataset": str(folder),
        "config": "small",
        "text": "body",
        "megabytes": 1,
        "licence": "ODC-By",
        "attribution": "us",
    }
    return HubMix(**settings | fields)


@pytest.mark.parametrize("streaming", [True, False])
def test_documents_in_order_with_their_revision(dataset, tmp_path, streaming):
    asked = mix(dataset, streaming=streaming)
    fetch(asked, tmp_path / "raw")
    rows = [json.loads(line) for line in (tmp_path / "raw" / "documents.jsonl").read_text().splitlines()]
    assert [row["id"] for row in rows] == [f"{n:09d}" for n in range(60)]
    assert rows[5]["text"].startswith("Document 5 tells of 35 ships.")
    about = json.loads((tmp_path / "raw" / "hub.json").read_text())
    assert about["revision"].startswith("local-")
    assert about["asked"] == asked.model_dump(mode="json")
    assert about["documents"] == 60
    written = (tmp_path / "raw" / "documents.jsonl").stat().st_mtime_ns
    take(asked, tmp_path / "raw")
    assert (tmp_path / "raw" / "documents.jsonl").stat().st_mtime_ns == written


def test_all_the_way_to_blocks(dataset, tmp_path):
    asked, raw = mix(dataset), tmp_path / "raw"
    fetch(asked, raw)
    build_corpus("ships", asked, raw, tmp_path / "corpus")
    corpus = tmp_path / "corpus" / "corpus.parquet"
    write_items(asked, raw, corpus, tmp_path / "items")
    train_tokenizer(corpus, 280, tmp_path / "tokenizer.json")
    write_blocks(corpus, tmp_path / "tokenizer.json", tmp_path / "blocks")
    blocks = TokenBlocks(tmp_path / "blocks", "train", 16, 280)
    assert blocks.batch(0, 0, 2).shape == (2, 17)
    data_card(tmp_path, tmp_path / "blocks", tmp_path / "card.md")
    card = (tmp_path / "card.md").read_text()
    revision = json.loads((raw / "hub.json").read_text())["revision"]
    assert f"small, train @ {revision} | ODC-By | us |" in card


def test_it_stops_when_there_is_enough(tmp_path, dataset):
    rows = [{"body": "x" * 400_000} for _ in range(10)]
    Dataset.from_list(rows).to_parquet(dataset / "small" / "0.parquet")
    (dataset / "small" / "1.parquet").unlink()
    take(mix(dataset), tmp_path)
    assert json.loads((tmp_path / "hub.json").read_text())["documents"] == 3


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"text": "content"}, "has no column 'content'; it has body, url"),
        ({"config": "large"}, "config large"),
        ({"split": "test"}, "split test"),
        ({"text": "url", "dataset": "nobody/nothing"}, "can't be read from the hub"),
    ],
)
def test_what_can_be_wrong(dataset, tmp_path, fields, words, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(UserError, match=words):
        take(mix(dataset, **fields), tmp_path)
    assert not (tmp_path / "hub.json").exists()


def test_a_half_written_fetch_is_taken_again(dataset, tmp_path):
    asked = mix(dataset)
    write_json(tmp_path / "hub.json", {"asked": mix(dataset, megabytes=2).model_dump(mode="json")})
    (tmp_path / "documents.jsonl.part").write_text('{"id":')
    take(asked, tmp_path)
    assert len((tmp_path / "documents.jsonl").read_text().splitlines()) == 60
