"""The pages of made-up verdicts, as files and in a headless browser as a reader sees index.html."""

import csv
import json
import re
import shutil
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe

from stemrepro.common.errors import UserError
from stemrepro.config.questions import read_questions
from stemrepro.config.recipe import metric_text
from stemrepro.measures.catalog import load
from stemrepro.report.leaderboard import COLUMNS
from stemrepro.report.pages import caption, every_row, write_pages
from stemrepro.verdicts.rule import VERDICTS
from tests.browser import chromium
from tests.conftest import ROOT
from tests.report.made_up import row

SVG = '<svg xmlns="http://www.w3.org/2000/svg" width="533pt" height="417pt" viewBox="0 0 533 417"/>'
MEMORY = "token_ladder/over-bigram-table"


def write_recipe(folder: Path, rows: list[dict]) -> None:
    """Make-believe results of a recipe."""
    folder.mkdir(parents=True)
    (folder / "verdicts.json").write_text(json.dumps(rows))
    (folder / "figure.svg").write_text(SVG)
    ranks = [f"{panel},dense,FLOPs,1,0,2,5" for panel in COLUMNS]
    printed = [f"estimates,{name},,1,,," for name in load().recipes["paper_audit"].estimates]
    (folder / "data.csv").write_text("\n".join(["panel,what,x,value,ci_low,ci_high,count", *ranks, *printed]))


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with recipes and results: every claim of the published scales, the verdicts in turn."""
    folder = tmp_path_factory.mktemp("pages")
    shutil.copytree(ROOT / "recipes", folder / "recipes")
    (folder / "docs").symlink_to(ROOT / "docs")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        catalog = load()
        for scale in [name for name, one in catalog.scales.items() if one.scoreboard == "results"]:
            for name, recipe in catalog.at(scale).recipes.items():
                rows = [
                    row(key, VERDICTS[n % 4], scale=scale, origin=claim.origin, metric=metric_text(claim.metric))
                    for n, (key, claim) in enumerate(recipe.claims.items())
                ]
                rows += [row("own", "supported", differences=[0.05, 0.15])] if name == "rivals" else []
                write_recipe(folder / "results" / scale / name, rows)
        write_pages(folder / "results")
    return folder / "results"


@pytest.fixture
def project(made, tmp_path, monkeypatch):
    """A copy of it that a test may change."""
    shutil.copytree(made.parent, tmp_path, dirs_exist_ok=True, symlinks=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "results"


def edit(path: Path, **fields: object) -> None:
    """Change the first claim of a verdicts.json."""
    first, *others = json.loads(path.read_text())
    path.write_text(json.dumps([first | fields, *others]))


def test_a_question_has_its_word_its_number_and_a_page_with_its_claims(project):
    (project / "questions/gone.md").write_text("a question of yesterday")
    edit(project / "laptop/training_stability/verdicts.json", sentence="A | sentence, <i>.")
    write_pages(project)
    assert {path.stem for path in project.glob("questions/*")} == {*read_questions(load()), "others"}
    line = "| [Is STEM more than a memory of the last token?](questions/more-than-memory.md) | **"
    assert line in (project / "README.md").read_text()
    page = (project / "questions/other-memories.md").read_text()
    assert page.startswith(
        "# Is STEM better than other memories and sparse layers?\n\n**partly**. Margin by which STEM full "
    )
    assert "pairs are ahead: +0.100 (+0.050 to +0.150) nats/token: " in page
    assert "from 2 to 286 tokens per parameter?](../ladder/token_ladder/figure.svg)" in page
    assert (
        f"<br>[{MEMORY}](../ladder/token_ladder/figure.svg): dense against stem-full, loss: prose | our control |"
        in page
    )
    every = "".join(path.read_text() for path in project.glob("questions/*"))
    assert "| A \\| sentence, &lt;i>.<br>" in every  # no column, no markup
    others = (project / "questions/others.md").read_text()
    assert "rivals/own" in others
    assert "\n\n**-**. " in others  # none of them decides anything
    assert "| number | printed | computed | deviation |" in (project / "questions/arithmetic.md").read_text()


def test_every_claim_stands_once_on_every_page(project):
    rows = every_row(None, project)
    page, pages = ((project / "index.html").read_text(), "".join(p.read_text() for p in project.glob("questions/*")))
    for one in rows:
        assert page.count(f'id="{one["id"]}"') == pages.count(f"[{one['name']}]") == 1
    with (project / "claims.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert [f"{line['recipe']}/{line['claim']}" for line in lines] == [one["name"] for one in rows]
    own = next(line for line in lines if line["claim"] == "own")
    told = ("scale", "arms", "paper", "paper_confidence", "ours", "ci_low", "differences", "verdict")
    shown = "laptop|dense stem-full|0.05|figure|0.1|0.05|0.05 0.15|supported"
    assert "|".join(own[name] for name in told) == shown
    assert "because &lt;b&gt;" in page  # a reason is no markup


def test_a_scale_has_pages_of_its_own(project):
    """They tell of its results alone; those of the published scales stay."""
    before = {path: path.read_bytes() for path in project.rglob("*.*") if path.is_file()}
    scale = project.parent / "recipes/scales/larger.yaml"
    scale.write_text("inherits: laptop\nscoreboard: results/larger\n")
    shutil.copytree(project / "laptop", project / "larger")
    edit(project / "larger/rivals/verdicts.json", scale="larger", sentence="Larger.")
    assert write_pages(project, "larger") == project / "larger"
    page = (project / "larger/index.html").read_text()
    assert "Larger." in page
    assert "token_ladder" not in page
    assert "(rivals/figure.svg)" in (project / "larger/README.md").read_text().replace("../larger/", "")
    write_pages(project)
    assert {path: path.read_bytes() for path in before} == before
    with pytest.raises(UserError, match="scale 'lapto' is unknown; did you mean 'laptop'"):
        write_pages(project, "lapto")


def test_missing_verdicts_and_figures_are_named(project):
    for file in ("figure.svg", "verdicts.json"):
        (project / "laptop/cost_model" / file).unlink()
        with pytest.raises(UserError, match=rf"cost_model/{file} is missing; 'make figures SCALE=laptop'"):
            write_pages(project)


def test_captions_say_what_is_drawn_and_how_many_seeds(catalog):
    rows = [row("a", "supported"), row("b", "supported", seeds=3)]
    words = caption("mid_training", catalog.recipes["mid_training"], rows)
    assert words.startswith("Mid-training: leads over dense before and ")
    assert "over 3 to 5 seeds" in words
    assert caption("paper_audit", catalog.recipes["paper_audit"], rows).endswith("no chance, no seeds.")


def test_links_of_markdown_lead_to_files(made):
    for path in (made / "README.md", *made.glob("questions/*.md")):
        links = re.findall(r"\]\(([^)]+)\)", path.read_text())
        assert links
        assert [link for link in links if not (path.parent / link).exists()] == []


@pytest.fixture(scope="module")
def browser():
    with chromium() as browser:
        yield browser


@pytest.fixture
def page(browser, made):
    """index.html, opened from the file system without a network; errors and requests are collected."""
    page = browser.new_page(viewport={"width": 1280, "height": 900}, offline=True)
    page.problems, page.requests = [], []
    page.on("console", lambda message: page.problems.append(message.text) if message.type != "log" else None)
    page.on("pageerror", lambda error: page.problems.append(str(error)))
    page.on("request", lambda request: page.requests.append(request.url))
    page.goto(f"file://{made}/index.html")
    yield page
    page.close()


def open_all(page) -> None:
    page.eval_on_selector_all("details", "all => { for (const part of all) part.open = true; }")


def shown(page) -> list[str]:
    return page.eval_on_selector_all(".claim", "all => all.filter(one => one.checkVisibility()).map(one => one.id)")


def test_opens_without_network_and_errors(page, made):
    open_all(page)
    page.eval_on_selector_all("img", "all => { for (const one of all) one.loading = 'eager'; }")
    page.wait_for_function("[...document.images].every(one => one.complete && one.naturalWidth > 0)")
    assert page.problems == []
    assert [url for url in page.requests if not url.startswith((f"file://{made}/", "data:"))] == []
    assert len(shown(page)) == page.locator(".claim").count() > 70


def test_links_lead_to_files_that_a_forge_shows(page):
    links = set(page.eval_on_selector_all("a", "all => all.map(one => one.href)"))
    inside = {link.partition("#")[2] for link in links if link.startswith(f"{page.url}#")}
    files = {Path(link.removeprefix("file://")) for link in links if link.startswith("file:") and "#" not in link}
    assert len(inside) > 90
    assert [name for name in inside if not page.evaluate("id => document.getElementById(id) !== null", name)] == []
    assert [str(path) for path in files if not path.resolve().is_file()] == []
    assert {path.suffix for path in files} == {".md", ".svg", ".csv", ".json", ".yaml"}
    home = page.url
    page.goto("about:blank")
    page.goto(f"{home}#ladder/{MEMORY}")
    page.wait_for_function("document.getElementById('other-memories').open")  # a link to a claim opens its question
    page.goto(f"{home}#experiment-rivals")
    page.wait_for_selector("#experiment-rivals img", state="visible")  # raises where none comes to be seen


def test_readable_at_the_width_of_a_phone(page):
    page.set_viewport_size({"width": 390, "height": 844})
    open_all(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.eval_on_selector_all(".claim > td", "all => Math.min(...all.map(one => one.clientWidth))") > 300
    sizes = "all => Math.min(...all.map(one => parseFloat(getComputedStyle(one).fontSize)))"
    assert page.eval_on_selector_all("main :not(svg, svg *)", sizes) >= 12


def barriers(page) -> list[str]:
    """What axe finds that bars the way seriously: rules and the elements that break them."""
    rules = [rule for rule in Axe().run(page).response["violations"] if rule["impact"] in ("serious", "critical")]
    return [f"{rule['id']}: {node['html']}" for rule in rules for node in rule["nodes"]]


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_nothing_bars_the_way(page, width, scheme):
    page.set_viewport_size({"width": width, "height": 900})
    page.emulate_media(color_scheme=scheme)
    open_all(page)
    assert barriers(page) == []
    page.eval_on_selector("#words", "one => { one.removeAttribute('aria-label'); one.placeholder = ''; }")
    assert [text.partition(":")[0] for text in barriers(page)] == ["label"]  # it would have been seen


def test_claims_are_found_by_word_name_verdict_and_origin(page, made):
    every = page.locator(".claim").count()
    assert shown(page) == []  # questions are closed
    page.fill("#words", "over-bigram-table token_LADDER")
    assert shown(page) == [f"ladder/{MEMORY}"]
    assert page.locator(".question:visible").count() == 1
    assert page.inner_text("#count") == f"1 of {every} claims"
    page.fill("#words", "table 5")
    assert {name.split("/")[1] for name in shown(page)} <= {"paper_audit"}
    page.fill("#words", "overnight")
    assert page.locator("#nothing").is_visible()
    page.fill("#words", "")
    page.select_option("#verdict", "contradicted")
    page.select_option("#origin", "paper")
    rows = [row for path in made.glob("*/*/verdicts.json") for row in json.loads(path.read_text())]
    left = [row["claim"] for row in rows if (row["verdict"], row["origin"]) == ("contradicted", "paper")]
    assert sorted(name.split("/")[2] for name in shown(page)) == sorted(left) != []
    page.select_option("#verdict", "")
    page.select_option("#origin", "")
    assert (shown(page), page.locator(".question:visible").count()) == ([], 21)
