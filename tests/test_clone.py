"""DVC's commands in a fresh clone: results follow from the committed scores and code; text and runs aren't there."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
import vl_convert

from tests.conftest import ROOT

pytestmark = pytest.mark.slow


class Clone:
    """What git holds, as it is in the working tree, in another repository."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self.environment = os.environ | {"PATH": path, "PYTHONPATH": str(folder), "COLUMNS": "120"}

    def call(self, *command: str) -> str:
        done = subprocess.run(command, cwd=self.folder, env=self.environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True)
    if listed.returncode:
        pytest.skip("there is no repository here, as in an unpacked bundle")
    clone = Clone(tmp_path_factory.mktemp("clone"))
    for name in listed.stdout.decode().rstrip("\0").split("\0"):
        if (ROOT / name).is_file():
            (clone.folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, clone.folder / name)
    clone.call("git", "init", "-q")
    clone.call("git", "add", "-A", "-f")
    clone.call("git", "-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qm", "start")
    return clone


@pytest.fixture(scope="module")
def status(clone):
    return clone.call("dvc", "status")


def test_dvcs_own_files_are_where_nobody_else_can_write(clone, status):
    """It reads some of them as pickles."""
    places = [clone.folder / ".dvcsite", *(clone.folder / ".dvcsite").rglob("*"), clone.folder / ".dvc/tmp"]
    assert len(list((clone.folder / ".dvcsite/repo").iterdir())) > 1
    assert [path for path in places if path.stat().st_mode & 0o002] == []


REDRAWN = "analyse", "report", "studies/dvc.yaml:figure"


def test_what_is_drawn_is_up_to_date(clone):
    """Else code, recipes or scores changed without what follows from them."""
    said = clone.call("dvc", "repro", "-s", *REDRAWN).splitlines()
    assert said.pop() == "Data and pipelines are up to date."
    assert len(said) > 20
    assert [line for line in said if not line.endswith("didn't change, skipping")] == []


def test_status_lists_what_is_not_there(status):
    stages = re.findall(r"(?m)^(\S+):$", status)
    assert {"fetch", "blocks", "train", "studies/dvc.yaml:train@ladder"} <= {*stages}
    assert [stage for stage in stages if stage.startswith(REDRAWN)] == []
    for path in ("data/text-8/raw", "data/laptop/blocks", "runs/laptop", "runs/ladder"):
        assert re.search(rf"deleted: +{path}\n", status)


def test_metrics_and_experiments_are_shown(clone):
    shown = clone.call("dvc", "metrics", "show").strip().splitlines()
    columns = ["Path", "gap (nats/token)", "kFLOPs/token", "loss (nats/token)", "parameters"]
    assert re.split("  +", shown[0].strip()) == columns
    assert shown[1].startswith("metrics/laptop/")  # the page's own scale comes first
    assert max(map(len, shown)) <= 120
    assert "workspace" in clone.call("dvc", "exp", "show", "--only-changed", "--no-pager")


PLOTTED = {
    "Validation loss of the arms": ("laptop/validation_loss", ["curve"], "arm"),
    "How far arms are below dense against tokens": ("ladder/token_ladder", ["gap to dense"], "what"),
    "How far arms are below dense against size": ("width/size_ladder", ["lead, fixed", "lead, grown"], "what"),
}


def test_plots_are_curves_and_ladders(clone):
    """Vega draws each point of a panel, as in a browser; it refuses a template whose parts name a thing twice."""
    clone.call("dvc", "plots", "show")
    page = (clone.folder / "dvc_plots/index.html").read_text()
    specs = [json.JSONDecoder().raw_decode(page, start.end())[0] for start in re.finditer("var spec = ", page)]
    drawn = {spec["title"]["text"].split(",")[0]: vl_convert.vegalite_to_svg(json.dumps(spec)) for spec in specs}
    assert drawn.keys() == PLOTTED.keys()
    for title, (name, panels, arm) in PLOTTED.items():
        rows = pd.read_csv(ROOT / "results" / name / "data.csv", low_memory=False)
        rows = rows[rows["panel"].isin(panels)]
        svg = drawn[title].replace("\N{MINUS SIGN}", "-")
        points = re.findall(r"\): ([-.\d]+); arm: ([a-z-]+); (?:ladder|rev): ", svg)
        assert {(arm, float(value)) for value, arm in points} == {*zip(rows[arm], rows["value"], strict=True)}
