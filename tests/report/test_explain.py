"""`stemrepro explain`: its numbers, steps and verdicts against the committed ones, claim by claim."""

import json
import re
import shutil
from html import unescape
from math import isclose

import numpy as np
import pytest
from typer.testing import CliRunner

from stemrepro.cli import app
from stemrepro.common.errors import UserError
from stemrepro.measures.base import measured
from stemrepro.measures.inputs import Inputs
from stemrepro.report import explain as explaining
from stemrepro.report.explain import explain, explained, find
from stemrepro.report.judging import judged
from stemrepro.report.results import verdict_rows
from stemrepro.report.verdicts import verdict_label
from stemrepro.verdicts.rule import INCONCLUSIVE, NOT_TESTABLE
from tests.conftest import ROOT

RESULTS, SCORES = ROOT / "results", ROOT / "scores"
COMMITTED = sorted(path.parent.relative_to(RESULTS).parts for path in RESULTS.glob("*/*/verdicts.json"))


def rows_of(scale: str, recipe: str) -> dict[str, dict]:
    return {row["claim"]: row for row in json.loads((RESULTS / scale / recipe / "verdicts.json").read_text())}


def some(wanted, kind: str = "greater") -> tuple[str, str, dict]:
    """Scale, recipe and row of the first committed claim of a kind for which `wanted` is true."""
    return next(
        (scale, recipe, row)
        for scale, recipe in COMMITTED
        for row in rows_of(scale, recipe).values()
        if row["kind"] == kind and wanted(row)
    )


def explanation(catalog, scale: str, recipe: str, row: dict, **folders) -> str:
    return explain(catalog, f"{recipe}/{row['claim']}", scale, **{"results": RESULTS, "scores": SCORES} | folders)


def equal(new: object, old: object) -> bool:
    """Numbers to a few of their last digits, which processors differ in; all else exactly."""
    if isinstance(new, float) and isinstance(old, float | int):
        return isclose(new, old, rel_tol=1e-4, abs_tol=2e-6)
    return new == old


def columns(text: str, name: str) -> np.ndarray:
    """The lines of the table that begin with a name [lines, settings]; - as NaN."""
    lines = re.findall(rf"^  {name} +((?:[-+\d][\d.]*(?: +|$))+)$", text, flags=re.M)
    return np.array([[float("nan" if cell == "-" else cell) for cell in line.split()] for line in lines])


@pytest.mark.slow
@pytest.mark.parametrize(("scale", "recipe"), COMMITTED)
def test_every_committed_claim(scale, recipe, catalog, monkeypatch):
    """Today's code gives the committed verdicts of the committed scores.

    An edit of a measure, a claim or the rule shows here unless its results are made anew ('make figures'). Steps end in
    the verdict, the table has its numbers, and no line is longer than 80 columns.
    """
    inputs = Inputs(recipe, catalog, scale, SCORES / scale)
    claims = judged(inputs, measured(inputs))
    monkeypatch.setattr(explaining, "measured", lambda _: None)
    monkeypatch.setattr(explaining, "judged", lambda *_: claims)
    rows = rows_of(scale, recipe)
    assert list(rows) == list(claims)
    for new in verdict_rows(scale, claims):
        old = rows[new["claim"]]
        changed = {field for field in old if field != "reason" and not equal(new[field], old[field])}
        assert changed == set(), new["claim"]
    for key, row in rows.items():
        text = explanation(catalog, scale, recipe, row)
        assert max(map(len, text.splitlines())) <= 80, text
        assert "BUT" not in text
        rule = text.partition("\nThe rule\n")[2].partition("\n\n")[0].splitlines()
        assert re.fullmatch(rf"  Verdict: {re.escape(verdict_label(row))}( \(as .*\))?", rule[-1]), key
        if row["kind"] in ("exact", "ordering") or row["ours"] is None:
            continue
        differences, means = columns(text, r"seed \d+"), columns(text, "mean")[0]
        assert np.nanmean(differences, axis=0) == pytest.approx(means, abs=2e-4)
        assert means[0] == pytest.approx(row["ours"], abs=1e-4)
        for bound, field in (("from", "ci_low"), ("to", "ci_high")):  # one seed, as at the smoke scale, has none
            wanted = float("nan") if row[field] is None else row[field]
            assert columns(text, bound)[0, 0] == pytest.approx(wanted, abs=1e-4, nan_ok=True)
        settings = [row[field] for field in ("tuned", "official_init") if row.get(field) is not None]
        assert means[1:] == pytest.approx(settings, abs=1e-4)


def test_the_page_holds_what_the_command_says(catalog, tmp_path):
    """Claim by claim, but for the commit and the minutes, which differ by machine."""
    scale, recipe, row = some(lambda row: row["ours"])
    rows, inputs = list(rows_of(scale, recipe).values()), Inputs(recipe, catalog, scale, SCORES / scale)
    page = explained(inputs, rows, judged(inputs, measured(inputs)), RESULTS)
    assert "{" not in re.sub(r"<style>.*</style>", "", page, flags=re.S)
    texts = dict(re.findall(r'<section id="([\w.-]+)">.*?<pre>(.*?)</pre>', page, flags=re.S))
    assert list(texts) == [one["claim"] for one in rows]
    assert re.findall(r'href="#([\w.-]+)"', page) == list(texts)
    command = explanation(catalog, scale, recipe, row)
    assert "made by commit" in command
    assert "made by commit" not in page
    text = unescape(texts[row["claim"]]).partition("  the commit stands in")[0]
    assert command.startswith(text)
    assert len(text) > 1000


def test_exact_claim_has_numbers_in_place_of_seeds(catalog):
    scale, recipe, row = some(lambda row: row["verdict"] == "contradicted", "exact")
    text = explanation(catalog, scale, recipe, row)
    assert f"computed {row['ours']:.6g}, the paper's {row['paper']['value']:g}, what counts" in text
    assert "2. Is the number the paper's? No:" in text
    assert "seed 0" not in text


def test_claim_that_cannot_be_tested_says_why(catalog):
    scale, recipe, row = some(lambda row: row["verdict"] == NOT_TESTABLE)
    text = " ".join(explanation(catalog, scale, recipe, row).split())
    assert f"1. Can it be tested here? No: {row['reason']} Verdict: {verdict_label(row)}" in text
    assert "2. " not in text.partition("The rule")[2].partition("Verdict")[0]


def test_cells_that_the_number_is_computed_from(catalog):
    text = explanation(catalog, *some(lambda row: row["paper"] and "ln " in row["paper"]["source"]))
    names = re.findall(r"^  cell ([\w.-]+/[\w.-]+/[\w.-]+): ([\d.]+)", text, flags=re.M)
    assert len(names) in (2, 4)
    assert all(catalog.paper.value(name) == float(value) for name, value in names)


def test_without_scores_the_committed_numbers_stand(catalog, tmp_path):
    scale, recipe, row = some(lambda row: row["ours"] and row["verdict"] != NOT_TESTABLE)
    text = " ".join(explanation(catalog, scale, recipe, row, scores=tmp_path).split())
    assert "these need the scores" in text
    assert f"ours {row['ours']:g}" in text
    assert f"verdicts.json says: {row['reason']} Verdict: {verdict_label(row)}" in text
    with pytest.raises(UserError, match=r"neither .* nor .*; run 'make reproduce RECIPE="):
        explanation(catalog, scale, recipe, row, scores=tmp_path, results=tmp_path)


@pytest.mark.parametrize("change", [{"verdict": INCONCLUSIVE}, {"ours": 7.0}], ids=str)
def test_another_verdict_or_number_than_the_committed_is_named(change, catalog, tmp_path):
    scale, recipe, row = some(lambda row: row["verdict"] == "reproduced")
    shutil.copytree(RESULTS / scale / recipe, tmp_path / scale / recipe)
    rows = rows_of(scale, recipe) | {row["claim"]: row | change}
    (tmp_path / scale / recipe / "verdicts.json").write_text(json.dumps(list(rows.values())))
    text = explanation(catalog, scale, recipe, row, results=tmp_path)
    assert "BUT verdicts.json" in text
    assert f"Verdict: {verdict_label(row)}" in text  # what the scores give


def test_names(catalog):
    keys = [key for recipe in catalog.recipes.values() for key in recipe.claims]
    one, several = (next(key for key in keys if (keys.count(key) == 1) == single) for single in (True, False))
    owner = next(name for name, recipe in catalog.recipes.items() if one in recipe.claims)
    assert find(catalog, one) == find(catalog, f"{owner}/{one}")
    owners = [name for name, recipe in catalog.recipes.items() if several in recipe.claims]
    for name, words in (
        (several, " or ".join(f"{name}/{several}" for name in owners)),
        (one[:-1], f"did you mean '{one}'"),
        (f"{owner}/{one}x", f"did you mean '{one}'"),
        (f"{owner}x/{one}", f"did you mean '{owner}'"),
        (owner, f"'{owner}' is a recipe"),
        ("table_design", "'table_design' is a recipe without claims, whose page lists its estimates"),
        ("rivals/over-jtok", "'over-jtok' is an estimate of recipe 'rivals', without a verdict; its page lists it"),
    ):
        with pytest.raises(UserError, match=re.escape(words)):
            find(catalog, name)


def test_scales(catalog):
    for name, recipe in catalog.recipes.items():
        default = "laptop" if "laptop" in (recipe.scales or ("laptop",)) else recipe.scales[0]
        if recipe.claims:
            assert find(catalog, f"{name}/{next(iter(recipe.claims))}")[2] == default
    elsewhere = next(name for name, recipe in catalog.recipes.items() if recipe.scales and "gpu" not in recipe.scales)
    with pytest.raises(UserError, match="isn't run at scale 'gpu'"):
        find(catalog, f"{elsewhere}/{next(iter(catalog.recipes[elsewhere].claims))}", "gpu")


def test_command(monkeypatch):
    monkeypatch.chdir(ROOT)
    scale, recipe, row = some(lambda row: row["ours"] and row["scale"] != "laptop")
    done = CliRunner().invoke(app, ["explain", f"{recipe}/{row['claim']}"])
    assert done.exit_code == 0
    assert row["sentence"] in " ".join(done.stdout.split())
    assert f"scores/{scale}/" in done.stdout
    assert re.search(rf"make reproduce RECIPE={recipe}\n(.*\n)+ +that is \d+ runs, about [\dhs ]+(min|s) ", done.stdout)
    wrong = CliRunner().invoke(app, ["explain", f"{recipe}/{row['claim']}x"])
    assert wrong.exit_code == 2
    assert "did you mean" in wrong.stderr
