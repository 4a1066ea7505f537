"""The committed numbers: no interval of a share leaves its scale, and every mean is the mean of its seeds."""

import csv
import json
from collections.abc import Iterator

import pandas as pd
import pytest

from tests.conftest import ROOT

SHARES = {
    "atlas/knowledge_editing": {"success": 100, "recall": 100, "by relation": 100, "new": 1, "old": 1},
    "capacity/knowledge_capacity": {"share": 100},
    "laptop/benchmark_scores": {"accuracy": 100},
    "laptop/long_context_capacity": {"share touched": 1},
    "needle/needle": {"chosen": 100, "depth": 100},
    "recall/associative_recall": {"all": 100},
}
"""How a panel of shares begins, and its whole."""
DIFFERENCE = "accuracy - dense"
MOST = {"spill:rows": 50}
"""Metrics of shares over a constant, and how far above it a share can be."""


@pytest.mark.parametrize("place", SHARES)
def test_no_interval_of_a_share_leaves_its_scale(place):
    seen = set()
    for row in csv.DictReader((ROOT / "results" / place / "data.csv").open(newline="")):
        start = next((start for start in SHARES[place] if row["panel"].startswith(start)), None)
        if start and row["ci_low"] and row["panel"] != DIFFERENCE:
            low, mean, high = (float(row[column]) for column in ("ci_low", "value", "ci_high"))
            assert 0 <= low <= mean <= high <= SHARES[place][start], row
            seen.add(start)
    assert seen == set(SHARES[place])


def claims() -> Iterator[tuple[dict, list[float]]]:
    """Every claim with an interval, of the table and of the recipes, and its differences."""
    rows = list(csv.DictReader((ROOT / "results/claims.csv").open(newline="")))
    yield from ((row, [float(value) for value in row["differences"].split()]) for row in rows if row["ci_low"])
    for path in (ROOT / "results").glob("*/*/verdicts.json"):
        yield from ((row, row["differences"]) for row in json.loads(path.read_text()) if row["ci_low"] is not None)


def test_a_claims_number_is_the_mean_of_its_seeds():
    for row, differences in claims():
        ends = [float(row[end]) for end in ("ci99_low", "ci_low", "ours", "ci_high", "ci99_high")]
        rounding = 5e-6 * max(map(abs, [1, *differences]))  # tables have six digits
        assert ends[2] == pytest.approx(sum(differences) / len(differences), abs=rounding), row
        assert ends == sorted(ends), row
        if row["unit"] == "points":
            most = MOST.get(row["metric"], 100)
            assert -most < ends[0] <= ends[-1] < most, row


def test_the_report_names_the_papers_results_that_may_be_small():
    """Supported, as above 0, though the 99% interval holds effects below the smallest that counts."""
    claims = pd.read_csv(ROOT / "results/claims.csv").query("origin == 'paper' and verdict == 'supported'")
    small = claims[claims["ci99_low"] < claims["smallest_effect"]]
    assert set(small["claim"]) == {"stem-leads-late", "gated-spread-above-dense"}
    page = (ROOT / "docs/report.md").read_text(encoding="utf-8")
    assert "Two of the paper's supported results are not shown to exceed the smallest effect that counts" in page
    assert all(f"{low:.3f} (" in page for low in small["ci99_low"])


def test_the_papers_leads_by_length_are_as_the_report_says(catalog):
    """Smaller from 6,000 tokens on in Table 6, growing on code in Table 5."""
    leads = {
        table: {
            column: catalog.paper.value(f"{table}/stem-third/{column}") - dense
            for column, dense in catalog.paper.row(f"{table}/dense").items()
        }
        for table in ("table-5", "table-6")
    }
    by_length = [*leads["table-6"].values()]
    assert max(by_length[3:]) < min(by_length[:3])
    code = [lead for column, lead in leads["table-5"].items() if column.startswith("code_")]
    assert code == sorted(code)
    page = (ROOT / "docs/report.md").read_text(encoding="utf-8")
    assert "leads on LongBench are smaller from 6,000 tokens on than below; in its Table 5 leads on code grow" in page
