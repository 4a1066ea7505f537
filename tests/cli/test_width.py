"""What the terminal shows fits 80 columns, and nothing of it is cut off."""

import io

import pytest
from rich.console import Console
from typer.testing import CliRunner

from stemrepro.cli import app
from stemrepro.cli.estimate import show_arms
from stemrepro.config.arm import shaped
from stemrepro.config.paper import Paper
from stemrepro.model.cost import flops_per_token, parameter_counts, table_bytes_per_token
from tests.conftest import ROOT


@pytest.fixture
def printed(monkeypatch):
    """printed("paper") -> the output of a command where a terminal has 80 columns."""
    monkeypatch.chdir(ROOT)

    def of(*arguments):
        done = CliRunner().invoke(app, arguments, env={"COLUMNS": "80"})
        assert done.exit_code in (0, 3), done.output
        return done.stdout

    return of


@pytest.mark.slow
@pytest.mark.parametrize(
    "line",
    [
        "plan --arms", "plan --arms --scale gpu", "paper", "cost --shape llama-3.2-1b",
        "cost --shape qwen2.5-32b --batch 4096",
        "explain rivals/equal-flops", "verify --scale laptop", "--help", "train --help",
    ],
)  # fmt: skip
def test_lines_fit_and_nothing_is_cut_off(printed, line):
    text = printed(*line.split())
    assert text
    assert "…" not in text
    assert max(map(len, text.split("\n"))) <= 80


def number(word):
    """ "1.23M" -> 1230000."""
    return float(word.rstrip("kMG")) * {"k": 1e3, "M": 1e6, "G": 1e9}.get(word[-1], 1)


@pytest.mark.parametrize("scale", ["laptop", "ladder", "gpu"])
def test_every_arm_has_its_name_and_its_numbers_whole(catalog, scale):
    console = Console(file=io.StringIO(), width=80)
    show_arms(catalog, scale, list(catalog.arms), console)
    text = console.file.getvalue()
    lines = {words[0]: words for words in map(str.split, text.split("\n")) if words}
    model = catalog.scale(scale).model
    for arm in catalog.arms:
        counts = parameter_counts(config := shaped(model, catalog.arms[arm]))
        printed = [number(word) for word in lines[arm][-5:]]
        wanted = [counts["total"], counts["active"], counts["tables"], flops_per_token(config, model.sequence)]
        assert printed == pytest.approx([*wanted, table_bytes_per_token(config, 4)], rel=0.006), lines[arm]


def test_every_cell_of_the_paper_has_its_name_on_one_line(printed):
    lines = printed("paper").split("\n")
    paper = {line.split()[0]: line for line in lines if line.startswith("  ")}
    listed = {row["cell"]: row for row in Paper(ROOT / "recipes/paper.yaml").listing()}
    assert set(listed) <= set(paper)
    for cell, row in listed.items():
        value = "not found" if row["value"] is None else f"{row['value']:g}"
        assert paper[cell].split(None, 1)[1] == f"{value} {row['unit']}".strip()
