"""`stemrepro explain`: its numbers, steps and verdicts against those of the page, claim by claim."""

import json
import re
from math import isclose

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from stemrepro.cli import app
from stemrepro.common.errors import UserError
from stemrepro.common.files import write_json
from stemrepro.measures.base import scores_of
from stemrepro.measures.catalog import load
from stemrepro.report.estimates import with_estimates
from stemrepro.report.evidence import judged, verdict_rows
from stemrepro.report.explain import explain, find
from tests.conftest import ROOT

RESULTS, SCORES = ROOT / "results", ROOT / "scores"
EVERY = sorted(path.parent.relative_to(RESULTS).parts for path in RESULTS.glob("*/*/verdicts.json"))
COMMITTED = [place for place in EVERY if not place[0].endswith("smoke")]  # git doesn't hold what these scales give
FEW = [place for place in COMMITTED if place[1] in ("rivals", "paper_audit", "training_stability", "knowledge_editing")]


def judged_anew(places, results):
    """What committed scores say: the folder has verdicts.json and data.csv."""
    catalog = load(ROOT / "recipes")
    for scale, recipe in places:
        scores = scores_of(recipe, catalog, scale, SCORES / scale)
        write_json(results / scale / recipe / "verdicts.json", verdict_rows(scale, judged(scores)))
        with_estimates(pd.DataFrame({"panel": []}), scores).to_csv(results / scale / recipe / "data.csv")
    return results


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return judged_anew(FEW, tmp_path_factory.mktemp("results"))


def rows_of(results, scale: str, recipe: str) -> dict[str, dict]:
    return {row["claim"]: row for row in json.loads((results / scale / recipe / "verdicts.json").read_text())}


def some(results, wanted, kind: str = "greater") -> tuple[str, str, dict]:
    """Scale, recipe and row of the first claim of a kind for which `wanted` is true."""
    return next(
        (scale, recipe, row)
        for scale, recipe in COMMITTED
        if (results / scale / recipe).exists()
        for row in rows_of(results, scale, recipe).values()
        if row["kind"] == kind and wanted(row)
    )


def explanation(catalog, results, scale: str, recipe: str, row: dict) -> str:
    return explain(catalog, f"{recipe}/{row['claim']}", scale, results, SCORES)


def equal(new: object, old: object) -> bool:
    """Numbers to a few of their last digits, which processors differ in; all else exactly."""
    if isinstance(new, float) and isinstance(old, float | int):
        return isclose(new, old, rel_tol=1e-4, abs_tol=2e-6)
    return new == old


def columns(text: str, name: str) -> np.ndarray:
    """The lines of the table that begin with a name [lines, settings]; - as NaN."""
    lines = re.findall(rf"^  {name} +((?:[-+\d][\d.]*(?: +|$))+)$", text, flags=re.M)
    return np.array([[float("nan" if cell == "-" else cell) for cell in line.split()] for line in lines])


@pytest.mark.parametrize(("scale", "recipe"), FEW)
def test_every_claim(scale, recipe, catalog, made):
    """Steps end in the verdict, the table has its numbers, and no line is longer than 80 columns."""
    for key, row in rows_of(made, scale, recipe).items():
        text = explanation(catalog, made, scale, recipe, row)
        assert max(map(len, text.splitlines())) <= 80, text
        rule = text.partition("\nThe rule\n")[2].partition("\n\n")[0].splitlines()
        size = [f"  Size: {row['size']}"] if row["size"] else []
        assert rule[-1 - len(size) :] == [f"  Verdict: {row['verdict']}", *size], key
        if row["kind"] == "exact" or row["ours"] is None:
            continue
        differences, means = columns(text, r"seed \d+"), columns(text, "mean")[0]
        assert differences[: row["seeds"], 0] == pytest.approx(row["differences"], abs=1e-4)
        assert np.nanmean(differences, axis=0) == pytest.approx(means, abs=2e-4)
        assert means[0] == pytest.approx(row["ours"], abs=1e-4)
        for level, field in ((95, "ci"), (99, "ci99")):
            for end, name in (("low", "from"), ("high", "to")):
                shown = columns(text, f"{level}% interval {name}")[0, 0]
                assert shown == pytest.approx(row[f"{field}_{end}"], abs=1e-4)
        assert (len(means) == 2) == ("own" in row["method"])
        assert row["reason"].split(": ")[-1] in " ".join(line.strip() for line in rule), key


@pytest.mark.slow
def test_todays_code_gives_the_committed_verdicts_and_estimates_of_the_committed_scores(tmp_path):
    """An edit of a measure, a claim or the rule shows here unless its results are made anew ('make figures')."""
    results = judged_anew(COMMITTED, tmp_path)
    for scale, recipe in COMMITTED:
        old, new = (rows_of(folder, scale, recipe) for folder in (RESULTS, results))
        assert list(old) == list(new)
        for key, row in old.items():
            changed = {field for field in row if field != "reason" and not equal(new[key].get(field), row[field])}
            assert changed == set(), f"{recipe}/{key}"
        before, after = (pd.read_csv(folder / scale / recipe / "data.csv") for folder in (RESULTS, results))
        before, after = (table[table["panel"] == "estimates"] for table in (before, after))
        before, after = (table.reindex(columns=["value", "ci_low", "ci_high"]).to_numpy() for table in (before, after))
        np.testing.assert_allclose(after, before, rtol=1e-4, atol=2e-6, err_msg=f"{scale}/{recipe}")


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
        (owner, f"'{owner}' is a recipe"),
        ("table_design/narrow", "'narrow' is an estimate of recipe 'table_design', without a verdict; see its data"),
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


def test_command(made, monkeypatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr("stemrepro.cli.results.RESULTS", made)
    scale, recipe, row = some(made, lambda row: row["ours"] and row["scale"] != "laptop")
    done = CliRunner().invoke(app, ["explain", f"{recipe}/{row['claim']}"])
    assert done.exit_code == 0
    assert row["sentence"] in " ".join(done.stdout.split())
    assert f"scores/{scale}, " in done.stdout
    assert re.search(rf"make reproduce RECIPE={recipe}\n(.*\n)* +that is \d+ runs, about [\dhs ]+(min|s) ", done.stdout)
    wrong = CliRunner().invoke(app, ["explain", f"{recipe}/{row['claim']}x"])
    assert wrong.exit_code == 2
    assert "did you mean" in wrong.stderr
