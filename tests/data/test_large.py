"""A text that memory can't hold, against a plain loop over its documents; killed and resumed."""

import hashlib
import json
import subprocess
import sys

import pandas as pd
import pytest
from tokenizers import Tokenizer

from stemrepro.common.files import read_json, sha256
from stemrepro.common.yaml_records import dumped
from stemrepro.config.mixes import HubMix
from stemrepro.data import hub, large
from stemrepro.data.archives import fetch
from stemrepro.data.blocks import TokenBlocks
from stemrepro.data.card import data_card
from stemrepro.data.corpus import build_corpus
from stemrepro.data.integrity import read_corpus, verified_hash
from stemrepro.data.large import write_large
from stemrepro.data.tokenizer import train_tokenizer

WORDS = ["river", "ä", "<|end|>", "of", "many", "ships", "\n\n", "tells", "things"]
DOCUMENTS = [f"{k} Document: {' '.join(WORDS[(k * j) % 9] for j in range(k % 40))} {k * k}." for k in range(600)]
DOCUMENTS[77] = DOCUMENTS[5]  # a copy in another part


def mix_of(folder, megabytes=1):
    about = {"licence": "CC0-1.0", "attribution": "nobody"}
    return HubMix(kind="hub", dataset=str(folder), megabytes=megabytes, sample=40, **about)


def folder_of(place, kind):
    """Three files of 200 documents, each with a row that has no text."""
    place.mkdir()
    for number in range(3):
        rows = pd.DataFrame({"text": [*DOCUMENTS[200 * number : 200 * number + 200], None], "n": range(201)})
        if kind == "parquet":
            rows.to_parquet(place / f"{number}.parquet")
        else:
            rows.to_json(place / f"{number}.jsonl", orient="records", lines=True)
    return place


@pytest.fixture(scope="module", params=["jsonl", "parquet"])
def folder(request, tmp_path_factory):
    return folder_of(tmp_path_factory.mktemp(request.param) / "text", request.param)


@pytest.fixture(scope="module", autouse=True)
def small_parts():
    """Some seventeen parts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hub, "PART", 4000)
        yield


@pytest.fixture(scope="module")
def made(folder):
    """What all steps up to token blocks wrote; not to be changed."""
    home, mix = folder.parent, mix_of(folder)
    fetch(mix, home / "raw")
    build_corpus("my", mix, home / "raw", home / "corpus")
    train_tokenizer(home / "corpus/corpus.parquet", 280, home / "tokenizer.json")
    write_large(home / "raw", home / "corpus/corpus.parquet", home / "tokenizer.json", home / "blocks")
    return home


def expected(tokenizer, texts):
    """Tokens of documents, encoded one by one."""
    return [number for text in texts for number in [*tokenizer.encode(text).ids, 0]]


def test_blocks_are_those_of_a_plain_loop(made):
    tokenizer = Tokenizer.from_file(str(made / "tokenizer.json"))
    tokenizer.encode_special_tokens = True
    share = 40_000 / sum(len(text.encode()) for text in DOCUMENTS)
    split = {
        text: "validation" if number < 0.08 * share else "tune" if number < 0.12 * share else "train"
        for text in DOCUMENTS
        for number in [int(hashlib.sha256(text.encode()).hexdigest(), 16) / 2**256]
    }
    train = [text for text in DOCUMENTS if split[text] == "train"]
    assert TokenBlocks(made / "blocks", "train", 8, 280).tokens[:].tolist() == expected(tokenizer, train)
    rows = read_corpus(made / "corpus/corpus.parquet")
    for name in ("validation", "tune"):
        held_out = {text for text in DOCUMENTS if split[text] == name}
        assert sorted(row["text"] for row in rows if row["split"] == name) == sorted(held_out)
        tokens = TokenBlocks(made / "blocks", name, 8, 280).tokens[:]
        assert sorted(tokens.tolist()) == sorted(expected(tokenizer, held_out))
    sampled = {row["text"] for row in rows if row["split"] == "train"}
    assert sampled < set(train)
    size = sum(len(text.encode()) for text in sampled)
    assert size == pytest.approx(0.88 * 40_000, rel=0.15)
    about = read_json(made / "blocks/index.json")["splits"]["train"]
    assert about["text_by_source"] == {"hub": {"documents": len(train), "bytes": sum(len(t.encode()) for t in train)}}
    assert len(about["shards"]) > 10
    assert verified_hash(made / "blocks", whole=True) == about["sha256"]
    assert not (made / "blocks.part").exists()
    data_card(made, made / "blocks", made / "card.md")
    assert f"| hub | train | {len(train)} |" in (made / "card.md").read_text()


def files(folder):
    return {str(path.relative_to(folder)): sha256(path) for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("at", [199, 602])
def test_a_killed_fetch_goes_on_to_the_same_bytes(folder, tmp_path, monkeypatch, at):
    """Within a file, at its ends and at that of the text; finished parts aren't written again."""
    mix, read = mix_of(folder), hub.text_of
    fetch(mix, tmp_path / "whole")
    seen = []

    def dying(mix, row, file, number):
        seen.append((file, number))
        if len(seen) > at:
            raise KeyboardInterrupt
        return read(mix, row, file, number)

    monkeypatch.setattr(hub, "text_of", dying)
    with pytest.raises(KeyboardInterrupt):
        fetch(mix, tmp_path / "cut")
    assert not (tmp_path / "cut/hub.json").exists()
    done = {path for path in (tmp_path / "cut/parts").glob("*.parquet")}
    assert done
    again, written, write = [], set(), hub.atomic_write
    monkeypatch.setattr(hub, "text_of", lambda *about: again.append(about[2:]) or read(*about))
    monkeypatch.setattr(hub, "atomic_write", lambda path, data: written.add(path) or write(path, data))
    fetch(mix, tmp_path / "cut")
    assert not written & done
    assert len(again) < 603 - at + 60  # rows of the part that was cut off are read again
    assert files(tmp_path / "whole") == files(tmp_path / "cut")


def test_parts_of_a_text_that_was_edited_go(tmp_path):
    folder = folder_of(tmp_path / "text", "jsonl")
    fetch(mix_of(folder), tmp_path / "raw")
    (folder / "0.jsonl").unlink()
    fetch(mix_of(folder), tmp_path / "raw")
    parts = [path.stem for path in sorted((tmp_path / "raw/parts").glob("*.parquet"))]
    assert len(parts) == read_json(tmp_path / "raw/hub.json")["parts"] < 15
    texts = [text for path in large.part_files(tmp_path / "raw") for text in pd.read_parquet(path)["text"]]
    assert texts == DOCUMENTS[200:]


@pytest.mark.parametrize("at", [0, 9])
def test_killed_blocks_go_on_to_the_same_bytes(made, tmp_path, monkeypatch, at):
    place = (made / "raw", made / "corpus/corpus.parquet", made / "tokenizer.json", tmp_path / "cut")
    batches, read = large.batches_of, []

    def dying(path):
        if path.stem == f"{at:05d}":
            raise KeyboardInterrupt
        return batches(path)

    monkeypatch.setattr(large, "batches_of", dying)
    with pytest.raises(KeyboardInterrupt):
        write_large(*place)
    assert not (tmp_path / "cut").exists()
    (tmp_path / f"cut.part/hub-{at:05d}.bin").write_bytes(b"half a part")
    monkeypatch.setattr(large, "batches_of", lambda path: read.append(path.stem) or batches(path))
    write_large(*place)
    assert min(read) == f"{at:05d}"
    assert files(tmp_path / "cut") == files(made / "blocks")


CHILD = """
import json, re, sys
from pathlib import Path
from stemrepro.config.mixes import HubMix
from stemrepro.data import hub, large
hub.PART, out = 2**21, Path(sys.argv[2])
hub.take(HubMix(**json.loads(sys.argv[1])), out / "raw")
large.encode_parts(out / "raw", Path(sys.argv[3]), out / "blocks")
print(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_does_not_grow_with_the_text(sample, tmp_path):
    """Peak of a process that reads and encodes 40 MB in 20 parts, next to that of one part of 2 MB."""
    lines = [json.dumps({"text": text * 60}) for text in DOCUMENTS]
    (tmp_path / "text").mkdir()
    for number in range(10):
        (tmp_path / f"text/{number:03d}.jsonl").write_text("\n".join(lines))
    peaks = []
    for megabytes in (2, 40):
        mix, out = mix_of(tmp_path / "text", megabytes=megabytes), tmp_path / str(megabytes)
        command = [sys.executable, "-c", CHILD, json.dumps(dumped(mix)), str(out), str(sample / "tokenizer.json")]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        peaks.append(int(done.stdout.split()[-1]))
        assert read_json(out / "raw/hub.json")["bytes"] == pytest.approx(megabytes * 10**6, rel=0.01)
    assert peaks[1] < 1.15 * peaks[0]  # measured: 1.09, and no more with 120 MB
