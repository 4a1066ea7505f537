import os
import shutil
import subprocess
import sys

import pytest

from stemrepro.common.errors import UserError
from stemrepro.common.files import sha256
from stemrepro.data.integrity import read_corpus, store_corpus, verified_hash
from stemrepro.data.tokenizer import read_tokenizer


@pytest.fixture
def copy(sample, tmp_path):
    shutil.copytree(sample / "blocks", tmp_path / "blocks")
    return tmp_path / "blocks"


def test_whole_blocks_give_the_hash_of_the_training_split(sample):
    assert verified_hash(sample / "blocks") == sha256(sample / "blocks" / "train.bin")


@pytest.mark.parametrize("split", ["train", "tune", "validation"])
def test_one_changed_byte_is_found_and_the_file_named(copy, split):
    data = bytearray((copy / f"{split}.bin").read_bytes())
    data[100] ^= 1
    (copy / f"{split}.bin").write_bytes(data)
    with pytest.raises(UserError, match=rf"{split}\.bin is missing or garbled"):
        verified_hash(copy)


def test_missing_files(copy, tmp_path):
    (copy / "tune.bin").unlink()
    with pytest.raises(UserError, match=r"tune\.bin is missing or garbled"):
        verified_hash(copy)
    with pytest.raises(UserError, match=r"index\.json is missing"):
        verified_hash(tmp_path / "none")


ROWS = [{"source": "s", "id": str(n), "split": "train", "text": f"text {n}"} for n in range(40)]


@pytest.mark.slow
def test_a_corpus_is_read_where_no_cache_can_be_written(tmp_path):
    """/dev/null is no folder for anybody."""
    store_corpus(ROWS, tmp_path / "corpus.parquet")
    code = "import sys; from stemrepro.data.integrity import *; rows = read_corpus(Path(sys.argv[1])); "
    code += "store_corpus(rows, Path(sys.argv[2])); print(len(rows))"
    command = [sys.executable, "-c", code, str(tmp_path / "corpus.parquet"), str(tmp_path / "again.parquet")]
    done = subprocess.run(
        command, env=os.environ | {"HF_HOME": "/dev/null/cache"}, capture_output=True, text=True, check=True
    )
    assert done.stdout == "40\n"
    assert (tmp_path / "again.parquet").read_bytes() == (tmp_path / "corpus.parquet").read_bytes()


def test_a_corpus_that_was_replaced_is_read_anew_whatever_its_time_says(tmp_path):
    path = tmp_path / "corpus.parquet"
    for text in ("old", "new"):
        store_corpus([ROWS[0] | {"text": text}], path)
        os.utime(path, (1, 1))
        assert [row["text"] for row in read_corpus(path)] == [text]


@pytest.mark.parametrize(("read", "name"), [(read_corpus, "corpus.parquet"), (read_tokenizer, "tokenizer.json")])
def test_what_the_system_refuses_is_not_called_damage(tmp_path, read, name):
    """A link to itself can't be opened, not even by root."""
    (tmp_path / name).symlink_to(tmp_path / name)
    with pytest.raises(UserError, match=rf"{name} can't be read"):
        read(tmp_path / name)
