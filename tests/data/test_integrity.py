import shutil

import pytest

from stemrepro.data.integrity import verified_hash
from stemrepro.errors import UserError
from stemrepro.files import sha256


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
    with pytest.raises(UserError, match=r"index\.json is missing; run 'dvc repro blocks'"):
        verified_hash(tmp_path / "none")
