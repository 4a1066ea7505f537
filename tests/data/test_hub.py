"""Text from a dataset: a local folder of the hub's form, or of text files, goes all the way to token blocks."""

import gzip
import json
import os
import subprocess
import sys

import pandas as pd
import pytest
from datasets import Dataset

from stemrepro.common.errors import UserError
from stemrepro.common.files import read_json, write_json
from stemrepro.common.yaml_records import dumped
from stemrepro.config.mixes import HubMix
from stemrepro.data.archives import PINS, fetch
from stemrepro.data.blocks import TokenBlocks
from stemrepro.data.card import data_card
from stemrepro.data.corpus import build_corpus
from stemrepro.data.hub import take
from stemrepro.data.integrity import read_corpus
from stemrepro.data.items import write_items
from tests.conftest import make_text

README = "---\nconfigs:\n- config_name: small\n  data_files:\n  - split: train\n    path: small/*.parquet\n---\n"


@pytest.fixture
def dataset(tmp_path):
    """60 documents in two parquet files under a configuration."""
    folder = tmp_path / "dataset"
    folder.mkdir()
    (folder / "README.md").write_text(README)
    text = "Document {} tells of {} ships.\n\nIts second part is the {}th of many."
    rows = [{"body": text.format(n, n * 7, n), "url": str(n)} for n in range(60)]
    (folder / "small").mkdir()
    for part in range(2):
        Dataset.from_list(rows[30 * part : 30 * part + 30]).to_parquet(folder / "small" / f"{part}.parquet")
    return folder


def mix(folder, **fields):
    settings = {"kind": "hub", "dataset": str(folder), "config": "small", "text": "body", "megabytes": 1}
    return HubMix(**settings | {"licence": "ODC-By", "attribution": "us"} | fields)


@pytest.mark.parametrize("streaming", [True, False])
def test_documents_in_order_with_their_revision(dataset, tmp_path, streaming):
    planned = mix(dataset, streaming=streaming)
    fetch(planned, tmp_path / "raw")
    rows = [json.loads(line) for line in (tmp_path / "raw" / "documents.jsonl").read_text().splitlines()]
    assert [row["id"] for row in rows] == [f"{n:09d}" for n in range(60)]
    assert rows[5]["text"].startswith("Document 5 tells of 35 ships.")
    about = read_json(tmp_path / "raw" / "hub.json")
    assert about["revision"].startswith("local-")
    assert (about["asked"], about["documents"]) == (dumped(planned), 60)
    written = (tmp_path / "raw" / "documents.jsonl").stat().st_mtime_ns
    take(planned, tmp_path / "raw")
    assert (tmp_path / "raw" / "documents.jsonl").stat().st_mtime_ns == written


def test_all_the_way_to_blocks(dataset, tmp_path):
    planned, raw = mix(dataset), tmp_path / "raw"
    make_text(tmp_path, planned, 280)
    write_items(planned, raw, tmp_path / "corpus/corpus.parquet", tmp_path / "items")
    blocks = TokenBlocks(tmp_path / "blocks", "train", 16, 280)
    assert blocks.batch(0, 0, 2).shape == (2, 17)
    data_card(tmp_path, tmp_path / "blocks", tmp_path / "card.md")
    card = (tmp_path / "card.md").read_text()
    revision = read_json(raw / "hub.json")["revision"]
    assert f"small, train @ {revision} | ODC-By | us |" in card


def test_it_stops_when_there_is_enough(tmp_path, dataset):
    rows = [{"body": "x" * 400_000} for _ in range(10)]
    Dataset.from_list(rows).to_parquet(dataset / "small" / "0.parquet")
    (dataset / "small" / "1.parquet").unlink()
    take(mix(dataset), tmp_path)
    assert read_json(tmp_path / "hub.json")["documents"] == 3


def test_what_can_be_wrong(dataset, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    for fields, words in (
        ({"text": "content"}, "has no column 'content'; it has body, url"),
        ({"split": "test"}, "no split 'test'; it has train"),
        ({"text": "url", "dataset": "nobody/nothing"}, "can't be read from the hub"),
    ):
        with pytest.raises(UserError, match=words):
            take(mix(dataset, **fields), tmp_path)
        assert not (tmp_path / "hub.json").exists()


def folder(place, **files):
    """A folder of files, named with _ for the dot."""
    place.mkdir()
    for name, content in files.items():
        (place / name.replace("_", ".")).write_bytes(content if isinstance(content, bytes) else content.encode())
    return place


def text_mix(place, **fields):
    """A mix of a user's text."""
    return mix(place, config=None, **{"text": "text"} | fields)


def taken(out):
    return [json.loads(line)["text"] for line in (out / "documents.jsonl").read_text(encoding="utf-8").splitlines()]


def test_what_was_taken_from_the_hub_stays_without_network(tmp_path):
    planned = mix("nobody/nothing", revision="main")
    write_json(tmp_path / "hub.json", {"asked": dumped(planned), "revision": "0123abc"})
    take(planned, tmp_path)
    assert read_json(tmp_path / "hub.json")["revision"] == "0123abc"


PAGE = "   A title in the middle\n\nFirst paragraph,\nof two lines.\n \n\n    indented\n\n"


def test_a_text_file_is_a_document_whose_white_space_is_kept(tmp_path):
    page = "\ufeff\n\n{}Page {} of some, each with words of its own: {}.\n"
    pages = {f"p{n}_txt": page.format(PAGE, n, "word" * n) for n in range(4)}
    fetch(text_mix(folder(tmp_path / "own", **pages)), tmp_path / "raw")
    assert taken(tmp_path / "raw") == [page.lstrip("\ufeff\n").rstrip() for page in pages.values()]
    build_corpus("own", text_mix(tmp_path / "own"), tmp_path / "raw", tmp_path / "corpus")
    rows = {row["id"]: row["text"] for row in read_corpus(tmp_path / "corpus/corpus.parquet")}
    assert rows["000000000"] == taken(tmp_path / "raw")[0]


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"a_jsonl": '{"text": "a"}\n\n{"text": "b\n{"text": "c"}\n'}, r"a\.jsonl, line 3 is no JSON object"),
        ({"a_jsonl": '{"text": "a"}\n{"text": 5}\n'}, r"a\.jsonl, row 2: column 'text' holds 5 of type int, not text"),
        ({"a_jsonl": '{"text": null}\n'}, r"a\.jsonl has no text in column 'text'"),
        ({"a_jsonl": '{"text": "a"}\n', "b_jsonl": ""}, r"b\.jsonl is empty; delete it"),
        ({"a_csv": "text,x\na,2\nb,3,4\n"}, r"a\.csv: .*Expected 2 fields in line 3, saw 3; mend it or take it out"),
        ({"a_csv": "text\nvoil\xe0\n".encode("latin-1")}, r"a\.csv: .*; save it in UTF-8"),
        ({"a_txt": "a".encode("utf-16-le")}, r"a\.txt has NUL characters, as UTF-16"),
        ({"a_txt": "a", "README_md": README.replace("small/*.parquet", str(PINS))}, r"names .*, which lies elsewhere"),
        ({"a_md": "a", "b_zip": "b"}, r"has no text; a folder holds \.txt, .* files, this one has a\.md, b\.zip$"),
    ],
)
def test_odd_files_and_rows_are_named(tmp_path, files, words):
    place = folder(tmp_path / "own", **files)
    for streaming in (True, False):
        with pytest.raises(UserError, match=words) as raised:
            fetch(text_mix(place, streaming=streaming), tmp_path / "raw")
        assert "\n" not in str(raised.value)
        assert not (tmp_path / "raw/hub.json").exists()


def test_rows_without_text_are_counted(tmp_path, capsys):
    fetch(text_mix(folder(tmp_path / "own", a_jsonl='{"text": null}\n{"text": "b"}\n{"url": 1}\n')), tmp_path / "raw")
    assert taken(tmp_path / "raw") == ["b"]
    assert "nothing in column 'text': 2" in capsys.readouterr().err


def texts_and_words(place, out, capsys, sample):
    """What a mix of a folder reads, and what it says, without the bar of progress."""
    fetch(text_mix(place, sample=sample), out)
    read = [text for path in sorted((out / "parts").glob("*.parquet")) for text in pd.read_parquet(path)["text"]]
    return read if sample else taken(out), [line for line in capsys.readouterr().err.splitlines() if "own" in line]


@pytest.mark.parametrize("sample", [None, 40])
def test_what_lies_in_a_folder_is_read_or_named(tmp_path, capsys, sample):
    """Capitals, compressed files, other kinds, another split, hidden copies, and links; patterns in the path."""
    place = tmp_path / "[v2] own*"
    row, outside = '{"text": "%s"}\n', tmp_path / "outside"
    for name in ("b.md", "b.jsonl~", "b.txt", ".ipynb_checkpoints/a.jsonl", "._a.jsonl", ".git/config", "test/a.jsonl"):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(row % name)
    (place / "train").mkdir()
    (place / "train/a.jsonl").write_text(row % "a")
    (place / "train/b.JSONL").write_text(row % "b")
    (place / "train/c.Jsonl.GZ").write_bytes(gzip.compress((row % "c").encode()))
    outside.mkdir()
    (outside / "d").write_text(row % "d")
    (place / "train/d.jsonl").symlink_to(outside / "d")
    for name, to in {"e.jsonl": "a.jsonl", "f.jsonl": "nothing", "g": "../../outside", "h": "."}.items():
        (place / "train" / name).symlink_to(to)
    left = "b.jsonl~, b.md, b.txt, test/a.jsonl, train/e.jsonl and 6 more"
    read, words = texts_and_words(place, tmp_path / "raw", capsys, sample)
    assert read == ["a", "b", "c", "d"]
    about = "files read: 4; not read, as of another kind or split, hidden or linked: 11"
    assert words == [f"{place}: {about} ({left})"]


def test_a_hash_of_a_folder_covers_what_is_read_and_how(tmp_path, capsys):
    place, raw, revisions = folder(tmp_path / "own", a_txt="a"), tmp_path / "raw", []
    settings = "---\nconfigs:\n- config_name: default\n  data_files: '*.txt'\n---\n"
    for name, text in (("a.txt", "a"), ("x.md", "x"), ("README.md", settings), ("b.TXT", "b"), ("a.txt", "A")):
        (place / name).write_text(text)
        _, words = texts_and_words(place, raw, capsys, None)
        assert bool(words) == (place / "x.md").exists()
        revisions.append(read_json(raw / "hub.json")["revision"])
    assert revisions[0] == revisions[1]
    assert len(set(revisions)) == 4


@pytest.mark.slow
def test_user_text_needs_no_cache_and_no_locale(tmp_path):
    """In a new process, as the library reads HF_HOME and Python the locale when they begin; /dev/null is no folder."""
    planned = text_mix(folder(tmp_path / "own", a_txt="d\xe9j\xe0 vu \U0001f600", b_txt="voil\xe0"), streaming=False)
    code = "import json, sys; from pathlib import Path; from stemrepro.data.hub import take, HubMix; "
    code += "take(HubMix(**json.loads(sys.argv[1])), Path(sys.argv[2]))"
    bare = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "HF_HOME": "/dev/null/cache"}
    command = [sys.executable, "-c", code, json.dumps(dumped(planned)), str(tmp_path)]
    subprocess.run(command, env=os.environ | bare, check=True)
    assert taken(tmp_path) == ["d\xe9j\xe0 vu \U0001f600", "voil\xe0"]
