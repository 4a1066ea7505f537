import os

import pytest

from stemrepro.common import files
from stemrepro.common.errors import UserError


def test_a_failed_write_leaves_the_old_file_and_no_debris(tmp_path, monkeypatch):
    path = tmp_path / "a.txt"
    files.atomic_write(path, "old")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(
        UserError, match=r"a\.txt could not be written \(No space left on device\); what was there is unharmed"
    ):
        files.atomic_write(path, "new")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_digest_ignores_the_order_of_keys():
    assert files.digest({"a": 1, "b": 2}) == files.digest({"b": 2, "a": 1}) != files.digest({"a": 1, "b": 3})


@pytest.mark.parametrize("umask", [0o077, 0o002, 0o022])
def test_who_may_read_a_file_is_what_the_umask_says(tmp_path, umask):
    before = os.umask(umask)
    try:
        files.atomic_write(tmp_path / "a.txt", "a")
    finally:
        os.umask(before)
    assert (tmp_path / "a.txt").stat().st_mode & 0o777 == 0o666 & ~umask
