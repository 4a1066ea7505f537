"""The report: what is printed is what its Markdown and figures say, and the committed PDF is of today's."""

import re

import pytest

from stemrepro.common.errors import UserError
from stemrepro.report import pdf as printing
from stemrepro.report.browser import chromium
from tests.conftest import ROOT

SVG = '<svg xmlns="http://www.w3.org/2000/svg" width="90pt" height="50pt" viewBox="0 0 90 50"><rect width="90" height="50"/></svg>'
TEXT = """# A & B

One <!--laptop::scale::runs::d-->367<!--/--> run.

![A picture](figure.svg)

*What it draws.*

| claim | ours |
|---|--:|
| <!--laptop::tally-->x<!--/--> | 0.2 |
"""


@pytest.fixture
def source(tmp_path):
    (tmp_path / "figure.svg").write_text(SVG)
    (tmp_path / "report.md").write_text(TEXT)
    return tmp_path / "report.md"


def title(html: str) -> str:
    return re.search(r"<title>(.*)</title>", html)[1]


def test_the_page_holds_text_tables_and_figures(source):
    html = printing.page(source)
    assert "<p>One 367 run.</p>" in html
    assert "<!--" not in html
    assert '<figure><img src="data:image/svg+xml;base64,' in html
    assert '<p class="caption">What it draws.</p>' in html
    assert re.search(r"<td>x</td>\s*<td [^>]*>0.2</td>", html)
    assert title(html).startswith("A &amp; B, source ")


def test_the_title_tells_one_text_and_figure_from_another(source):
    first = title(printing.page(source))
    assert title(printing.page(source)) == first
    (source.parent / "figure.svg").write_text(SVG.replace("90", "91"))
    second = title(printing.page(source))
    source.write_text(TEXT.replace("0.2", "0.3"))
    assert len({first, second, title(printing.page(source))}) == 3


@pytest.mark.parametrize(
    ("change", "words"),
    [((("# A", "A"),), "doesn't begin with a heading"), ((("figure.svg", "figur.svg"),), "figur.svg is to be printed")],
)
def test_what_can_not_be_printed_is_named(source, change, words):
    for old, new in change:
        source.write_text(source.read_text().replace(old, new))
    with pytest.raises(UserError, match=words):
        printing.page(source)
    with pytest.raises(UserError, match=r"none\.md can't be read"):
        printing.page(source.with_name("none.md"))


def test_equal_pages_give_equal_bytes(source):
    try:
        with chromium():
            pass
    except UserError as reason:
        pytest.skip(str(reason))
    before = printing.write_pdf(source).read_bytes()
    assert before.startswith(b"%PDF")
    assert printing.write_pdf(source).read_bytes() == before
    assert title(printing.page(source)).replace("&amp;", "&").encode() in before


def test_the_committed_report_is_printed_from_todays_text_and_figures():
    """Else 'stemrepro print' brings it up to date."""
    pdf = (ROOT / "docs/report.pdf").read_bytes()
    assert title(printing.page(ROOT / "docs/report.md")).encode() in pdf
    assert 6 <= len(re.findall(rb"/Type /Page\b", pdf)) <= 10
