"""recipes/ is read once in a process, until a file changes."""

from pathlib import Path

import pytest

from stemrepro.common.errors import UserError
from stemrepro.measures.catalog import load
from tests.conftest import copy_recipes


@pytest.fixture
def recipes(tmp_path, monkeypatch):
    """recipes/ in the working directory, with one recipe."""
    copy_recipes(tmp_path, "rivals")
    monkeypatch.chdir(tmp_path)
    return Path("recipes")


def test_files_are_parsed_again_after_a_change_alone(recipes):
    first = load()
    assert load() is first
    file = recipes / "rivals.yaml"
    text = file.read_text()
    changed = text.replace(f"title: {first.recipes['rivals'].title}", "title: Others")
    assert changed != text
    file.write_text(changed)
    assert load().recipes["rivals"].title == "Others"
    file.rename(recipes / "others.yaml")
    assert list(load().recipes) == ["others"]
    (recipes / "others.yaml").write_text(text.replace("{loss: ", "{los: ", 1))
    for _ in range(2):
        with pytest.raises(UserError, match=r"recipes/others\.yaml: claim"):
            load()


def test_what_cannot_be_read_is_named(recipes):
    (recipes / "rivals.yaml").unlink()
    (recipes / "rivals.yaml").mkdir()
    with pytest.raises(UserError, match=r"recipes/rivals\.yaml"):
        load()
