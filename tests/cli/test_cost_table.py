"""`stemrepro cost`: the printed numbers are those of the closed forms; bad input is named."""

import pytest
from typer.testing import CliRunner

from stemrepro.cli import app
from stemrepro.cli.cost_table import cost_table, short
from stemrepro.common.errors import UserError
from tests.conftest import ROOT

SHAPE = {"shape": "llama-3.2-1b", "placement": "third", "length": 4096}
SETTINGS = SHAPE | {"batch": 8, "width": 2, "distinct": None, "tflops": 400.0}


def test_the_issues_example_prints_the_papers_model(monkeypatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", "120")
    text = CliRunner().invoke(app, ["cost", "--shape", "llama-3.2-1b", "--length", "4096", "--batch", "8"]).stdout
    for words in ("5 of 16 layers", "6.67 G", "1.41 G", "5.25 G", "10.5 GB", "6.75 G", "2.68 GB", "Zipf"):
        assert words in text


def test_distinct_tokens_given_move_exactly_their_rows(catalog):
    table = cost_table(catalog, **SETTINGS | {"distinct": 1000})
    cells = [list(column.cells) for column in table.columns]
    line = cells[0].index("  de-duplicated (1,000 distinct)")
    assert cells[2][line] == "81.9 MB"  # 1,000 x 5 layers x 8,192 x 2 bytes


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"shape": "gpt-9"}, "shape 'gpt-9' is unknown.*laptop"),
        ({"batch": 0}, "batch 0.* must be finite and > 0"),
        ({"tflops": float("nan")}, "tflops nan must be finite"),
        ({"distinct": 10**6}, "1000000 distinct tokens: the number must be 1 to 32,768"),
    ],
)
def test_bad_input_is_named(catalog, change, words):
    with pytest.raises(UserError, match=words):
        cost_table(catalog, **SETTINGS | change)


def test_short():
    words = ["0", "7", "999", "1.00 k", "1.23 k", "12.3 M", "5.25 G"]
    assert [short(v) for v in (0, 7, 999, 999.7, 1234, 12345678, 5.25e9)] == words
