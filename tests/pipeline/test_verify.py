"""`stemrepro verify` compares verdicts, numbers and data with the commit, and says what it may vouch for."""

import io
import subprocess
from pathlib import Path

import pytest
from rich.console import Console

from stemrepro.common.errors import UserError
from stemrepro.common.files import write_json
from stemrepro.pipeline import verify as module
from stemrepro.pipeline.verify import change, first_change, verify

DATA = "panel,x,value\na,1,0.5\na,2,0.25\n"


def row(claim: str = "a", **fields: object) -> dict:
    about = {"claim": claim, "scale": "laptop", "ours": 0.1, "ci_low": 0.05, "ci_high": 0.15, "verdict": "supported"}
    return about | fields


@pytest.mark.parametrize(
    ("now", "before", "words"),
    [
        (row(), row(), ""),
        (None, row(), "gone"),
        (row(verdict="contradicted"), row(), "supported -> contradicted"),
        (row(ours=0.1249, ci_low=0.03, ci_high=0.17), row(), ""),
        (row(ours=0.1251), row(), "ours 0.1 -> 0.1251"),  # half of the half width and a little
        (row(ci_high=0.1), row(), "ci_high 0.15 -> 0.1"),
        (row(), row(ours=None), "ours None -> 0.1"),
    ],
)
def test_verdicts_are_equal_and_numbers_near(now, before, words):
    assert change(now, before) == words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("panel,x,value\na,1,0.500001\na,2,0.25\n", ""),
        ("panel,x,value\na,1,0.5\na,2,9\n", "data.csv, line 3: 0.25 -> 9"),
        ("panel,x,value\na,1,0.5\n", "data.csv, line 3: a -> None"),
    ],
)
def test_a_table_is_compared_cell_by_cell(text, words):
    assert first_change(text, DATA) == words


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """Committed verdicts of two recipes, data of one, and scores that came with the clone."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(module, "read_verdicts", lambda path: module.json.loads(path.read_text()))
    write_json("results/laptop/rivals/verdicts.json", [row("a"), row("b")])
    write_json("results/laptop/cost_model/verdicts.json", [row("c", ci_low=None)])
    Path("results/laptop/rivals/data.csv").write_text(DATA)
    Path("scores/laptop").mkdir(parents=True)
    Path("scores/laptop/protocol.parquet").write_text("k")
    Path(".gitignore").write_text("/scores/**/provenance.json\n")
    for command in (["init", "-q"], ["add", "-A"], ["-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qm", "x"]):
        subprocess.run(["git", *command], check=True)


def scored() -> None:
    write_json("scores/laptop/provenance.json", {"losses of dense": {"key": "k"}})


def report(code: int, scale: str = "laptop") -> str:
    console = Console(width=200, record=True, file=io.StringIO())
    assert verify(scale, Path("results"), console) == code
    return console.export_text()


def test_an_untouched_clone_vouches_for_no_run(repository):
    text = report(3)
    assert "laptop: 3 committed claims in 2 recipes, 0 differences" in text
    assert "nothing was scored here, so this vouches for no run: 'make reproduce SCALE=laptop'" in text


def test_what_was_scored_here_reproduces(repository):
    scored()
    assert "1 scores were made here, on " in report(0)


@pytest.mark.parametrize("here", [False, True])
def test_a_difference_fails_whatever_was_made_here(repository, here):
    if here:
        scored()
    write_json("results/laptop/rivals/verdicts.json", [row("a", verdict="contradicted"), row("d")])
    Path("results/laptop/cost_model/verdicts.json").unlink()
    text = report(1)
    for line in ("rivals/a: supported -> contradicted", "rivals/b: gone", "rivals/d: new", "cost_model/c: gone"):
        assert f"  {line}\n" in text


@pytest.mark.parametrize(
    ("now", "code"),
    [
        (row("a", verdict="undecided", ours=0.11), 0),
        (row("a", verdict="undecided", ours=0.13), 1),  # not near
        (row("a", verdict="contradicted"), 1),
        (row("a"), 0),
    ],
)
def test_a_claim_at_its_threshold_may_turn_with_new_scores_alone(repository, now, code):
    scored()
    write_json("results/laptop/rivals/verdicts.json", [now, row("b")])
    assert "no difference" not in report(0 if now == row("a") else 1)  # each verdict follows from committed scores
    Path("scores/laptop/protocol.parquet").write_text("other")
    text, line = report(code), "  rivals/a: supported -> undecided, and its numbers are near: no difference"
    assert (line in text) == (code == 0 and now != row("a"))


def test_data_follows_from_the_committed_scores_alone(repository):
    path = Path("results/laptop/rivals/data.csv")
    path.write_text(DATA.replace("0.25", "9"))
    assert "  rivals: data.csv, line 3: 0.25 -> 9" in report(1)
    path.unlink()
    assert "  rivals: no data.csv" in report(1)
    Path("scores/laptop/protocol.parquet").write_text("other")
    assert "data.csv" not in report(3)


def test_nothing_to_compare_with(repository, monkeypatch):
    with pytest.raises(UserError, match="results/gpu has no verdicts"):
        report(0, "gpu")
    write_json("results/smoke/pair/verdicts.json", [row("a", scale="smoke")])
    write_json("scores/smoke/provenance.json", {"losses of dense": {"key": "k"}})
    assert "no committed verdicts for scale 'smoke': pair" in report(3, "smoke")
    monkeypatch.setenv("GIT_DIR", "nowhere")
    with pytest.raises(UserError, match="git says"):
        report(0)
