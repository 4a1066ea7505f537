"""Numbers in prose are those of the results, and none in findings and captions stands there by itself."""

import csv
import json
import re
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from stemrepro.common.errors import UserError
from stemrepro.pipeline.docs import BOUND, FILES, pages, render, rendered
from tests.conftest import ROOT

NAMES = re.compile(r"1/[23]|125M|0\.6B|Qwen2\.5 7B|Table \d|Fig\. \d\w?|350M|\b1B\b|N\(0, 1\)|95%|95th|Gemma 3n")
"""What holds a digit and is no result: names of arms, of the paper's items and models, of a distribution, of an interval."""


def loose(text: str) -> list[str]:
    """Numbers that are not bound, with their surroundings."""
    for pattern in (BOUND.pattern, r"`[^`]*`", r"\]\([^)]*\)", NAMES.pattern):
        text = re.sub(pattern, "", text, flags=re.DOTALL)
    return [text[max(0, found.start() - 30) : found.end() + 10] for found in re.finditer(r"\d[\d.,]*", text)]


@pytest.fixture
def results(tmp_path):
    folder = tmp_path / "results/laptop/rivals"
    folder.mkdir(parents=True)
    row = json.loads((ROOT / "results/laptop/rivals/verdicts.json").read_text())[0]
    (folder / "verdicts.json").write_text(json.dumps([row | {"claim": "a", "ours": -0.4567, "seeds": 5}]))
    (folder / "data.csv").write_text("panel,what,value\nloss,dense,3.14159\nloss,stem,2\nFLOPs,stem,\n")
    return tmp_path / "results"


@pytest.mark.parametrize(
    "path", [ROOT / path.relative_to(ROOT) for path in pages(tuple(ROOT / f for f in FILES))], ids=lambda p: p.name
)
def test_prose_is_what_the_results_say(path, monkeypatch):
    """Else 'stemrepro prose' brings it up to date."""
    monkeypatch.chdir(ROOT)
    assert rendered(path.read_text(), Path("results")) == path.read_text()
    assert "@@" not in path.read_text()  # a place to be filled


CAPTION = re.compile(r"\)\n\n\*([^*\n].*?)\*\n\n", re.DOTALL)


@pytest.mark.parametrize(
    ("page", "first", "last", "bound"),
    [
        ("README.md", "\n## Six findings\n", "\n## Run it\n", 15),
        ("docs/findings.md", "\n## ", None, 100),
        ("docs/report.md", "\n## 2", "\n## 7", 40),
    ],
)
def test_no_number_in_findings_and_captions_is_loose(page, first, last, bound):
    text = (ROOT / page).read_text()
    start = text.index(first)
    findings = text[start : text.index(last) if last else None]
    captions = CAPTION.findall(text)
    assert captions
    assert loose("STEM 1/3 shrinks to 0.18 nats (`d_ff` 64)") != []
    assert len(BOUND.findall(findings)) > bound
    numbered = re.sub(r"^(## )?\d\. ", "", findings, flags=re.MULTILINE)
    assert [number for part in (numbered, *captions) for number in loose(part)] == []


MARKDOWN = sorted(
    path for path in ROOT.rglob("*.md") if not {".venv", "node_modules"} & set(path.relative_to(ROOT).parts)
)


def cells(row: str) -> int:
    """Cells of a line of a table, as GitHub counts them: a bar parts two, also within code and comments."""
    return len(re.findall(r"(?<!\\)\|", row.strip().strip("|"))) + 1


@pytest.mark.parametrize("path", MARKDOWN, ids=lambda path: str(path.relative_to(ROOT)))
def test_github_shows_every_page_as_it_is_meant(path):
    """No comment that can be seen, and no row of a table that is cut or lacks cells."""
    text = path.read_text(encoding="utf-8")
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    inline = [child for token in tokens for child in token.children or () if child.type == "text"]
    assert [child.content for child in inline if "<!--" in child.content or "-->" in child.content] == []
    lines = text.splitlines()
    for table in (token for token in tokens if token.type == "table_open"):
        first, last = table.map
        assert {cells(line) for line in lines[first:last]} == {cells(lines[first])}


def test_readme_is_short():
    """What a reader sees, without the comments that bind its numbers."""
    assert len(re.sub(r"<!--.*?-->", "", (ROOT / "README.md").read_text()).split()) < 1300


@pytest.mark.parametrize("path", pages(tuple(ROOT / f for f in FILES)), ids=lambda path: path.name)
def test_links_lead_somewhere(path):
    """Files and headings of this repository; a heading's anchor is made as GitHub makes it."""
    links = re.findall(r"\]\(([^)\s]+)\)", re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL))
    for link in (link for link in links if not link.startswith("http")):
        place, _, anchor = link.partition("#")
        target = path.parent / place if place else path
        assert target.exists(), link
        if anchor:
            heads = re.findall(r"^#+ (.*)$", target.read_text(), flags=re.MULTILINE)
            assert anchor in {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}, link


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("laptop/rivals/verdicts.json::a::ours::.2f", "-0.46"),
        ("laptop/rivals/verdicts.json::a::ours::minus .1f", "0.5"),
        ("laptop/rivals/verdicts.json::a::seeds::d", "5"),
        ("laptop/rivals/verdicts.json::a::word::", "holds"),
        ("laptop/rivals/data.csv::panel=loss;what=dense::value::.3f", "3.142"),
        ("laptop/rivals/data.csv::what=dense::value::fewer .0%", "96%"),
        ("recipes/paper.yaml::table-3-1b/dense/average::value::.2f", "55.82"),
        ("docs/kills.csv::resumed_from=0;died_after=25::lost::.0f", "9"),
        ("docs/kills.csv::resumed_from=0;died_after=25::aimed::", "at any moment"),
        ("laptop::scale::tokens::.2f", "0.82"),
        ("laptop::scale::ratio::.1f", "6.1"),
    ],
)
def test_a_number_is_written_as_its_marker_asks(results, monkeypatch, source, words):
    monkeypatch.chdir(ROOT)
    stale = f"before <!--{source}-->old<!--/--> after <!--an aside-->"
    assert rendered(stale, results) == f"before <!--{source}-->{words}<!--/--> after <!--an aside-->"


def test_rows_of_a_kind_are_a_table(results, monkeypatch):
    monkeypatch.chdir(ROOT)
    marker = "<!--laptop/rivals/data.csv::what=stem::panel;value .1f::table-->"
    lines = ["| panel | value |", "| --- | --: |", "| loss | 2.0 |", "| FLOPs |  |"]
    assert rendered(f"{marker}old<!--/-->", results) == "\n".join([marker, *lines, "<!--/-->"])


@pytest.mark.parametrize("which", ["tally", "primary", "recipes"])
def test_tables_count_every_claim(which, monkeypatch):
    monkeypatch.chdir(ROOT)
    with (ROOT / "results/claims.csv").open(newline="") as file:
        claims = list(csv.DictReader(file))
    lines = rendered(f"<!--laptop::{which}-->old<!--/-->", ROOT / "results").splitlines()[3:-1]
    lines = [line for line in lines if line.startswith("|")]
    if which == "primary":
        primary = {row["sentence"]: row["word"] for row in claims if row["primary"] == "True"}
        assert {line.split(" | ")[0][2:]: line.split("**")[1] for line in lines} == primary
    else:
        cells = [cell for line in lines for cell in line.split("|")[2 if which == "tally" else 3 : -1]]
        counts = [int(cell.split()[0].rstrip(":")) for cell in cells if cell.strip()]
        assert sum(counts) == len(claims)
        assert len(lines) == (3 if which == "tally" else len({row["recipe"] for row in claims}))


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("laptop/rivals/verdicts.json::b::ours::.2f", "no claim 'b'"),
        ("laptop/rivals/verdicts.json::a::ci_lo::.2f", "None can't be written as '.2f'"),
        ("laptop/rivals/verdicts.json::a::ours::twice .2f", "can't be written as 'twice .2f'"),
        ("laptop/rivals/data.csv::panel=loss::value::.2f", "2 rows are panel=loss"),
        ("laptop/rivals/data.csv::panel=FLOPs::value::.2f", "one with a value"),
        ("laptop/nothing/data.csv::panel=FLOPs::value::.2f", "is missing"),
        ("recipes/paper.yaml::table-9/a/b::value::.2f", "'table-9/a/b' is unknown"),
        ("laptop::scale::cost::d", "field 'cost' is unknown"),
        ("laptop/rivals/data.csv::what=dense::panel::.2f", "'loss' can't be written as '.2f'"),
        ("laptop/rivals/data.csv::what=hash::panel::table", "no row is what=hash"),
        ("laptop/rivals/data.csv::what=stem::panel;size::table", "column 'size' is unknown"),
        ("laptop/rivals/data.csv::what=stem::panel .1f::table", "can't be a table: Unknown format code 'f'"),
        ("docs/nothing.csv::what=stem::panel::table", "docs/nothing.csv is missing"),
        ("a::b", "is no marker"),
        ("nope::tally", "scale 'nope' is unknown"),
        ("laptop/rivals/data.csv::loss::value::.2f", "0 rows are loss"),
        (
            "laptop/rivals/verdicts.json::a::seeds::d-->3 <!--laptop/rivals/verdicts.json::a::seeds::d",
            "1 lack their end",
        ),
    ],
)
def test_a_marker_that_asks_for_nothing_is_an_error_and_writes_nothing(results, tmp_path, monkeypatch, source, words):
    monkeypatch.chdir(ROOT)
    page = tmp_path / "page.md"
    page.write_text(f"<!--laptop/rivals/verdicts.json::a::seeds::d-->4<!--/--> <!--{source}-->1<!--/-->")
    before = page.read_text()
    with pytest.raises(UserError, match=re.escape(words)):
        render(results, (page,))
    assert page.read_text() == before
