import json

import pytest

from stemrepro.common.errors import UserError
from stemrepro.evaluation.task_items import load

GOOD = {"query": "q", "choices": ["a", "b"], "gold": 1}


def write(folder, *rows):
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    (folder / "boolq.jsonl").write_text("".join(f"{line}\n" for line in lines))


def test_items_are_read(tmp_path):
    write(tmp_path, GOOD, GOOD)
    assert load("boolq", str(tmp_path))["test"].to_list() == [GOOD, GOOD]


WITHOUT = {"query": "q", "choices": ["a", "b"]}
CHANGES = ({"gold": None}, {"gold": 2}, {"choices": ["a", ""]}, {"query": ""})


@pytest.mark.parametrize("bad", [WITHOUT, *(GOOD | changed for changed in CHANGES), '{"query": "q", "cho'])
def test_an_item_without_an_answer_is_named_by_line(tmp_path, bad):
    write(tmp_path, GOOD, bad)
    with pytest.raises(UserError, match=r"boolq\.jsonl, line 2: an item needs query, choices and gold"):
        load("boolq", str(tmp_path))


def test_no_folder_no_file_no_items(tmp_path):
    with pytest.raises(UserError, match="where its items lie is not given"):
        load("boolq")
    with pytest.raises(UserError, match=r"boolq\.jsonl is missing"):
        load("boolq", str(tmp_path))
    write(tmp_path)
    with pytest.raises(UserError, match="holds no items"):
        load("boolq", str(tmp_path))
