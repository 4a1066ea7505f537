import io
import subprocess
from pathlib import Path

import pytest
from rich.console import Console

from stemrepro.errors import UserError
from stemrepro.files import write_json
from stemrepro.verify import compare, differences, verify


def row(claim, verdict, ours=0.1, low=0.05, high=0.15):
    return {"claim": claim, "verdict": verdict, "ours": ours, "ci_low": low, "ci_high": high}


def test_same_changed_new_and_gone():
    reference = [row("a", "reproduced"), row("b", "inconclusive"), row("c", "contradicted")]
    ours = [row("a", "reproduced", ours=0.125), row("b", "direction only"), row("d", "reproduced")]
    same, changed, (deviation, claim) = compare(ours, reference)
    assert same == 1
    assert changed == ["b: inconclusive -> direction only", "d: new", "c: gone"]
    assert claim == "a"
    assert abs(deviation - 0.5) < 1e-9


def test_claims_without_intervals_have_no_deviation():
    rows = [row("a", "inconclusive", low=None, high=None)]
    assert compare(rows, rows) == (1, [], (0.0, ""))


HERE = {"machine": "CPU A, Linux", "versions": {"torch": "2.13.0", "dvc": "3.67.1"}}


def test_differences_of_machine_and_versions_are_named():
    there = {"machine": "CPU B, Linux", "versions": {"torch": "2.12.0", "scipy": "1.17.1", "dvc": "3.67.1"}}
    assert differences(HERE, there) == [
        "machine: CPU B, Linux there, CPU A, Linux here",
        "scipy: 1.17.1 there, none here",
        "torch: 2.12.0 there, 2.13.0 here",
    ]
    assert differences(HERE, HERE) == []


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """Two recipes' verdicts, committed."""
    monkeypatch.chdir(tmp_path)
    for name in ("one", "two"):
        write_json(f"results/tiny/{name}/verdicts.json", [row("a", "inconclusive"), row("b", "reproduced")])
        write_json(f"results/tiny/{name}/provenance.json", HERE)
    for command in (["init", "-q"], ["add", "-A"], ["-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qm", "x"]):
        subprocess.run(["git", *command], check=True)
    return tmp_path


def said(code):
    console = Console(width=200, record=True, file=io.StringIO())
    assert verify("tiny", Path("results"), console) is code
    return console.export_text()


def test_all_the_same(repository):
    text = said(True)
    assert "4 of 4 verdicts are the committed ones: the reproduction reproduces" in text
    assert "machine: CPU A, Linux there" in text


def test_a_changed_and_a_missing_recipe_fail(repository):
    write_json("results/tiny/one/verdicts.json", [row("a", "inconclusive", ours=0.2), row("b", "contradicted")])
    Path("results/tiny/two/verdicts.json").unlink()
    text = said(False)
    assert "one: 1 of 2 committed verdicts came out the same" in text
    assert "largest deviation: 2.00 of its interval's half width (a)" in text
    assert "b: reproduced -> contradicted" in text
    assert "two: 0 of 2" in text
    assert "1 of 4 verdicts are the committed ones: the reproduction does not reproduce" in text


def test_nothing_to_compare_with(repository, monkeypatch):
    write_json("results/new/one/verdicts.json", [row("a", "inconclusive")])
    console = Console(file=io.StringIO())
    assert verify("new", Path("results"), console)
    Path("results/tiny/one/verdicts.json").write_text("[{")
    with pytest.raises(UserError, match=r"one/verdicts\.json is missing or damaged"):
        verify("tiny", Path("results"), console)
    monkeypatch.setenv("GIT_DIR", "nowhere")
    with pytest.raises(UserError, match="verify compares with the committed results, but git says"):
        verify("tiny", Path("results"), console)
