"""The paper's numbers: read as they stand in the file, and differences between them by hand."""

import itertools
import math

import pytest
import yaml

from stemrepro.common.errors import UserError
from stemrepro.config.paper import Cells, Paper
from tests.conftest import ROOT

FILE = ROOT / "recipes" / "paper.yaml"


@pytest.fixture(scope="module")
def paper():
    return Paper(FILE)


def test_every_cell_has_the_files_number_a_source_and_a_confidence(paper):
    count = 0
    for name, block in yaml.safe_load(FILE.read_text()).items():
        for (row, cells), (number, column) in itertools.product(block["rows"].items(), enumerate(block["columns"])):
            read, cell = paper.cell(f"{name}/{row}/{column}"), cells[number]
            assert read.value == (cell["value"] if isinstance(cell, dict) else cell)
            assert all((read.source, read.confidence, read.unit is not None))
            count += read.value is not None
    assert count > 300


def test_tables_1_to_6_and_the_figures_that_could_be_read_are_there(paper):
    items = {block.item for block in paper.blocks.values()}
    assert {f"Table {n}" for n in range(1, 7)} <= items
    assert {"Fig. 1a", "Fig. 1b", "Fig. 5a", "Fig. 5b", "Fig. 6a", "Fig. 6b", "Fig. 6c", "Fig. 7"} <= items


def test_a_cell_takes_what_it_lacks_from_its_column_and_block(paper):
    cell = paper.cell("table-3-350m/hash-moe/arc_challenge")
    assert (cell.value, cell.unit, cell.confidence, cell.source) == (36.33, "%", "secondary", "one note")
    column = paper.cell("table-3-350m/dense/gflops")
    assert (column.value, column.unit, column.confidence) == (0.74, "GFLOP/token", "secondary")
    block = paper.cell("table-3-350m/dense/boolq")
    assert (block.value, block.unit, block.confidence) == (58.20, "%", "read")
    assert paper.cell("fig-1b/lead/16k").value is None
    assert math.isnan(paper.row("table-3-350m/hash-moe")["boolq"])


def test_numbers_that_follow_from_cells(paper):
    difference = paper.number(Cells(cells=("table-3-350m/stem-third/average", "table-3-350m/dense/average")))
    assert (difference.value, difference.unit, difference.confidence) == (1.18, "points", "inferred")
    assert difference.source == "Table 3, 350M backbone, 100B tokens: 50.9 - 49.72"
    read_off = paper.number(Cells(cells=("fig-1a/dense/1.0T", "fig-1a/stem-third/1.0T"), note="at 1B"))
    assert (read_off.value, read_off.unit, read_off.confidence) == (0.55, "perplexity", "figure")
    assert read_off.source.endswith(": 13.19 - 12.64; at 1B")
    single = paper.number(Cells(cells=("table-3-350m/stem-full/roi",)))
    assert (single.value, single.unit, single.confidence) == (1.33, "x dense", "secondary")


@pytest.mark.parametrize("name", ["table-3-350m", "table-3-350m/dense", "table-3-350m/dense/chess", "x/y/z"])
def test_unknown_cells_are_named(paper, name):
    with pytest.raises(UserError, match=f"'{name}' is unknown"):
        paper.cell(name)
