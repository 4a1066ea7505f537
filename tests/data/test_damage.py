"""Files of the data stages that were cut off or garbled: each is one sentence with the file's name."""

import shutil

import pytest

from stemrepro.common.errors import UserError
from stemrepro.config.mixes import SampleMix
from stemrepro.data.archives import fetch
from stemrepro.data.corpus import build_corpus
from stemrepro.data.counting import write_counts
from stemrepro.data.encoding import write_blocks
from stemrepro.data.items import write_items
from stemrepro.data.tokenizer import read_tokenizer, train_tokenizer
from stemrepro.evaluation.task_items import load

MIX = SampleMix(kind="sample")


@pytest.fixture
def copy(sample, tmp_path):
    shutil.copytree(sample, tmp_path / "copy")
    return tmp_path / "copy"


def cut(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@pytest.mark.parametrize(
    "use",
    [
        lambda folder: train_tokenizer(folder / "corpus/corpus.parquet", 300, folder / "new.json"),
        lambda folder: write_blocks(folder / "corpus/corpus.parquet", folder / "tokenizer.json", folder / "new"),
        lambda folder: write_items(MIX, folder / "raw", folder / "corpus/corpus.parquet", folder / "new"),
    ],
)
def test_a_corpus_that_was_cut_off(copy, use):
    cut(copy / "corpus/corpus.parquet")
    with pytest.raises(UserError, match=r"corpus\.parquet is missing or damaged"):
        use(copy)


def test_documents_that_were_cut_off(copy):
    cut(copy / "raw/documents.jsonl")
    with pytest.raises(UserError, match=r"documents\.jsonl is missing or damaged"):
        build_corpus("sample", MIX, copy / "raw", copy / "new")


def test_a_tokenizer_that_was_cut_off(copy, tiny):
    cut(copy / "tokenizer.json")
    with pytest.raises(UserError, match=r"tokenizer\.json"):
        write_counts(copy / "corpus/corpus.parquet", copy / "tokenizer.json", tiny.counting, copy / "text")
    with pytest.raises(UserError, match=r"tokenizer\.json"):
        read_tokenizer(copy / "tokenizer.json")


def test_items_that_were_cut_off(copy):
    cut(copy / "items/openbookqa.jsonl")
    with pytest.raises(UserError, match=r"openbookqa\.jsonl, line \d+"):
        load("openbookqa", str(copy / "items"))


def test_what_is_damaged_is_fetched_again_from_the_package(copy):
    cut(copy / "raw/documents.jsonl")
    fetch(MIX, copy / "raw")
    build_corpus("sample", MIX, copy / "raw", copy / "new")
    assert (copy / "new/corpus.parquet").stat().st_size > 0
