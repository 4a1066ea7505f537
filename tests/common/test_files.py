import errno
import fcntl
import os
import re

import pytest

from stemrepro.common import files
from stemrepro.common.errors import UserError, of_system


def test_a_failed_write_leaves_the_old_file_and_no_debris(tmp_path, monkeypatch):
    path = tmp_path / "a.txt"
    files.atomic_write(path, "old")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UserError, match=r"a\.txt could not be written \(No space left on device\)"):
        files.atomic_write(path, "new")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.txt"]


@pytest.mark.parametrize("umask", [0o077, 0o002, 0o022])
def test_who_may_read_a_file_is_what_the_umask_says(tmp_path, umask):
    before = os.umask(umask)
    try:
        files.atomic_write(tmp_path / "a.txt", "a")
    finally:
        os.umask(before)
    assert (tmp_path / "a.txt").stat().st_mode & 0o777 == 0o666 & ~umask


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_disk_without_locks_is_a_sentence_that_names_the_folder(tmp_path, monkeypatch, number):
    def refuse(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(files.fcntl, "flock", refuse)
    for otherwise in ("", "taken"):
        with pytest.raises(UserError, match=r"runs can't be locked"):
            files.locked(tmp_path / "runs", otherwise).__enter__()


def test_what_is_locked_is_a_file_to_write(tmp_path, monkeypatch):
    """NFS locks such a file for all machines, and a folder for one of them alone; two can't have it."""
    flock = fcntl.flock

    def on_nfs(file, how):
        assert os.path.isfile(file.name)
        assert fcntl.fcntl(file, fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDONLY
        flock(file, how)

    monkeypatch.setattr(files.fcntl, "flock", on_nfs)
    with files.locked(tmp_path / "seed0"), pytest.raises(UserError, match="taken"):
        files.locked(tmp_path / "seed0", "taken").__enter__()
    with files.locked(tmp_path / "seed0", "taken"):
        assert os.listdir(tmp_path / "seed0") == []


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.ENOSPC, r"^no room left on the disk \(a\.bin\); make some"),
        (errno.EROFS, r"^read-only file system \(a\.bin\); look at that file, at its disk"),
        (errno.EINVAL, r"^invalid argument \(a\.bin\)"),
        (errno.ENOENT, "^$"),
    ],
)
def test_what_the_system_refuses_is_a_sentence(number, words):
    assert re.search(words, of_system(OSError(number, os.strerror(number), "a.bin")))


def test_a_sync_that_is_refused_names_the_file(tmp_path, monkeypatch):
    def refuse(_):
        raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(os, "fsync", refuse)
    with open(tmp_path / "a.bin", "wb") as file, pytest.raises(OSError, match=r"Invalid argument: .*a\.bin"):
        files.sync(file)
