"""The paper's numbers as typed data: recipes/paper.yaml, cell by cell, and differences between cells.

A cell is named block/row/column, "table-3-350m/dense/average". A cell without a value was looked for and not found.
"""

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from stemrepro.common.errors import UserError, unknown
from stemrepro.common.yaml_records import parse, read_yaml

Confidence = Literal["read", "secondary", "figure", "inferred"]
CONFIDENCES: tuple[Confidence, ...] = ("read", "inferred", "secondary", "figure")
"""From the surest to the least sure: in its abstract, the authors' blog, README or code; computed from others; in
secondary notes; read off an image."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A number of the paper, None where it was looked for and not found; the rest is its column's or block's."""

    value: float | None = None
    unit: str | None = None
    source: str | None = None
    confidence: Confidence | None = None


@dataclass(frozen=True, kw_only=True)
class Block:
    """One table or figure of the paper."""

    item: str  # where the paper has it
    title: str = ""
    source: str  # where it was read
    confidence: Confidence = "read"
    unit: str
    columns: tuple[str, ...]
    by_column: dict[str, Cell] = field(default_factory=dict)  # columns with a unit, source or confidence
    rows: dict[str, tuple[float | Cell | None, ...]]


@dataclass(frozen=True, kw_only=True)
class PaperNumber:
    """A number of the paper with where it was read and how sure that is."""

    value: float
    unit: str
    source: str
    confidence: Confidence


@dataclass(frozen=True, kw_only=True)
class Cells:
    """A number that follows from cells: one of them, or the first less the second."""

    cells: tuple[str, ...]
    note: str = ""


class Paper:
    """All blocks of recipes/paper.yaml; UserError for a bad key, a row with too many or too few cells."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.blocks = {name: parse(Block, value, file, name) for name, value in read_yaml(file).items()}
        for name, block in self.blocks.items():
            for row, cells in block.rows.items():
                if len(cells) != len(block.columns):
                    counts = f"{len(cells)} cells for {len(block.columns)} columns"
                    raise UserError(f"{file}: {name}.rows.{row} has {counts}")
            if others := block.by_column.keys() - set(block.columns):
                raise UserError(f"{file}: {name}.by_column names '{min(others)}', which is not among its columns")

    def cell(self, name: str) -> Cell:
        """Return a cell with all its fields, `value` None where the paper has none; UserError: no such cell."""
        block_name, _, rest = name.partition("/")
        row, _, column = rest.partition("/")
        block = self.blocks.get(block_name)
        if block is None or row not in block.rows or column not in block.columns:
            cells = (f"{key}/{r}/{c}" for key, other in self.blocks.items() for r in other.rows for c in other.columns)
            raise unknown("cell (block/row/column)", name, cells, f"{self.file}")
        entry = block.rows[row][block.columns.index(column)]
        cell = entry if isinstance(entry, Cell) else Cell(value=entry)
        general = block.by_column.get(column, Cell())
        return Cell(
            value=cell.value,
            unit=cell.unit if cell.unit is not None else block.unit if general.unit is None else general.unit,
            source=cell.source or general.source or block.source,
            confidence=cell.confidence or general.confidence or block.confidence,
        )

    def value(self, name: str) -> float:
        """Return the number in a cell, NaN where the paper has none."""
        value = self.cell(name).value
        return math.nan if value is None else value

    def row(self, name: str) -> dict[str, float]:
        """Return the numbers of a row, "table-3-350m/dense", by column; NaN where the paper has none."""
        return {column: self.value(f"{name}/{column}") for column in self.blocks[name.split("/")[0]].columns}

    def number(self, request: Cells) -> PaperNumber:
        """Return the number that follows from cells, with its source in words and the lowest confidence among them."""
        names, cells = request.cells, [self.cell(name) for name in request.cells]
        if len(cells) not in (1, 2):
            raise UserError(f"{self.file}: {list(names)}: one or two cells make a number, not {len(cells)}")
        numbers = []
        for name, cell in zip(names, cells, strict=True):
            if cell.value is None:
                raise UserError(f"{self.file}: the cell '{name}' is empty; a claim's number can't follow from it")
            numbers.append(cell.value)
        words = " - ".join(f"{number:g}" for number in numbers)
        block = self.blocks[request.cells[0].split("/")[0]]
        where = f"{block.item}, {block.title}" if block.title else block.item
        weakest = max((cell.confidence or block.confidence for cell in cells), key=CONFIDENCES.index)
        return PaperNumber(
            value=round(numbers[0] - sum(numbers[1:]), 6),
            unit="points" if cells[0].unit == "%" and len(cells) > 1 else cells[0].unit or block.unit,
            source=f"{where}{f': {words}' if len(cells) > 1 else ''}{f'; {request.note}' if request.note else ''}",
            confidence="inferred" if weakest == "read" and len(cells) > 1 else weakest,
        )
