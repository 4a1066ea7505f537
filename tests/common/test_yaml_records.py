"""YAML files: what can't be meant is refused by file and key."""

import itertools
from pathlib import Path

import pytest
import yaml
from ruamel.yaml import YAML

from stemrepro.common.errors import UserError
from stemrepro.common.yaml_records import checked_name, read_yaml
from stemrepro.config.catalog import MODULE


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("dense: {ffn: dense", "is not valid YAML"),
        ("a: 1\nb: 2\na: 3", r"is not valid YAML: .*key 'a' stands twice"),
        ("", "must hold keys and values"),
        ("a: !!python/object/apply:os.system ['true']", "is not valid YAML"),
    ],
)
def test_what_is_refused(tmp_path, content, words):
    path = tmp_path / "arms.yaml"
    path.write_text(content)
    with pytest.raises(UserError, match=rf"arms\.yaml.*{words}"):
        read_yaml(path)


def test_aliases_are_fine(tmp_path):
    (tmp_path / "a.yaml").write_text("a: &a {x: 1}\nb: *a")
    assert read_yaml(tmp_path / "a.yaml") == {"a": {"x": 1}, "b": {"x": 1}}


WORDS = ["null", "yes", "no", "on", "off", "true", "false", "123", "1.5", "0x1f", "0b1", "2026-01-01", "2026-99-99"]
WORDS += ["1e5", "12e3", "0o7", "1_000", "y", "con"]
NEAR = ["1-5", "v1", "e5", "0-5", "1.5.3", "rate-0.5", "1e", "nulls", "08", "3d", "0x", "0o8", "1.e"]


def _itself(read, name):
    """Is a plain key the word that it looks like?"""
    try:
        return read(f"{name}: 1\n") == {name: 1} and read(f"- {name}\n") == [name]
    except Exception:
        return False


def test_a_name_is_one_that_yaml_gives_back_whoever_reads_it():
    """PyYAML, as here, and ruamel's YAML 1.2, as in DVC, on every short word of letters that numbers have."""
    made = ["".join(letters) for n in (1, 2, 3) for letters in itertools.product("01e.x-_on", repeat=n)]
    wrong = {}
    for name in [*WORDS, *NEAR, *(name for name in made if MODULE.fullmatch(name))]:
        right = _itself(yaml.safe_load, name) and _itself(YAML(typ="safe", pure=False).load, name)
        try:
            checked_name(name, Path("arms.yaml"), MODULE)
        except UserError:
            wrong |= {name: "refused"} if right else {}
        else:
            wrong |= {} if right else {name: "taken"}
    assert wrong == {}
