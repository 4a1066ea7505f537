"""`stemrepro explain`: its numbers, steps and verdicts against the committed ones, claim by claim."""

import json
import re
import shutil
from html import unescape

import numpy as np
import pytest
from typer.testing import CliRunner

from stemrepro.cli import app
from stemrepro.common.errors import UserError
from stemrepro.measures.base import measured
from stemrepro.measures.inputs import Inputs
from stemrepro.report import explain as explaining
from stemrepro.report.explain import explain, explained, find
from stemrepro.report.steps import judged, steps
from stemrepro.report.verdicts import word
from stemrepro.verdicts.contrast import Contrast
from stemrepro.verdicts.robustness import OWN_RATES
from stemrepro.verdicts.rule import INCONCLUSIVE, NOT_TESTABLE, Evidence, judge
from tests.conftest import ROOT

RESULTS, SCORES = ROOT / "results", ROOT / "scores"
COMMITTED = sorted(path.parent.relative_to(RESULTS).parts for path in RESULTS.glob("*/*/verdicts.json"))


def rows_of(scale: str, recipe: str) -> dict[str, dict]:
    return {row["claim"]: row for row in json.loads((RESULTS / scale / recipe / "verdicts.json").read_text())}


def some(wanted, kind: str = "greater") -> tuple[str, str, dict]:
    """Scale, recipe and row of the first committed claim of a kind that `wanted` likes."""
    return next(
        (scale, recipe, row)
        for scale, recipe in COMMITTED
        for row in rows_of(scale, recipe).values()
        if row["kind"] == kind and wanted(row)
    )


def told(book, scale: str, recipe: str, row: dict, **folders) -> str:
    return explain(book, f"{recipe}/{row['claim']}", scale, **{"results": RESULTS, "scores": SCORES} | folders)


def columns(text: str, name: str) -> np.ndarray:
    """The lines of the table that begin with a name [lines, settings]; - as nan."""
    lines = re.findall(rf"^  {name} +((?:[-+\d][\d.]*(?: +|$))+)$", text, flags=re.M)
    return np.array([[float("nan" if cell == "-" else cell) for cell in line.split()] for line in lines])


@pytest.mark.parametrize(("scale", "recipe"), COMMITTED)
def test_every_committed_claim(scale, recipe, book, monkeypatch):
    """Steps end in the committed verdict, the table has the committed numbers, and no line is longer than 80 columns."""
    found = judged(Inputs(recipe, book, scale, SCORES / scale))
    monkeypatch.setattr(explaining, "judged", lambda _: found)
    rows = rows_of(scale, recipe)
    assert set(rows) == set(found)
    for key, row in rows.items():
        text = told(book, scale, recipe, row)
        assert max(map(len, text.splitlines())) <= 80, text
        assert "BUT" not in text
        rule = text.partition("\nThe rule\n")[2].partition("\n\n")[0].splitlines()
        assert re.fullmatch(rf"  Verdict: {re.escape(word(row))}( \(as .*\))?", rule[-1]), key
        assert found[key].steps[-1].verdict == row["verdict"]
        assert not any(step.verdict for step in found[key].steps[:-1])
        if row["kind"] in ("exact", "ordering") or row["ours"] is None:
            continue
        differences, means = columns(text, r"seed \d+"), columns(text, "mean")[0]
        assert np.nanmean(differences, axis=0) == pytest.approx(means, abs=2e-4)
        assert means[0] == pytest.approx(row["ours"], abs=1e-4)
        for bound, field in (("from", "ci_low"), ("to", "ci_high")):  # one seed, as at the smoke scale, has none
            wanted = float("nan") if row[field] is None else row[field]
            assert columns(text, bound)[0, 0] == pytest.approx(wanted, abs=1e-4, nan_ok=True)
        settings = [row[field] for field in ("own_rate", "official_start") if row.get(field) is not None]
        assert means[1:] == pytest.approx(settings, abs=1e-4)


def test_the_page_holds_what_the_command_says(book, tmp_path):
    """Claim by claim, but for the commit and the minutes, which are another machine's business."""
    scale, recipe, row = some(lambda row: row["ours"])
    rows, inputs = list(rows_of(scale, recipe).values()), Inputs(recipe, book, scale, SCORES / scale)
    page = explained(inputs, rows, measured(inputs), RESULTS)
    assert "{" not in re.sub(r"<style>.*</style>", "", page, flags=re.S)
    told_there = dict(re.findall(r'<section id="([\w.-]+)">.*?<pre>(.*?)</pre>', page, flags=re.S))
    assert list(told_there) == [own["claim"] for own in rows]
    assert re.findall(r'href="#([\w.-]+)"', page) == list(told_there)
    command = told(book, scale, recipe, row)
    assert "made by commit" in command
    assert "made by commit" not in page
    own = unescape(told_there[row["claim"]]).partition("  the commit stands in")[0]
    assert command.startswith(own)
    assert len(own) > 1000


def made_up(rng: np.random.Generator) -> Evidence:
    kind = str(rng.choice(["greater", "equivalent", "not-better", "ordering"]))
    size, seeds = rng.choice([-0.2, -0.02, 0.0, 0.01, 0.05, 0.3]), rng.integers(2, 7)
    pairs = [
        size + rng.choice([0.002, 0.02, 0.1]) * rng.standard_normal(seeds)
        for _ in range(3 if kind == "ordering" else 1)
    ]
    control, transportable, primary, elsewhere = (bool(rng.random() < share) for share in (0.3, 0.7, 0.3, 0.3))
    contrasts = tuple(map(Contrast, pairs))
    return Evidence(
        kind, contrasts, 0.02, control=control, transportable=transportable, primary=primary,
        paper_effect=None if control else rng.choice([0.01, 0.05, 0.2, 2]),
        failed_precondition="at chance" if rng.random() < 0.05 else None, unmeasured="diverged" if rng.random() < 0.05 else None,
        elsewhere={OWN_RATES: tuple(c.reversed() for c in contrasts)} if elsewhere else {},
    )  # fmt: skip


def test_steps_end_where_the_rule_does():
    rng, seen = np.random.default_rng(0), set()
    for _ in range(400):
        family = [made_up(rng) for _ in range(4)]
        for number, result in enumerate(judge(family)):
            assert steps(family, number, "")[-1].verdict == result.verdict
            seen.add((family[number].kind, result.verdict))
    assert len(seen) == 18  # "not better" and equivalence know no direction


def test_answers_turn_with_the_sign():
    up = Contrast(np.array([0.049, 0.05, 0.051, 0.05]))
    there, back = (
        [(step.question, step.answer) for step in steps([Evidence("greater", (contrast,), 0.02)], 0, "")][3:]
        for contrast in (up, up.reversed())
    )
    assert there == [
        ("Does the lower bound exceed 0.02?", True),
        ("May the paper's size be expected here?", False),
        ("Does the lower bound exceed 0?", True),
    ]
    assert back == [
        ("Does the lower bound exceed 0.02?", False),
        ("Does the lower bound exceed 0?", False),
        ("Is the upper bound below 0?", True),
    ]


def test_numbers_of_a_step_are_the_interval():
    down = Contrast(np.array([-0.049, -0.05, -0.051, -0.05]))
    low, high = down.interval(0.10)
    step = steps([Evidence("greater", (down,), 0.02)], 0, "")[-1]
    assert step.numbers == f"{low:+.4f} to {high:+.4f} (90%)"
    assert step.numbers.count("-") == 2


def test_exact_claim_has_numbers_in_place_of_seeds(book):
    scale, recipe, row = some(lambda row: row["verdict"] == "contradicted", "exact")
    text = told(book, scale, recipe, row)
    assert f"computed {row['ours']:.6g}, the paper's {row['paper']['value']:g}, what counts" in text
    assert "2. Is the number the paper's? No:" in text
    assert "seed 0" not in text


def test_claim_that_cannot_be_tested_says_why(book):
    scale, recipe, row = some(lambda row: row["verdict"] == NOT_TESTABLE)
    text = " ".join(told(book, scale, recipe, row).split())
    assert f"1. Can it be tested here? No: {row['reason']} Verdict: {word(row)}" in text
    assert "2. " not in text.partition("The rule")[2].partition("Verdict")[0]


def test_cells_that_the_number_is_computed_from(book):
    text = told(book, *some(lambda row: row["paper"] and "ln " in row["paper"]["source"]))
    names = re.findall(r"^  cell ([\w.-]+/[\w.-]+/[\w.-]+): ([\d.]+)", text, flags=re.M)
    assert len(names) in (2, 4)
    assert all(book.paper.value(name) == float(value) for name, value in names)


def test_without_scores_the_committed_numbers_stand(book, tmp_path):
    scale, recipe, row = some(lambda row: row["ours"] and row["verdict"] != NOT_TESTABLE)
    text = " ".join(told(book, scale, recipe, row, scores=tmp_path).split())
    assert "these need the scores" in text
    assert f"ours {row['ours']:g}" in text
    assert f"verdicts.json says: {row['reason']} Verdict: {word(row)}" in text
    with pytest.raises(UserError, match=r"neither .* nor .*; run 'make reproduce RECIPE="):
        told(book, scale, recipe, row, scores=tmp_path, results=tmp_path)


@pytest.mark.parametrize("change", [{"verdict": INCONCLUSIVE}, {"ours": 7.0}], ids=str)
def test_another_verdict_or_number_than_the_committed_is_said(change, book, tmp_path):
    scale, recipe, row = some(lambda row: row["verdict"] == "reproduced")
    shutil.copytree(RESULTS / scale / recipe, tmp_path / scale / recipe)
    rows = rows_of(scale, recipe) | {row["claim"]: row | change}
    (tmp_path / scale / recipe / "verdicts.json").write_text(json.dumps(list(rows.values())))
    text = told(book, scale, recipe, row, results=tmp_path)
    assert "BUT verdicts.json" in text
    assert f"Verdict: {word(row)}" in text  # what the scores give


def test_names(book):
    keys = [key for recipe in book.recipes.values() for key in recipe.claims]
    one, several = (next(key for key in keys if (keys.count(key) == 1) == single) for single in (True, False))
    owner = next(name for name, recipe in book.recipes.items() if one in recipe.claims)
    assert find(book, one) == find(book, f"{owner}/{one}")
    having = [name for name, recipe in book.recipes.items() if several in recipe.claims]
    for name, words in (
        (several, " or ".join(f"{name}/{several}" for name in having)),
        (one[:-1], f"did you mean '{one}'"),
        (f"{owner}/{one}x", f"did you mean '{one}'"),
        (f"{owner}x/{one}", f"did you mean '{owner}'"),
        (owner, f"'{owner}' is a recipe"),
    ):
        with pytest.raises(UserError, match=re.escape(words)):
            find(book, name)


def test_scales(book):
    for name, recipe in book.recipes.items():
        own = "laptop" if "laptop" in (recipe.scales or ("laptop",)) else recipe.scales[0]
        assert find(book, f"{name}/{next(iter(recipe.claims))}")[2] == own
    elsewhere = next(name for name, recipe in book.recipes.items() if recipe.scales and "gpu" not in recipe.scales)
    with pytest.raises(UserError, match="isn't run at scale 'gpu'"):
        find(book, f"{elsewhere}/{next(iter(book.recipes[elsewhere].claims))}", "gpu")


def test_command(monkeypatch):
    monkeypatch.chdir(ROOT)
    scale, recipe, row = some(lambda row: row["ours"] and row["scale"] != "laptop")
    said = CliRunner().invoke(app, ["explain", f"{recipe}/{row['claim']}"])
    assert said.exit_code == 0
    assert row["sentence"] in " ".join(said.stdout.split())
    assert f"scores/{scale}/" in said.stdout
    assert re.search(rf"make reproduce RECIPE={recipe}\n(.*\n)+ +that is \d+ runs, about [\dhs ]+(min|s) ", said.stdout)
    wrong = CliRunner().invoke(app, ["explain", f"{recipe}/{row['claim']}x"])
    assert wrong.exit_code == 2
    assert "did you mean" in wrong.stderr
