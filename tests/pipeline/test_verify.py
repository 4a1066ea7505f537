"""`stemrepro verify` compares every field with the commit, and says what it may vouch for."""

import io
import json
import shutil
import subprocess
from pathlib import Path

import pytest
from rich.console import Console

from stemrepro.common.errors import UserError
from stemrepro.common.files import read_json, write_json
from stemrepro.pipeline.verify import compare, deviation, differences, first_change, verify
from stemrepro.report.pages import claims_table
from tests.conftest import ROOT

HERE = {"machine": "CPU A, Linux", "versions": {"torch": "2.13.0", "dvc": "3.67.1"}}


def row(claim: str, **fields: object) -> dict:
    return {
        "claim": claim, "sentence": "It is so.", "origin": "control", "kind": "greater",
        "metric": "prose", "unit": "nats/token", "arms": ["dense", "stem-full"], "paper": None, "expected": None,
        "untested": None, "smallest_effect": 0.02, "ours": 0.1, "ci_low": 0.05, "ci_high": 0.15, "size": None,
        "differences": [0.08, 0.12, 0.1, 0.09, 0.11], "item_se": None, "ci99_low": 0.02, "ci99_high": 0.18,
        "method": "t over seeds",
        "seeds": 5, "scale": "laptop", "verdict": "supported", "reason": "above 0: +0.0200 to +0.1800 (99%)",
    } | fields  # fmt: skip


def exact(claim: str, **fields: object) -> dict:
    given = {"kind": "exact", "arms": [], "differences": None, "method": None, "ci_low": 1.0, "ci_high": 1.0}
    return row(claim, **given | {"seeds": 0, "ours": 1.0} | fields)


def changes(new: dict, old: dict) -> str:
    by_claim, _, _ = compare({"a": new}, {"a": old})
    return by_claim.get("a", "")


@pytest.mark.parametrize(("field", "value"), [
    ("sentence", "It is not so."), ("seeds", 3), ("verdict", "undecided"), ("origin", "paper"),
    ("smallest_effect", 0.01), ("paper", {"value": 1.0}), ("arms", ["dense", "token-only"]), ("size", "another size"),
    ("method", "t over seeds, on logits"), ("reason", "inside +-0.02: +0.0010 to +0.0020 (99%)"), ("ours", 99.6),
    ("ours", 0.1251),  # half of the half width and a little
    ("ci_low", 0.02), ("ci_high", None), ("ci99_low", -0.02), ("item_se", 0.01), ("ours", None),
    ("differences", [9.0] * 5), ("differences", [0.12, 0.08, 0.1, 0.09, 0.11]), ("differences", [0.08, 0.12, 0.1, 0.1]),
    ("differences", [0.08, 0.12, 0.1, 0.09, None]), ("differences", None),
])  # fmt: skip
def test_every_field_counts(field, value):
    assert field in changes(row("a") | {field: value}, row("a"))


def test_numbers_may_deviate_a_little_and_what_follows_from_them_with_them():
    moved = {
        "ours": 0.12,
        "ci_low": 0.06,
        "reason": "above 0: +0.0300 to +0.1900 (99%)",
        "differences": [0.3, 0.06, 0.08, 0.07, 0.09],
    }
    assert changes(row("a", **moved), row("a")) == ""
    assert "reason" in changes(row("a", **moved | {"reason": "it is so"}), row("a"))
    assert "differences" in changes(row("a", **moved | {"differences": [0.12, 0.12, 0.12, 0.12, 9.0]}), row("a"))
    assert changes(row("a", differences=[0.080001, 0.12, 0.1, 0.09, 0.109999]), row("a")) == ""
    assert deviation(row("a", ours=0.12), row("a")) == pytest.approx(0.4)


def test_numbers_without_an_interval_must_be_equal():
    assert changes(exact("a"), exact("a")) == ""
    assert "ours 1.0 -> 1.000001" in changes(exact("a", ours=1.000001), exact("a"))
    lost = row("a", ours=None, ci_low=None, ci_high=None)
    assert changes(lost, lost) == ""


def test_new_and_gone():
    by_claim, _, _ = compare({"b": row("b")}, {"a": row("a")})
    assert by_claim == {"a": "gone", "b": "new"}


def test_differences_of_machine_and_versions_are_named():
    other = {"machine": "CPU B, Linux", "versions": {"torch": "2.12.0", "scipy": "1.17.1", "dvc": "3.67.1"}}
    assert differences(HERE, other) == [
        "machine: CPU B, Linux there, CPU A, Linux here",
        "scipy: 1.17.1 there, none here",
        "torch: 2.12.0 there, 2.13.0 here",
    ]
    assert differences(HERE, HERE) == []


def results(name: str, *rows: dict, commit: str = "then") -> None:
    write_json(f"results/laptop/{name}/verdicts.json", list(rows))
    write_json(f"results/laptop/{name}/provenance.json", HERE | {"commit": commit})


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """Committed verdicts of a recipe of runs and of one of arithmetic; the arms' scores came with the clone."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(ROOT / "recipes", "recipes")
    results("rivals", row("a"), row("b", arms=["dense", "stem-third"]))
    results("cost_model", exact("c"))
    for arm in ("dense", "stem-third", "stem-full"):
        for variant in ("main", "own-rate", "official-start"):
            write_json(f"scores/laptop/losses/{variant}/{arm}/summary.json", {"key": "k"})
    for command in (["init", "-q"], ["add", "-A"], ["-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qm", "x"]):
        subprocess.run(["git", *command], check=True)
    return tmp_path


def report(code: int) -> str:
    console = Console(width=200, record=True, file=io.StringIO())
    assert verify("laptop", Path("results"), console) == code
    return console.export_text()


def test_an_untouched_clone_vouches_for_nothing(repository):
    text = report(3)
    assert "rivals: 2 of 2 claims came out the same (2 not made here)" in text
    assert "nothing was trained or scored here, so this vouches for no run: 'make reproduce" in text
    assert "reproduces" not in text.replace("make reproduce", "")


def test_arithmetic_alone_vouches_for_no_run(repository):
    results("cost_model", exact("c"), commit="now")
    text = report(3)
    assert "3 of 3 claims are the committed ones; how all were made here: 1 computed, 2 not made here" in text
    assert "vouches for no run" in text


def test_counts_in_the_text_are_made_here_where_the_text_is(repository):
    results("long_context_capacity", exact("d"))
    commit()
    results("long_context_capacity", exact("d"), commit="now")
    assert "long_context_capacity: 1 of 1 claims came out the same (1 redrawn)" in report(3)
    write_json("data/laptop/tokenizer.json", {})
    assert "long_context_capacity: 1 of 1 claims came out the same (1 computed)" in report(3)


def test_redrawn_from_the_scores_that_came_with_the_clone_is_not_a_reproduction(repository):
    results("rivals", row("a"), row("b", arms=["dense", "stem-third"]), commit="now")
    assert "2 redrawn, 1 not made here" in report(3)


def test_scores_that_were_made_here(repository):
    results("rivals", row("a"), row("b", arms=["dense", "stem-third"]), commit="now")
    for path in Path("scores").rglob("summary.json"):
        if path.parent.name != "stem-third":
            write_json(path.with_name("provenance.json"), HERE | {"key": "k"})
    text = report(0)
    assert "rivals: 2 of 2 claims came out the same (1 scored, 1 redrawn)" in text
    assert "what was made here reproduces (numbers may deviate by 0.5 of an interval's half width)" in text
    assert "machine: CPU A, Linux there" in text
    write_json("scores/laptop/losses/main/dense/provenance.json", HERE | {"key": "another"})
    assert "(2 redrawn)" in report(3)


@pytest.mark.slow
def test_scores_that_came_out_as_committed_need_no_drawing(repository):
    """DVC draws nothing anew then; where they differ and nothing was drawn, the verdicts aren't theirs."""
    summaries = list(Path("scores").rglob("summary.json"))
    for path in summaries:
        write_json(path.with_name("provenance.json"), HERE | {"key": "k"})
    assert "rivals: 2 of 2 claims came out the same (2 scored)" in report(0)
    for path in summaries:
        write_json(path, {"key": "other"})
        write_json(path.with_name("provenance.json"), HERE | {"key": "other"})
    assert "rivals: 2 of 2 claims came out the same (2 not made here)" in report(3)


@pytest.mark.parametrize("verdict", ["supported", "contradicted"])
def test_outcomes_of_other_machines_are_listed_whether_or_not_this_one_agrees(repository, verdict):
    Path("docs").mkdir(exist_ok=True)
    Path("docs/machines.yaml").write_text("laptop: [CPU B gave 1 of 2]\n")
    for path in Path("scores").rglob("summary.json"):
        write_json(path.with_name("provenance.json"), HERE | {"key": "k"})
    assert row("a")["verdict"] == "supported"
    results("rivals", row("a", verdict=verdict), row("b", arms=["dense", "stem-third"]), commit="now")
    assert "on another machine: CPU B gave 1 of 2" in report(int(verdict != "supported"))


@pytest.mark.parametrize(
    "edit", [{"ours": 0.2, "differences": [0.2] * 5}, {"seeds": 4}, {"sentence": "Else."}, {"verdict": "contradicted"}]
)
def test_an_edited_field_fails(repository, edit):
    results("rivals", row("a", **edit), row("b", arms=["dense", "stem-third"]))
    text = report(1)
    assert "rivals: 1 of 2 claims came out the same" in text
    assert f"  a: {next(iter(edit))} " in text
    assert "the reproduction does not reproduce" in text


def commit() -> None:
    for command in (["add", "-A"], ["-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qm", "y"]):
        subprocess.run(["git", *command], check=True)


DATA = "panel,x,value\na,1,0.5\na,2,0.25\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("panel,x,value\na,1,0.5\na,2,9\n", "line 3, value: 0.25 -> 9"),
        ("panel,x,value\na,1,0.5\nb,2,0.25\n", "line 3, panel: a -> b"),
        ("panel,x,value\na,1,0.5\n", "3 lines -> 2"),
        ("panel,x\na,1\na,2\n", "line 1, value: value -> None"),
        ("panel,x,value,more\na,1,0.5,1\na,2,0.25,1\n", "line 1, value: None -> more"),
        ("panel,x,value\na,1,0.500001\na,2,0.25\n", ""),
    ],
)
def test_a_table_is_compared_cell_by_cell(text, words):
    assert first_change(text, DATA) == words


def test_what_is_drawn_of_the_committed_scores_is_compared(repository):
    path = Path("results/laptop/rivals/data.csv")
    path.write_text(DATA)
    commit()
    path.write_text(DATA.replace("0.25", "9"))
    assert "  data.csv: line 3, value: 0.25 -> 9" in report(1)
    path.unlink()
    assert "  data.csv: gone" in report(1)
    write_json("scores/laptop/losses/main/dense/summary.json", {"key": "other"})
    assert "data.csv" not in report(3)  # numbers follow from other runs


@pytest.mark.slow
def test_a_line_of_claims_is_the_committed_one_or_follows_from_the_verdicts(repository):
    path = Path("results/claims.csv")
    path.write_text(claims_table("laptop", Path("results")))
    commit()
    assert "claims.csv" not in report(3)
    results("rivals", row("a", ours=0.11, differences=[0.11] * 5), row("b", arms=["dense", "stem-third"]))
    assert "claims.csv" not in report(3)  # one recipe was made anew, without the pages
    committed = path.read_text()
    path.write_text(claims_table("laptop", Path("results")))
    assert "claims.csv" not in report(3)
    for edited in (committed.replace("prose", "code", 1), committed.replace("1.0", "9.0", 1)):
        path.write_text(edited)
        assert "results/claims.csv: laptop/cost_model/c is neither the committed line nor what the verdicts" in report(
            1
        )
    path.write_text(committed.replace("differences", "seeds"))
    assert "claims.csv: scale/recipe/claim is neither" in report(1)
    path.write_text("\n".join(committed.splitlines()[:-1]))
    assert f"claims.csv: {'/'.join(committed.splitlines()[-1].split(',')[:3])} is neither" in report(1)
    path.unlink()
    assert "claims.csv: laptop/rivals/a is neither" in report(1)


def test_a_missing_recipe_fails(repository):
    Path("results/laptop/cost_model/verdicts.json").unlink()
    text = report(1)
    assert "cost_model: 0 of 1 claims came out the same" in text
    assert "  c: gone" in text


def test_nothing_to_compare_with(repository, monkeypatch):
    console = Console(file=io.StringIO())
    with pytest.raises(UserError, match="results/gpu has no verdicts; run 'make reproduce SCALE=gpu' first"):
        verify("gpu", Path("results"), console)
    shutil.copytree("results/laptop", "results/smoke")
    assert verify("smoke", Path("results"), console) == 3
    rows = read_json(Path("results/laptop/cost_model/verdicts.json"))
    Path("results/laptop/cost_model/verdicts.json").write_text(json.dumps([rows[0] | {"ours": "x"}]))
    with pytest.raises(UserError, match=r"verdicts\.json: claim 'c'\.ours: .*'x'"):
        verify("laptop", Path("results"), console)
    Path("results/laptop/cost_model/verdicts.json").write_text("[{")
    with pytest.raises(UserError, match=r"verdicts\.json is missing or damaged"):
        verify("laptop", Path("results"), console)
    monkeypatch.setenv("GIT_DIR", "nowhere")
    with pytest.raises(UserError, match="verify compares with the committed results, but git says"):
        verify("laptop", Path("results"), console)
