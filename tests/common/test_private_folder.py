"""Compiled code is loaded and run: its folder has a name that another user can make first."""

import os
import tempfile
from pathlib import Path

import pytest

from stemrepro.common.files import private_folder


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path / f"stemrepro-{os.getuid()}"


def test_the_folder_is_this_users_alone_and_stays_the_same(place, capsys):
    assert private_folder() == private_folder() == place
    assert place.stat().st_mode & 0o777 == 0o700
    place.chmod(0o755)  # as it was made before; nobody else can write to it
    assert private_folder() == place
    assert capsys.readouterr().err == ""


def foreign(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place.mkdir()
    user = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: user + 1)
    place.rename(place.with_name(f"stemrepro-{os.getuid()}"))


@pytest.mark.parametrize(
    "made",
    [
        lambda place, _: (place.mkdir(), place.chmod(0o777)),
        lambda place, _: place.symlink_to(tempfile.mkdtemp()),
        foreign,
    ],
    ids=["all may write", "a link", "another user's"],
)
def test_a_folder_that_others_made_is_not_used(place, monkeypatch, capsys, made):
    made(place, monkeypatch)
    folder = private_folder()
    assert folder not in place.parent.glob(f"stemrepro-{os.getuid()}")
    assert folder.stat().st_mode & 0o777 == 0o700
    assert f"compiled code goes to {folder}" in capsys.readouterr().err
