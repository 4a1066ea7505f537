"""Every committed number is what it was before the project was made smaller, but for those that the rule moves.

The rule from 2.0 on takes errors between items, and everything of other claims, out of the intervals; two sizes or
budgets aren't paired; a share's effect is the plain mean; a claim is judged at each arm's own studied settings. One
arm's share has its interval on logits. What is listed here must have changed, and nothing else may.
"""

import csv
import io
import math
import subprocess

import pytest

from tests.conftest import ROOT

BEFORE = "df87ccfc"
"""The last commit with all that went."""

ENDS = {
    "atlas/knowledge_editing": "success; kept; closer; new; old; success where not known before; recall; by relation; "
    "estimates",
    "capacity/knowledge_capacity": "known; share; first; per total; per active; per flop; estimates",
    "ladder/token_ladder": "gap; gap, width x 2; part; gap to dense; slope; wider dense; pair; estimates",
    "laptop/ablation_graveyard": "loss; loss, own rate; loss, official start; accuracy; estimates",
    "laptop/benchmark_scores": "accuracy; accuracy of dense; accuracy - dense; margin of dense; margin - dense; "
    "estimates",
    "laptop/contextual_reasoning": "lead, distance; lead, position; estimates",
    "laptop/long_context_capacity": "by position; growth, shuffled; growth, intact; worth of the first half; estimates",
    "laptop/mid_training": "lead, main; lead, mid; lead, mid-anew; anew; estimates",
    "laptop/retrofit": "lead; estimates",
    "laptop/rivals": "loss; loss, own rate; loss, official start; estimates",
    "laptop/table_design": "loss; loss, own rate; loss, official start; estimates",
    "laptop/training_roi": "ours; estimates",
    "laptop/training_stability": "spikes; spikes, official start; spikes, own rate",
    "laptop/validation_loss": "final; token part; contextual part; estimates",
    "leaderboard/leaderboard": "estimates",
    "needle/needle": "lead; estimates; " + "; ".join(
        f"{what}, {variant}" for variant in ("main", "longer", "longer-anew") for what in
        ("chosen", "generated", *(f"depth {depth:g}" for depth in (0, 0.25, 0.5, 0.75, 1)), "another key's value")
    ),
    "recall/associative_recall": "all, 65 tokens; first, 65 tokens; all, 129 tokens; first, 129 tokens; estimates",
    "width/size_ladder": "gap, fixed; fall, fixed; bend, fixed; gap, grown; fall, grown; bend, grown; estimates",
}  # fmt: skip
"""Panels of data.csv whose intervals had an error between items, paired two sizes, or are of shares."""
VALUES = {
    "atlas/knowledge_editing": "estimates",
    "capacity/knowledge_capacity": "estimates",
    "ladder/token_ladder": "agreement, right",  # single choices of seeds, called by their own interval
    "laptop/ablation_graveyard": "accuracy; estimates",
    "laptop/benchmark_scores": "accuracy - dense; estimates",
    "needle/needle": "lead; estimates",
    "recall/associative_recall": "estimates",
}
"""Panels with shares, whose differences are plain means now."""
TEXTS = {"width/size_ladder": dict.fromkeys(("reason", "by_seed"), "estimates")}
"""An interval in a reason; a forecast by seed."""
GONE = {"laptop/benchmark_scores": {"seed_low", "seed_high", "seed_se"}}
NEW_PANELS = {"leaderboard/leaderboard": {"shape"}}
GONE_ROWS = {
    "width/size_ladder": {("law",), ("misfit",), ("drawn on, fixed",), ("drawn on, grown",)},
    "leaderboard/leaderboard": {
        *((of, "joint-token-mixture", "parameters") for of in ("rank", "best rank", "worst rank")),
        ("ahead of the next", "sparse-experts", "parameters"),
    },
}
"""Rows by panel, or by panel, what and x: a law that its own page rejects; the rank of a shape that nobody trains."""

WORDS = {
    "ladder/token_ladder/over-bigrams-at-the-input": "undecided",
    "ladder/token_ladder/gated-rest": "undecided",
    "width/size_ladder/table-rate-full": "undecided",
    "laptop/ablation_graveyard/dagger-not-better": "undecided",
    "laptop/ablation_graveyard/up-over-down": "undecided",
    "laptop/training_stability/stem-less-rate-sensitive": "undecided",
    "laptop/training_stability/stem-less-rate-sensitive-than-hash": "undecided",
    "laptop/training_stability/hash-leads-early": "supported",
    "atlas/knowledge_editing/over-gateless-memory": "undecided",
    "atlas/knowledge_editing/everything-moves": "undecided",
    "laptop/rivals/over-learned-router": "undecided",
}
"""Claims with another word; docs/method.md has the reasons."""
OWN = {
    "laptop/ablation_graveyard": "dense-over-gate up-over-gate dagger-not-better",
    "laptop/rivals": "equal-flops equal-latency equal-size over-learned-router",
    "laptop/training_stability": "stem-no-more-spikes stem-less-rate-sensitive stem-less-rate-sensitive-than-hash "
    "stem-less-rate-sensitive-than-memory hash-leads-early stem-leads-late",
}
"""Claims that are judged at each arm's own settings: other runs."""
SHARES = {
    "atlas/knowledge_editing": "rows-over-input rows-over-chance over-gateless-memory copy-over-padding "
    "everything-moves",
    "capacity/knowledge_capacity": "full-over-dense full-over-value-embeddings",
    "needle/needle": "third-long beyond-the-extension",
    "recall/associative_recall": "lead-beyond-the-trained-length",
}
"""Claims about shares: the plain mean over seeds in place of the difference at the mean logits."""
UNPAIRED = {"ladder/token_ladder": "constant-gap-third constant-gap-full", "width/size_ladder": "fades-third"}
"""Slopes over budgets or widths."""
FORECAST = "width/size_ladder/foretold-full"
"""Each seed's own forecast in place of one for all, whose error was that between items."""


def git(*command: str) -> str:
    return subprocess.run(["git", *command], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def tables() -> list[str]:
    """The tables of results at that commit; none where the history isn't here, as in an archive."""
    try:
        names = git("ls-tree", "-r", "--name-only", BEFORE, "results/").splitlines()
    except (OSError, subprocess.CalledProcessError):
        return []
    return [name for name in names if name.endswith("/data.csv")]


def alike(now: str, before: str, most: float = 1e-12) -> bool:
    if now == before:
        return True
    try:
        return math.isclose(float(now), float(before), rel_tol=1e-9, abs_tol=most)
    except ValueError:
        return False


def rows(name: str) -> tuple[list[dict], list[dict]]:
    now = list(csv.DictReader((ROOT / name).open(newline="")))
    return now, list(csv.DictReader(io.StringIO(git("show", f"{BEFORE}:{name}"))))


def listed(place: str) -> set[tuple[str, str]]:
    """Panels and columns of a data.csv that the rule moves."""
    columns = TEXTS.get(place, {}) | {"value": VALUES.get(place, "")}
    columns |= dict.fromkeys(("ci_low", "ci_high"), ENDS.get(place, ""))
    return {(panel, column) for column, panels in columns.items() for panel in panels.split("; ") if panel}


@pytest.mark.parametrize("name", tables())
def test_numbers_stay(name):
    place, (now, before) = name.removeprefix("results/").removesuffix("/data.csv"), rows(name)
    now = [row for row in now if row.get("panel") not in NEW_PANELS.get(place, ())]
    gone = GONE_ROWS.get(place, set())
    before = [row for row in before if not {(row.get("panel"),), tuple(map(row.get, ("panel", "what", "x")))} & gone]
    assert len(now) == len(before)
    assert set(before[0]) - set(now[0]) == GONE.get(place, set())
    changed = {
        (theirs.get("panel", ""), column)
        for mine, theirs in zip(now, before, strict=True)
        for column in mine
        if not alike(mine[column], theirs[column])
    }
    assert changed == listed(place)
    for row in now:
        if row.get("value") and row.get("by_seed"):
            values = [float(value) for value in row["by_seed"].split()]
            assert math.isclose(float(row["value"]), sum(values) / len(values), rel_tol=1e-4, abs_tol=1e-5), row


def named(claims: dict[str, str]) -> set[str]:
    return {f"{place}/{claim}" for place, names in claims.items() for claim in names.split()}


@pytest.mark.skipif(not tables(), reason="the history isn't here")
def test_claims_stay():
    now, before = (
        {"{scale}/{recipe}/{claim}".format(**row): row for row in table} for table in rows("results/claims.csv")
    )
    assert now.keys() == before.keys()
    assert {name: row["verdict"] for name, row in now.items() if row["verdict"] != before[name]["verdict"]} == WORDS
    own, shares = named(OWN), named(SHARES)
    for name, row in now.items():
        old = before[name]
        changed = {column for column in row if column in old and not alike(row[column], old[column], 1.1e-6)}
        moved = old["item_se"] or "moderated" in old["method"] or name in own | shares | named(UNPAIRED)
        expected = {"ci_low", "ci_high"} if moved else set()
        expected |= {"differences", "ours"} if name in own else {"ours"} if name in shares else set()
        expected |= {"differences", "item_se"} if name == FORECAST else set()
        free = {"seeds", "item_se"} if name in own else set()
        assert changed - {"verdict", "method", "reason"} - free == expected, name
