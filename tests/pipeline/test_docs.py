"""Pages are what their templates and the results say, and functions write every digit of findings and captions."""

import json
import re
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from stemrepro.common.errors import UserError
from stemrepro.pipeline.docs import Numbers, render, write_pages
from tests.conftest import ROOT
from tests.report.made_up import row

NAMES = re.compile(r"1/[23]|125M|0\.6B|Qwen2\.5 7B|Table \d|Fig\. \d\w?|350M|\b1B\b|N\(0, 1\)|95%|95th|Gemma 3n")
"""Names with digits that are no results: of arms, the paper's items and models, a distribution, an interval."""
EXPRESSION = re.compile(r"\{\{.*?\}\}|\{%.*?%\}")


def loose(text: str) -> list[str]:
    """Numbers of a template that no function writes, with their surroundings."""
    for pattern in (EXPRESSION.pattern, r"`[^`]*`", r"\]\([^)]*\)", NAMES.pattern):
        text = re.sub(pattern, "", text, flags=re.DOTALL)
    return [text[max(0, match.start() - 30) : match.end() + 10] for match in re.finditer(r"\d[\d.,]*", text)]


@pytest.fixture(scope="module")
def rendered():
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        return render(Path("results"))


def test_pages_are_what_templates_and_results_say(rendered):
    """Else 'stemrepro docs' brings them up to date."""
    assert Path("README.md") in rendered
    assert {page: (ROOT / page).read_text() for page in rendered} == rendered


def test_a_page_says_where_it_is_edited(rendered):
    for page, text in rendered.items():
        assert re.findall("<!--.*?-->", text) == [f"<!-- generated from docs/src/{page.name}.j2: edit there -->"]
        assert text.splitlines()[1].startswith("<!--")
    generated = [path for path in (ROOT / "docs").glob("*.md") if "<!-- generated" in path.read_text()]
    assert {path.relative_to(ROOT) for path in generated} == rendered.keys() - {Path("README.md")}


@pytest.mark.parametrize(
    ("page", "first", "last", "expressions"),
    [("README.md", "\n## What we found\n", "\n## What next?\n", 15), ("results.md", "\n## ", None, 100)],
)
def test_no_number_in_findings_and_captions_is_loose(page, first, last, expressions):
    text = (ROOT / f"docs/src/{page}.j2").read_text()
    start = text.index(first)
    findings = text[start : text.index(last) if last else None]
    captions = re.findall(r"\)\n\n\*([^*\n].*?)\*\n\n", text, flags=re.DOTALL)
    assert captions
    assert loose("STEM 1/3 shrinks to 0.18 nats (`d_ff` 64)") != []
    assert len(EXPRESSION.findall(findings)) > expressions
    numbered = re.sub(r"^(## )?\d\. ", "", findings, flags=re.MULTILINE)
    assert [number for part in (numbered, *captions) for number in loose(part)] == []


OTHERS = {".venv", "node_modules"}
MARKDOWN = sorted(path for path in ROOT.rglob("*.md") if not OTHERS & {*path.relative_to(ROOT).parts})


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


@pytest.mark.parametrize("path", [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))])
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


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A folder with results of one recipe and a table in docs/, in which a template is to be rendered."""
    folder = tmp_path / "results/laptop/rivals"
    folder.mkdir(parents=True)
    numbers = {"ours": -0.4567, "ci_low": -0.5, "ci_high": -0.25, "ci99_low": 0.125, "seeds": 5}
    nothing = dict.fromkeys(("ours", "ci_low", "ci_high", "ci99_low"))
    rows = [row("a", "supported", **numbers), row("unmeasured", "undecided", **nothing)]
    (folder / "verdicts.json").write_text(json.dumps(rows))
    (folder / "data.csv").write_text(
        "panel,what,x,value,ci_low,ci_high\nloss,dense,35.99937,3.14159,3,3.5\nloss,stem,2.0,2,,\nFLOPs,stem,2.5,,,\n"
        "estimates,b,,0.25,0.125,0.5\nestimates,never,,,,\nestimates,computed,,7,,\n"
    )
    (tmp_path / "docs/src").mkdir(parents=True)
    (tmp_path / "docs/kills.csv").write_text("aimed,died_after,steps_lost\nwhile saving,19,3\nat random,25,9\n")
    (tmp_path / "recipes").symlink_to(ROOT / "recipes")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def written(template: str) -> str:
    """What a template renders to, below the lines that every page has."""
    Path("docs/src/a.md.j2").write_text(f"# A\n{template}\n")
    return render(Path("results"))[Path("docs/a.md")].partition("edit there -->\n")[2].removesuffix("\n")


KILLS = "| aimed | steps lost |\n| --- | --: |\n| while saving | 3.0 |\n| at random | 9.0 |"


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ('effect("laptop/rivals/a")', "-0.46 (-0.50 to -0.25)"),
        ('effect("laptop/rivals/a") | number', "-0.46"),
        ('effect("laptop/rivals/a") | interval', "-0.50 to -0.25"),
        ('effect("laptop/rivals/a") | minus | both(".3f")', "0.457 (0.250 to 0.500)"),
        ('effect("laptop/rivals/a", "seeds") | number(".0f")', "5"),
        ('effect("laptop/rivals/b")', "0.25 (0.12 to 0.50)"),
        ('verdict("laptop/rivals/a")', "supported"),
        ('data("laptop/rivals", what="dense")', "3.14 (3.00 to 3.50)"),
        ('data("laptop/rivals", x=36)', "3.14 (3.00 to 3.50)"),
        ('data("laptop/rivals", what="dense") | fewer | both(".1%")', "95.7% (95.0% to 97.0%)"),
        ('data("docs/kills.csv", "steps_lost", died_after=25) | number(".0f")', "9"),
        ('data("laptop/rivals", what="dense") - data("laptop/rivals", what="stem", panel="loss")', "1.14"),
        ('cell("table-3-1b/dense/average")', "55.82"),
        ('scale("laptop", "tokens") | millions', "0.82"),
        ('scale("paper-1b", "batch") | number(".0f")', "512"),
        (  # by hand: five tables of 128,256 rows of 8,192 numbers
            'tables("third", "llama-3.2-1b")',
            "| shape | dense | tables | dense in AdamW | tables in AdamW | rows of a token |\n"
            "|---|--:|--:|--:|--:|--:|\n"
            "| llama-3.2-1b | 1.50B | 5.25B | 24 GB | 84 GB | 82 kB |",
        ),
        ('table("docs/kills.csv", "aimed | steps_lost .1f")', KILLS),
    ],
)
def test_what_an_expression_writes(project, expression, words):
    assert written(f"before {{{{ {expression} }}}} after") == f"before {words} after"


def test_a_tally_counts_every_claim(project, catalog):
    (project / "results/laptop/rivals/data.csv").unlink()
    Path("docs/src/a.md.j2").write_text('# A\n{{ tally("laptop") }}')
    lines = render(ROOT / "results")[Path("docs/a.md")].splitlines()[4:]
    lines = [line for line in lines if line.startswith("|")]
    counts = [re.findall(r"\d+", cell) for line in lines for cell in line.split("|")[2:-1] if cell.strip()]
    assert sum(int(found[0]) for found in counts) == sum(len(one.claims) for one in catalog.recipes.values())
    assert len(lines) == 3


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ('{{ effect("laptop/rival/a") }}', "recipe 'laptop/rival' is unknown; did you mean 'laptop/rivals'?"),
        ('{{ effect("laptop/rivals/a", "ci99_low") | interval }}', "0.125 has no interval"),
        ('{{ data("laptop/nothing", panel="loss") }}', "results/laptop/nothing/data.csv is missing"),
        ('{{ data("laptop/rivals", what="dens") }}', "what 'dens' is unknown; did you mean 'dense'?"),
        ('{{ data("laptop/rivals", panel="loss") }}', "2 rows of laptop/rivals are {'panel': 'loss'}: choose by what"),
        ('{{ cell("table-2/midtraining_tokens/350m") }}', "the number is NaN"),
        ('{{ effect("laptop/rivals/a") | twice }}', "No filter named 'twice'"),
        ("{{ claim( }}", "unexpected '}'"),
    ],
)
def test_a_fault_of_a_template_is_named_with_its_line(project, template, words):
    Path("docs/src/a.md.j2").write_text("# A\n\nfine\n")
    Path("docs/src/b.md.j2").write_text(f"# B\n\nbefore {template} after\n")
    with pytest.raises(UserError, match=rf"^docs/src/b\.md\.j2:3: .*{re.escape(words)}"):
        write_pages(Path("results"))
    assert list(Path("docs").glob("*.md")) == []


def test_pages_that_are_up_to_date_are_left_alone(project):
    Path("docs/src/README.md.j2").write_text('# R\n{{ verdict("laptop/rivals/a") }}\n')
    assert write_pages(Path("results")) == [Path("README.md")]
    assert write_pages(Path("results")) == []
    page = "# R\n<!-- generated from docs/src/README.md.j2: edit there -->\nsupported\n"
    assert Path("README.md").read_text() == page


def test_what_the_paper_has_in_another_measure_stands_at_a_claim_that_is_there():
    numbers = Numbers(ROOT / "results")
    assert "| +13 points (1B) |" in numbers.compared("laptop", {"needle/third-long": "+13 points (1B)"})
    with pytest.raises(UserError, match="no claim of the paper is called needle/longer"):
        numbers.compared("laptop", {"needle/longer": "+13 points"})
