"""The notebook that teaches STEM: its cells run in order as plain Python, and its stored outputs are fit to print."""

import ast
import base64
import csv
import json
import re
import textwrap
from collections import Counter

import pytest

from tests.conftest import ROOT

NOTEBOOK = ROOT / "docs/stem.ipynb"
CELLS = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
CODE = [cell for cell in CELLS if cell["cell_type"] == "code"]
OUTPUTS = [output for cell in CODE for output in cell["outputs"]]
PICTURES = [output["data"]["image/png"] for output in OUTPUTS if "image/png" in output.get("data", {})]


def run(cell, names):
    """Execute a cell and return its last line's value, as a notebook would show it."""
    tree = ast.parse("".join(cell["source"]))
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, cell["id"], "exec"), names)
    return eval(compile(ast.Expression(last.value), cell["id"], "eval"), names) if last else None


@pytest.fixture
def place(tmp_path):
    """A folder without data and runs, as a fresh clone."""
    for name in ("recipes", "results", "scores"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "docs").mkdir()
    return tmp_path


@pytest.mark.parametrize("start", [".", "docs"])
def test_it_starts_in_either_folder(place, monkeypatch, start):
    monkeypatch.chdir(place / start)
    assert run(CODE[1], {})._repr_png_().startswith(b"\x89PNG")


@pytest.mark.slow
def test_the_notebook_runs(place, monkeypatch):
    """With fewer tokens of training, and without a network."""
    monkeypatch.chdir(place / "docs")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))  # for commands that cells start
    shorter = json.loads(json.dumps(CODE).replace("TOKENS = 196_608", "TOKENS = 16_384"))
    assert shorter != CODE
    names, shown = {}, []
    for cell in shorter:
        shown.append(run(cell, names))
    pictures = [value._repr_png_() for value in shown if hasattr(value, "_repr_png_")]
    assert len(pictures) == len(PICTURES)
    assert all(picture.startswith(b"\x89PNG") for picture in pictures)
    assert list(names["gains"].columns) == ["0", "1-3", "4-31", "32+"]
    assert names["losses"].gain.sum() == pytest.approx(
        names["losses"].dense.sum() - names["losses"].stem.sum(), abs=0.1
    )
    assert {path.name for path in place.iterdir()} == {"recipes", "results", "scores", "docs"}  # nothing is left


def test_no_cell_needs_a_network_unasked():
    assert any("DOWNLOAD = False\n" in cell["source"] for cell in CODE)
    assert len(CODE) <= 12


def test_stored_outputs_have_pictures_and_no_errors():
    assert [output for output in OUTPUTS if output["output_type"] == "error" or output.get("name") == "stderr"] == []
    assert len(PICTURES) >= 3
    assert "image/png" in CODE[1]["outputs"][0]["data"]  # the second cell is a picture
    assert all(base64.b64decode(picture).startswith(b"\x89PNG") for picture in PICTURES)
    assert [cell["execution_count"] for cell in CODE] == list(range(1, len(CODE) + 1))
    assert NOTEBOOK.stat().st_size < 400_000


def test_stored_outputs_say_nothing_of_the_machine():
    """No absolute path, no hash and no time of a run."""
    rest = [{**output, "data": {**output.get("data", {}), "image/png": ""}} for output in OUTPUTS]
    text = json.dumps([rest, [cell["metadata"] for cell in CELLS]])
    assert re.findall(r"(?<![\w<.])/(?:\w+/)+\w*|[A-Z]:\\\\|\b[0-9a-f]{7,64}\b|\d{4}-\d\d-\d\d", text) == []
    assert json.loads(NOTEBOOK.read_text(encoding="utf-8"))["metadata"] == {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }


def test_sentences_are_short():
    """At most 25 words each, for readers whose first language is another."""
    long = []
    for cell in CELLS:
        if cell["cell_type"] == "markdown":
            text = re.sub(r"\$\$.*?\$\$", ".", "".join(cell["source"]), flags=re.DOTALL)
            text = re.sub(r"`[^`]*`", "code", re.sub(r"\]\([^)]*\)", "]", text))
            sentences = re.split(r"[.?!:;](?:\*\*)?(?=\s|$)|\n\n|\n(?=[*#])", text)
            long += [textwrap.shorten(words, 80) for words in sentences if len(words.split()) > 25]
    assert long == []


def test_links_of_the_notebook_lead_somewhere():
    text = "".join(line for cell in CELLS if cell["cell_type"] == "markdown" for line in cell["source"])
    links = [link for link in re.findall(r"\]\(([^)\s]+)\)", text) if not link.startswith("http")]
    assert links
    assert [link for link in links if not (NOTEBOOK.parent / link).exists()] == []


def test_the_stored_table_counts_todays_claims():
    """The last table was drawn when the notebook was run; claims may have changed since."""
    told = "".join(OUTPUTS[-1]["data"]["text/plain"])
    counts = Counter((row["origin"], row["verdict"]) for row in csv.DictReader((ROOT / "results/claims.csv").open()))
    lines = [line.split() for line in told.splitlines()[2:]]
    assert {origin for origin, *_ in lines} == {origin for origin, _ in counts}
    for origin, *numbers in lines:
        wanted = [counts[origin, verdict] for verdict in ("supported", "contradicted", "undecided", "not tested")]
        assert [int(number) for number in numbers] == wanted
