"""YAML files: what can't be meant is refused by file and key."""

import pytest

from stemrepro.errors import UserError
from stemrepro.records import read_yaml

BOMB = "a0: &a0 [x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 10)
)  # 10^9 values in 300 bytes


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("dense: {ffn: dense", "is not valid YAML"),
        ("a: 1\nb: 2\na: 3", r"is not valid YAML: .*key 'a' stands twice"),
        ("a: {b: 1, b: 2}", r"key 'b' stands twice"),
        ("? [1, 2]\n: 3", "a key must be a word"),
        ("- 1\n- 2", "must hold keys and values"),
        ("", "must hold keys and values"),
        (BOMB, r"aliases unfold to more than 100,000 values"),
        ("a: &a {b: *a}", r"aliases unfold to more than"),
        ("a: !!python/object/apply:os.system ['true']", "is not valid YAML"),
        ("a: " + "[" * 100_000, "values lie more than 50 levels deep"),
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


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(UserError, match="run from the repository's root"):
        read_yaml(tmp_path / "nothing.yaml")
    with pytest.raises(UserError, match="can't be read"):
        read_yaml(tmp_path)
    (tmp_path / "latin.yaml").write_bytes(b"a: \xe9\n")
    with pytest.raises(UserError, match=r"latin\.yaml can't be read"):
        read_yaml(tmp_path / "latin.yaml")
