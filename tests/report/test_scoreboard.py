"""The page, in a headless browser as a reader sees it: no error, no request, filters, pictures, phone and print."""

import csv
import json
import re
import shutil

import pytest
from axe_playwright_python.sync_playwright import Axe

from stemrepro.common.errors import UserError
from stemrepro.config.questions import read_questions
from stemrepro.measures.catalog import load
from stemrepro.report import scoreboard
from stemrepro.report.scoreboard import write_scoreboard
from stemrepro.report.verdicts import read_verdicts, tally_table
from stemrepro.report.words import paper_items
from stemrepro.verdicts.rule import VERDICTS
from tests.browser import chromium
from tests.conftest import ROOT
from tests.report.made_up import row

SVG = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="533pt" height="417pt" viewBox="0 0 533 417">'
    '<rect width="533" height="417"/></svg>'
)


@pytest.fixture(scope="module")
def catalog(catalog):
    """With a second laptop."""
    return catalog.model_copy(update={"scales": catalog.scales | {"larger": catalog.scales["laptop"]}})


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """recipes/ and, for every recipe, one made-up claim of each verdict; validation_loss at a second scale too."""
    folder = tmp_path_factory.mktemp("scoreboard")
    shutil.copytree(ROOT / "recipes", folder / "recipes")
    (folder / "recipes/scales/larger.yaml").write_text((ROOT / "recipes/scales/laptop.yaml").read_text())
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        write_results(folder / "results")
    return folder


def write_results(results):
    """Made-up verdicts and figures, and their page."""
    for scale, names in (("laptop", load().at("laptop").recipes), ("larger", ["validation_loss"])):
        for name in names:
            folder = results / scale / name
            folder.mkdir(parents=True)
            rows = [row(f"{name}-{i}", verdict) for i, verdict in enumerate(VERDICTS)]
            rows[2] |= {
                "kind": "exact",
                "ci_low": None,
                "ci_high": None,
                "arms": [],
                "ours": 22.2798,
            }
            rows[0] |= {"size": "the paper's size"}
            rows[2] |= {"origin": "arithmetic"}
            rows[3] |= {"origin": "control", "sentence": f"Sentence of {name}-3. | <i>"}
            (folder / "verdicts.json").write_text(json.dumps(rows))
            (folder / "figure.svg").write_text(SVG)
    write_scoreboard("laptop", results)


@pytest.fixture
def project(made, tmp_path, monkeypatch):
    """A copy of it that a test may change."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "results"


def test_the_page_holds_every_claim_in_the_papers_order(project):
    page = (project / "index.html").read_text()
    names = list(load().at("laptop").recipes)
    places = [page.index(f"Sentence of {name}-0.") for name in names]
    assert places == sorted(places)
    for name in names:
        scales = 2 if name == "validation_loss" else 1
        assert [page.count(f"Sentence of {name}-{i}.") for i in range(4)] == [scales] * 4
    assert "because &lt;b&gt;" in page
    assert "22.2798 nats/token" in page
    assert "Table 2: setup" in page  # nothing tests it


def answering(project, name: str, **fields: object) -> dict[str, str]:
    """Write a verdict under a claim's own name, and return the pages that this makes, by file."""
    recipe, _, claim = name.partition("/")
    path = project / "laptop" / recipe / "verdicts.json"
    rows = json.loads(path.read_text())
    path.write_text(json.dumps([row(claim, "supported", sentence="A | sentence, <i>.", **fields), *rows]))
    write_scoreboard("laptop", project)
    return {path.name: path.read_text() for path in (*project.glob("*.*"), *project.glob("questions/*"))}


def test_a_question_has_its_word_its_number_and_a_page_with_its_claims(project):
    (project / "questions/gone.md").write_text("a question of yesterday")
    pages = answering(project, "training_stability/stem-less-rate-sensitive", origin="control")
    assert set(pages) == {"index.html", "README.md", "claims.csv", *(f"{key}.md" for key in read_questions(load()))}
    told = re.search(r"\| \[Does it train more stably\?\]\(questions/stability\.md\) \|.*", pages["README.md"])[0]
    assert "| **partly** | +0.100 (+0.050 to +0.150) nats/token |" in told
    assert pages["README.md"].count("**not tested** | - |") == len(read_questions(load())) - 1
    own = pages["stability.md"]
    assert own.startswith("# Does it train more stably?\n\n**partly**. +0.100 (+0.050 to +0.150) nats/token: ")
    assert "Decided by the paper's results: 1 not tested; our own questions: 1 yes, 1 not tested." in own
    assert "| A \\| sentence, &lt;i>.<br>`training_stability/stem-less-rate-sensitive`:" in own  # no column, no markup
    assert (
        "Not attempted: Training stability, by loss spikes and by short runs at ever higher learning rates: 3 claims."
        in own
    )
    page = pages["index.html"]
    assert page.count("A | sentence, &lt;i&gt;.") == 2  # under its question, and among all claims
    assert page.index('id="stability"') < page.index("A | sentence") < page.index('id="editing"')


def test_the_readme_lists_every_experiment(project):
    table = (project / "README.md").read_text()
    for name in load().at("laptop").recipes:
        assert f"[figure](laptop/{name}/figure.svg)" in table
    assert len(table.split()) < 1500


@pytest.mark.slow
def test_a_recipe_without_claims_leads_to_its_estimates(project):
    (project / "laptop/table_design/verdicts.json").write_text("[]")
    write_scoreboard("laptop", project)
    assert "[data with 17 estimates](laptop/table_design/data.csv)" in (project / "README.md").read_text()
    page = (project / "index.html").read_text().partition('<section id="table_design-laptop"')[2]
    page = page.partition("</section>")[0]
    assert 'href="laptop/table_design/data.csv">data, with 17 estimates without verdicts</a>' in page
    assert 'class="claims"' not in page


def test_claims_are_compared_with_the_ladders_last_rung(project):
    """The laptop's are at +0.1 (0.05 to 0.15) for dense less STEM full."""
    folder = project / "ladder/token_ladder"
    folder.mkdir(parents=True)
    rungs = "pair,dense - stem-full,2.4,0.2,0.1,0.3\npair,dense - stem-full,286,-0.3,-0.4,-0.2\n"
    (folder / "data.csv").write_text(f"panel,what,x,value,ci_low,ci_high\n{rungs}")
    write_scoreboard("laptop", project)
    assert re.search(
        r"<title>no effect up to [^<]*; at 2.4 \+0.2; at 286 -0.3</title>", (project / "index.html").read_text()
    )
    text = (project / "index.html").read_text()
    assert "after 286 tokens per parameter (ladder) -0.300 (-0.400 to -0.200): points the other way there" in text
    for page in ("index.html", "README.md"):
        text = (project / page).read_text()
        assert re.search(r"of the paper's results the same way 0, the other way [1-9]\d*, open", text)
    scale = project.parent / "recipes/scales/larger.yaml"
    scale.write_text(scale.read_text().replace("scoreboard: results", "scoreboard: results/larger"))
    shutil.copytree(project / "laptop", project / "larger", dirs_exist_ok=True)
    write_scoreboard("larger", project)  # a page without the ladder, for which DVC doesn't wait
    assert "(ladder)" not in (project / "larger/index.html").read_text()
    assert "at 286" not in (project / "larger/index.html").read_text()


def test_scales_of_a_claim_are_compared_with_each_other(project, catalog):
    """validation_loss was run at two; what has no interval there, or another unit, is not drawn."""
    name, path = "validation_loss", project / "larger/validation_loss/verdicts.json"
    rows = json.loads(path.read_text())
    rows[0] |= {"ours": 0.4, "ci_low": 0.3, "ci_high": 0.5, "scale": "larger"}
    rows[1] |= {"unit": "points", "scale": "larger"}
    path.write_text(json.dumps(rows))
    page = scoreboard.section(project, "laptop", name, catalog, project, {})
    rows = {one["claim"]: one for one in page["rows"]}
    assert "at scale larger +0.400 (+0.300 to +0.500) nats/token: supported" in rows[f"{name}-0"]["evidence"]
    assert "; at larger +0.4</title>" in rows[f"{name}-0"]["drawing"]
    assert "; at larger" not in rows[f"{name}-1"]["drawing"]
    assert "larger" not in rows[f"{name}-2"]["evidence"]  # computed
    assert "laptop" not in scoreboard.section(project, "laptop", "rivals", catalog, project, {})["rows"][0]["evidence"]


def test_what_could_not_be_tested_is_listed_by_reason():
    rows = [
        row("a", "undecided", reason="one"),
        row("b", "undecided", reason="two"),
        row("c", "undecided", reason="two"),
    ]
    groups = scoreboard.by_reason(rows)
    assert list(groups) == ["two", "one"]
    assert [one["claim"] for one in groups["two"]] == ["b", "c"]


def test_the_committed_page_is_small():
    """Without its figures, as a reader of claims loads it."""
    page = re.sub(r'"data:image/svg[^"]*"', "", (ROOT / "results/index.html").read_text())
    assert len(page.encode()) < 400_000


@pytest.mark.slow
def test_a_recipe_of_another_scale_stands_on_the_page_that_they_share(project):
    """The ladder's, which isn't run at the laptop's scale; its other recipes weren't run."""
    folder = project / "ladder/token_ladder"
    assert "token_ladder" not in (project / "README.md").read_text()
    folder.mkdir(parents=True)
    (folder / "verdicts.json").write_text(json.dumps([row("gap-shrinks-full", "undecided", scale="ladder")]))
    (folder / "figure.svg").write_text(SVG)
    before = len(scoreboard.every_row("laptop", project))
    write_scoreboard("laptop", project)
    assert 'id="token_ladder-ladder-gap-shrinks-full"' in (project / "index.html").read_text()
    assert "(ladder/token_ladder/figure.svg)" in (project / "README.md").read_text()
    assert len(scoreboard.every_row("ladder", project)) == len(scoreboard.every_row("laptop", project)) == before
    assert before == 1 + len(VERDICTS) * (len(load().at("laptop").recipes) + 1)


def test_claims_are_counted_by_whose_they_are(project, catalog):
    """A question of ours that comes out the other way is no contradiction of the paper."""
    rows = [row for path in project.glob("*/*/verdicts.json") for row in read_verdicts(path)]
    count = len(catalog.at("laptop").recipes) + 1
    lines = tally_table(rows)
    assert lines[2] == f"| the paper's results ({2 * count}) | {count} | {count} | 0 | 0 |"
    assert lines[3] == f"| the paper's arithmetic ({count}) | 0 | 0 | {count} | 0 |"
    assert lines[4] == f"| our own questions ({count}) | 0 | 0 | 0 | {count} model too small |"
    page, table = (project / "index.html").read_text(), (project / "README.md").read_text()
    assert all(line in table for line in lines)
    for text in (page, table):
        assert f"Sizes of the paper's {count} tested effects: the paper's size {count}," in text
    page = page.partition('<h2 class="all">')[2]
    assert page.count("our own questions:") == 3 * count  # in the contents, the figure's words and above the claims


@pytest.mark.parametrize(
    ("change", "words"),
    [(lambda r: r * 2, "has a claim twice"), (lambda r: {}, "holds no list of claims"),
     (lambda r: [r[0] | {"ours": "much"}], r"claim 'a'\.ours: .*'much'"),
     (lambda r: [r[0] | {"sentence": 3}], r"sentence: .*3"),
     (lambda r: [r[0] | {"verdict": "true"}], r"verdict: .*true"),
     (lambda r: [{}], r"claim 'None'\.claim: Field required")],
)  # fmt: skip
def test_verdicts_that_can_not_be_are_named(tmp_path, change, words):
    path = tmp_path / "verdicts.json"
    path.write_text(json.dumps([row("a", "supported")]))
    assert read_verdicts(path)[0]["claim"] == "a"
    path.write_text(json.dumps(change([row("a", "supported")])))
    with pytest.raises(UserError, match=words):
        read_verdicts(path)


def test_the_pages_folder_is_the_scales_own(project):
    """Whatever scale is planned: the larger scale's page is this test's laptop's."""
    scales = project.parent / "recipes/scales/larger.yaml"
    scales.write_text(scales.read_text().replace("scoreboard: results", "scoreboard: results/larger"))
    for name in load().at("laptop").recipes:
        shutil.copytree(project / "laptop" / name, project / "larger" / name, dirs_exist_ok=True)
    assert write_scoreboard("larger", project) == project / "larger"
    with pytest.raises(UserError, match="scale 'lapto' is unknown; did you mean 'laptop'"):
        write_scoreboard("lapto", project)


def test_every_local_link_leads_somewhere(project):
    """But data and provenance, which this test's made-up results lack."""
    page = (project / "index.html").read_text()
    links = {link for link in re.findall(r'href="([^"#]+)"', page) if not link.startswith(("https:", "data:"))}
    assert {"../recipes/cost_model.yaml", "../docs/verdicts.md", "laptop/cost_model/verdicts.json"} <= links
    for link in links:
        base = ROOT / "results" if link.startswith("../") else project
        if not link.endswith((".csv", "provenance.json")):
            assert (base / link).exists(), link


def test_equal_results_give_equal_bytes(project):
    before = (project / "index.html").read_bytes()
    write_scoreboard("laptop", project)
    assert (project / "index.html").read_bytes() == before


def test_missing_verdicts_and_figures_are_named(project):
    (project / "laptop/cost_model/figure.svg").unlink()
    with pytest.raises(UserError, match=r"cost_model/figure\.svg is missing"):
        write_scoreboard("laptop", project)
    (project / "laptop/paper_audit/verdicts.json").unlink()
    shutil.copy(project / "laptop/validation_loss/figure.svg", project / "laptop/cost_model/figure.svg")
    with pytest.raises(UserError, match=r"paper_audit/verdicts\.json is missing"):
        write_scoreboard("laptop", project)


def test_claims_as_data(project):
    with (project / "claims.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(scoreboard.every_row("laptop", project))
    first = next(r for r in rows if r["claim"] == "rivals-0")
    assert (first["recipe"], first["scale"], first["arms"], first["paper"], first["paper_confidence"]) == (
        "rivals",
        "laptop",
        "dense stem-full",
        "0.05",
        "figure",
    )
    assert float(first["ci_low"]) == 0.05


def test_captions_say_what_is_drawn_and_how_many_seeds(catalog):
    made = [row("a", "supported"), row("b", "supported", seeds=3)]
    caption = scoreboard.caption("mid_training", catalog.recipes["mid_training"], made)
    assert caption.startswith("Mid-training: leads over dense before and ")
    assert "(3 to 5 seeds)" in caption
    assert scoreboard.caption("paper_audit", catalog.recipes["paper_audit"], made).endswith("no chance, no seeds.")


@pytest.fixture(scope="module")
def browser():
    try:
        with chromium() as browser:
            yield browser
    except UserError as reason:
        pytest.skip(str(reason))


@pytest.fixture
def page(browser, made):
    """The page, opened from the file system at desktop width; errors and requests are collected."""
    page = browser.new_page(viewport={"width": 1200, "height": 900})
    page.problems, page.requests = [], []
    page.on(
        "console", lambda message: page.problems.append(message.text) if message.type in ("error", "warning") else None
    )
    page.on("pageerror", lambda error: page.problems.append(str(error)))
    page.on("request", lambda request: page.requests.append(request.url))
    page.goto(f"file://{made / 'results/index.html'}")
    yield page
    page.close()


def shown(page) -> list[str]:
    return page.eval_on_selector_all(".claim", "all => all.filter(c => !c.closest('[hidden]')).map(c => c.id)")


def test_no_error_and_no_request_but_for_figures_next_to_it(page, made):
    assert page.problems == []
    home = f"file://{made / 'results'}/"
    own, *figures = [url for url in page.requests if not url.startswith("data:")]
    assert own == f"{home}index.html"
    assert all(url.startswith(home) and url.endswith("/figure.svg") for url in figures)


def test_pictures_have_size_and_alternative_text(page, catalog):
    page.click("#open")
    images = page.eval_on_selector_all(
        "img", "all => all.map(i => [i.naturalWidth, i.naturalHeight, i.clientWidth, i.alt])"
    )
    assert all(width > 0 and height > 0 and drawn > 300 and alt for width, height, drawn, alt in images)
    of_recipes = [alt for *_, alt in images if "Its claims:" in alt]  # the others are those of questions
    assert len(of_recipes) == len(catalog.at("laptop").recipes) + 1


def test_filters_by_verdict_scale_and_words(page, catalog):
    every = shown(page)
    assert len(every) == 4 * (len(catalog.at("laptop").recipes) + 1)
    buttons = {verdict: page.locator(f"button[data-verdict='{verdict}']") for verdict in VERDICTS}
    one, other = VERDICTS.index("contradicted"), VERDICTS.index("undecided")
    buttons["contradicted"].click()  # alone
    assert buttons["undecided"].get_attribute("aria-pressed") == "false"
    assert shown(page) == [name for name in every if name.endswith(f"-{one}")]
    count = len(catalog.at("laptop").recipes) + 1
    told = (
        f"{count} of {2 * count} results of the paper's, 0 of {count} of its arithmetic, 0 of {count} questions of ours"
    )
    assert page.locator("#shown").inner_text() == told
    buttons["undecided"].click()  # both
    assert shown(page) == [name for name in every if name.endswith((f"-{one}", f"-{other}"))]
    buttons["contradicted"].click()  # not any more
    assert shown(page) == [name for name in every if name.endswith(f"-{other}")]
    buttons["undecided"].click()  # none would be left
    assert shown(page) == every
    page.select_option("#scale", "larger")
    assert {name.split("-")[1] for name in shown(page)} == {"larger"}
    assert page.eval_on_selector_all("#claims > section", "all => all.filter(s => s.offsetParent !== null).length") == 1
    page.select_option("#scale", "")
    page.select_option("#evidence", "computed")
    assert {name[-1] for name in shown(page)} == {"2"}
    page.select_option("#evidence", "")
    page.select_option("#origin", "control")
    assert {name[-1] for name in shown(page)} == {"3"}
    page.select_option("#origin", "")
    page.fill("#words", "cost_model-3 because")
    assert shown(page) == ["cost_model-laptop-cost_model-3"]


def test_what_is_chosen_stays_in_the_address_and_through_a_reload(page):
    page.locator("button[data-verdict='undecided']").click()
    page.select_option("#scale", "larger")
    page.fill("#words", "sentence")
    before, address = shown(page), page.url
    assert "scale=larger" in address
    assert 0 < len(before) < 5
    page.reload()
    assert (shown(page), page.url) == (before, address)
    page.click("#clear")
    assert "?" not in page.url
    assert len(shown(page)) == page.locator(".claim").count()
    assert page.problems == []


def test_a_table_of_the_paper_is_one_thing_to_look_for(page, catalog):
    page.fill("#words", "table 5")
    expected = {
        name for name, recipe in catalog.at("laptop").recipes.items() if "table 5" in paper_items(recipe.paper_item)
    }
    assert {name.split("-")[0] for name in shown(page)} == expected
    assert "contextual_reasoning" in expected
    page.fill("#words", "fig 5")  # the made-up claims have their number from Fig. 5b
    assert len(shown(page)) == page.locator(".claim").count()


def test_what_a_filter_opened_it_closes(page):
    page.locator("#rivals-laptop details.claims summary").click()
    page.fill("#words", "sentence of cost")
    assert page.eval_on_selector_all("details.claims", "all => all.every(part => part.open)")
    page.click("#clear")
    opened = page.eval_on_selector_all(
        "details.claims", "all => all.filter(p => p.open).map(p => p.closest('section').id)"
    )
    assert opened == ["rivals-laptop"]


def test_a_question_opens_to_its_claims_and_their_links_lead_there_again(browser, project):
    """Also where a filter hides the claim, though the address stays the same."""
    name = "training_stability/stem-less-rate-sensitive"
    answering(project, name)
    page = browser.new_page(viewport={"width": 1200, "height": 900})
    page.goto(f"file://{project}/index.html")
    claim = f"training_stability-laptop-{name.partition('/')[2]}"
    link = page.locator(f".entry a[href='#{claim}']")
    assert not link.is_visible()
    page.locator("#stability > summary").click()
    assert "says yes" in page.locator("#stability .entry").first.inner_text()
    link.click()
    assert claim in shown(page)
    page.select_option("#scale", "larger")
    assert claim not in shown(page)
    link.click()
    assert claim in shown(page)
    assert page.evaluate(f"document.getElementById('{claim}').getBoundingClientRect().top") < 300
    page.goto(f"file://{project}/README.md")  # a link from elsewhere
    page.goto(f"file://{project}/index.html#editing")
    assert page.eval_on_selector_all(".question", "all => all.filter(q => q.open).map(q => q.id)") == ["editing"]
    page.close()


def test_all_questions_stand_on_the_first_screen(browser, tmp_path, monkeypatch):
    """Of the committed results, at the size of a laptop's window."""
    monkeypatch.chdir(ROOT)
    for folder in (path.parent.parent for path in (ROOT / "results").glob("*/*/verdicts.json")):
        if not (tmp_path / folder.name).exists():
            (tmp_path / folder.name).symlink_to(folder)
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.goto(f"file://{write_scoreboard('laptop', tmp_path)}/index.html")
    bottoms = page.eval_on_selector_all(".question > summary", "all => all.map(q => q.getBoundingClientRect().bottom)")
    assert len(bottoms) == len(read_questions(load())) == 10
    assert max(bottoms) <= 900
    assert page.locator(".question > summary :is(.answer, .number) > b").count() == 2 * len(bottoms)
    assert page.locator(".question > summary svg").count() == len(bottoms)
    assert page.locator(".opened > figure img").count() == len(bottoms)
    page.close()


def test_no_hit_says_so_and_leads_back(page):
    page.fill("#words", "overnight")
    assert shown(page) == []
    assert page.locator("#nothing").is_visible()
    page.click("#again")
    assert len(shown(page)) == page.locator(".claim").count()
    assert not page.locator("#nothing").is_visible()


def test_claims_are_sorted_and_go_back_home(page):
    before = shown(page)
    page.select_option("#sort", "verdict")
    order = page.eval_on_selector_all("#sorted .claim", "all => all.map(c => c.dataset.verdict)")
    assert [VERDICTS.index(verdict) for verdict in order] == sorted(VERDICTS.index(verdict) for verdict in order)
    page.select_option("#sort", "")
    assert shown(page) == before
    assert page.locator("#sorted .claim").count() == 0


def test_a_link_to_a_claim_opens_and_lands_below_the_bar(page):
    page.set_viewport_size({"width": 1280, "height": 560})  # or the page ends before the claim is at its top
    page.fill("#words", "overnight")
    page.evaluate("location.hash = '#rivals-laptop-rivals-3'")
    page.wait_for_function("document.querySelector('#rivals-laptop details.claims').open")
    top = page.evaluate("document.getElementById('rivals-laptop-rivals-3').getBoundingClientRect().top")
    bar = page.evaluate("document.querySelector('.filters').offsetHeight")
    assert bar <= top <= bar + 40
    link = page.locator("#rivals-laptop-rivals-3 .here")
    assert link.get_attribute("href") == "#rivals-laptop-rivals-3"


def test_the_contents_name_every_section(page):
    links = page.eval_on_selector_all(".contents a", "all => all.map(a => a.getAttribute('href').slice(1))")
    assert links == page.eval_on_selector_all(
        "#claims > section[id]", "all => all.map(s => s.id).filter(id => !['nothing', 'sorted'].includes(id))"
    )


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out(page, scheme):
    """Contrast of text on its ground, 4.5 to 1 or more, after WCAG's formula."""
    page.emulate_media(color_scheme=scheme)
    page.click("#open")
    colours = page.evaluate(
        """names => names.map(name => {
            const element = document.querySelector("main " + name) || document.querySelector(name);
            const fill = one => getComputedStyle(one).backgroundColor;
            let ground = element;
            while (ground && fill(ground) === "rgba(0, 0, 0, 0)") ground = ground.parentElement;
            return [name, getComputedStyle(element).color, fill(ground || document.body)];
        })""",
        ["body", "small", "a", ".soft", ".claim p", ".claim small", "code", "button", "figcaption"],
    )

    def light(colour):
        parts = [int(n) / 255 for n in re.findall(r"\d+", colour)[:3]]
        linear = [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    for name, ink, ground in colours:
        bright, dim = sorted((light(ink), light(ground)), reverse=True)
        assert (bright + 0.05) / (dim + 0.05) >= 4.5, (name, ink, ground)


def test_works_at_phone_width(page):
    page.set_viewport_size({"width": 360, "height": 800})
    page.click("#open")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    widths = page.eval_on_selector_all(".claim > div", "all => all.map(d => d.clientWidth)")
    assert min(widths) > 250


def test_prints_every_claim_without_the_filters(page):
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.eval_on_selector_all("details", "all => all.every(part => part.open)")
    assert not page.locator(".filters").is_visible()
    assert len(shown(page)) == page.locator(".claim").count()
    assert len(page.pdf()) > 10_000


def barriers(page, part: str | None = None) -> list[str]:
    """What axe finds against a page, or a part of it: rules and the elements that break them."""
    rules = Axe().run(page, part).response["violations"]
    return [f"{rule['id']}: {node['html']}" for rule in rules for node in rule["nodes"]]


@pytest.mark.parametrize(("width", "scheme"), [(1200, "light"), (390, "dark")])
def test_nothing_bars_the_way(page, width, scheme):
    page.set_viewport_size({"width": width, "height": 900})
    page.emulate_media(color_scheme=scheme)
    page.click("#open")
    assert barriers(page) == []


def test_a_field_without_a_name_bars_the_way(page):
    page.evaluate("document.querySelector('#words').removeAttribute('aria-label')")
    page.evaluate("document.querySelector('#words').removeAttribute('placeholder')")
    assert any(barrier.startswith("label: ") for barrier in barriers(page, ".filters"))
