"""docs/report.md as a PDF, printed by Chromium from one page of HTML that holds its figures."""

import base64
import re
from pathlib import Path

from markdown_it import MarkdownIt
from markupsafe import escape

from stemrepro.common.errors import UserError
from stemrepro.common.files import atomic_write, digest
from stemrepro.report.browser import chromium

STYLE = """
  @page { size: A4; margin: 18mm 19mm 17mm; }
  body { font: 9.6pt/1.42 "Source Serif 4", "DejaVu Serif", Georgia, serif; color: #1d2329; hyphens: auto; }
  h1 { font-size: 19pt; line-height: 1.2; margin: 0 0 6pt; }
  h2 { font-size: 12.5pt; margin: 14pt 0 4pt; break-after: avoid; }
  p, li { margin: 0 0 5pt; text-align: justify; orphans: 3; widows: 3; }
  ul { padding-left: 14pt; margin: 0; }
  code { font: 8.4pt "DejaVu Sans Mono", monospace; overflow-wrap: anywhere; }
  table { border-collapse: collapse; margin: 8pt 0; width: 100%; font-size: 7.9pt; line-height: 1.3; hyphens: none; }
  th { text-align: left; border-bottom: 0.8pt solid #1d2329; vertical-align: bottom; }
  th, td { padding: 2pt 5pt 2pt 0; }
  td:first-child { min-width: 44mm; }
  td { border-bottom: 0.3pt solid #b9c1c8; vertical-align: top; }
  tr, figure { break-inside: avoid; }
  figure { margin: 9pt 0 2pt; text-align: center; }
  figure img { max-width: 100%; max-height: 125mm; }
  .caption { font-size: 8.2pt; color: #4a545e; text-align: left; margin-bottom: 8pt; }
  table + .caption { margin-top: -4pt; }
  a { color: inherit; text-decoration: none; }
"""
FOOTER = (
    '<div style="font: 7px sans-serif; width: 100%; text-align: center; color: #666">'
    '<span class="pageNumber"></span> / <span class="totalPages"></span></div>'
)


def _inlined(found: re.Match[str], folder: Path) -> str:
    path = folder / found["path"]
    if path.suffix != ".svg" or not path.exists():
        raise UserError(f"{path} is to be printed and is no figure.svg that is there; run 'stemrepro analyse'")
    return f'src="data:image/svg+xml;base64,{base64.b64encode(path.read_bytes()).decode()}"'


def page(source: Path) -> str:
    """Return a Markdown file as HTML that is complete in itself; its title ends with a digest of all that is in it.

    Raises:
        UserError: it is missing, has no heading, or one of its figures is not there.
    """
    try:
        text = source.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{source} can't be read ({error})") from error
    if not (head := re.match(r"# (.+)\n", text)):
        raise UserError(f"{source} doesn't begin with a heading, '# Title'")
    body = (
        MarkdownIt("commonmark", {"html": True})
        .enable("table")
        .render(re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL))
    )
    body = re.sub(r"<p>(<img [^>]*>)</p>", r"<figure>\1</figure>", body)
    body = re.sub(r"<p><em>((?:(?!</?em>|<p>).)*)</em></p>", r'<p class="caption">\1</p>', body, flags=re.DOTALL)
    body = re.sub(r'src="(?P<path>[^":]+)"', lambda found: _inlined(found, source.parent), body)
    title = f"{escape(head[1])}, source {digest([STYLE, body])}"
    return f'<!doctype html>\n<html lang="en"><meta charset="utf-8"><title>{title}</title><style>{STYLE}</style>\n{body}</html>\n'


def write_pdf(source: Path) -> Path:
    """Print a Markdown file beside itself.

    Raises:
        UserError: see `page` and stemrepro.report.browser.
    """
    html, out = page(source), source.with_suffix(".pdf")
    with chromium() as browser:
        tab = browser.new_page()
        tab.set_content(html)
        pdf = tab.pdf(
            prefer_css_page_size=True,
            display_header_footer=True,
            header_template="<span></span>",
            footer_template=FOOTER,
        )
    # Else every print has other bytes: the day has no part in what is printed.
    atomic_write(out, re.sub(rb"/(CreationDate|ModDate) \(D:\d{14}", rb"/\1 (D:20000101000000", pdf))
    return out
