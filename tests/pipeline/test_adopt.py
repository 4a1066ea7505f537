"""Runs and scores of another machine: taken in if they are what is planned here, refused in a sentence otherwise."""

import json
import os
import re
import shutil
import tarfile
from pathlib import Path

import pytest
import yaml

from stemrepro.common.errors import UserError
from stemrepro.common.files import sha256
from stemrepro.config.address import MAIN, Address
from stemrepro.evaluation import losses
from stemrepro.measures.catalog import load
from stemrepro.pipeline.adopt import adopt
from stemrepro.pipeline.plan import make_plan
from stemrepro.pipeline.runs import runs_of
from stemrepro.pipeline.score import arguments, score_key, write_scores
from stemrepro.training.train import train
from tests.conftest import ROOT, TINY, quiet

DENSE, STEM = Address(MAIN, "dense"), Address(MAIN, "stem-full")


@pytest.fixture(scope="module")
def plan(tmp_path_factory):
    """A plan of one seed of every arm of a recipe."""
    home = tmp_path_factory.mktemp("plan")
    shutil.copytree(ROOT / "recipes", home / "recipes")
    (home / "recipes/scales/tiny.yaml").write_text(yaml.safe_dump(TINY))
    return make_plan("tiny", ("validation_loss",), load(home / "recipes"))


@pytest.fixture(scope="module")
def made(plan, sample, tmp_path_factory):
    """What the other machine has: two trained runs, and dense's losses."""
    home = tmp_path_factory.mktemp("there")
    (home / "data/tiny").mkdir(parents=True)
    (home / "data/tiny/blocks").symlink_to(sample / "blocks")
    runs = runs_of(plan, (DENSE, STEM), data=home / "data", runs=home / "runs")
    for run in runs:
        train(run, quiet)
    given = arguments(plan, "losses", plan.runs[DENSE], home / "data")
    key = score_key(runs[:1], "losses", given)
    write_scores("losses", runs[:1], [losses.score(runs[0], quiet, **given)], given, home / "scores/tiny", key)
    return home


@pytest.fixture
def there(made, tmp_path):
    """A copy of it that a test may change."""
    return Path(shutil.copytree(made, tmp_path / "there", symlinks=True))


@pytest.fixture
def take_in(plan, there, tmp_path):
    """take_in() packs what is there and returns what `adopt` says; here/ has the text alone before."""
    here = tmp_path / "here"
    (here / "data").mkdir(parents=True)
    shutil.copytree(there / "data", here / "data", symlinks=True, dirs_exist_ok=True)

    def take() -> tuple[list[str], list[str]]:
        archive = tmp_path / "made.tar.gz"
        with tarfile.open(archive, "w:gz") as packed:
            for name in ("runs", "scores", "about.json"):
                if (there / name).exists():
                    packed.add(there / name, name)
        return adopt(plan, archive, here / "data", here / "runs", here / "scores")

    return take


def files(folder: Path) -> dict[str, bytes]:
    paths = [path for path in folder.rglob("*") if path.is_file() and path.suffix != ".lock"]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def tables(home: Path) -> dict[str, bytes]:
    return {name: content for name, content in files(home / "scores/tiny").items() if name.endswith(".parquet")}


def test_what_is_planned_comes_over_byte_for_byte_and_once(take_in, there, tmp_path):
    taken, refused = take_in()
    assert (sorted(taken), refused) == (["dense seed 0", "losses of dense", "stem-full seed 0"], [])
    assert files(tmp_path / "here/runs") == files(there / "runs")
    assert tables(tmp_path / "here") == tables(there)
    assert take_in() == (taken, [])


def test_equal_files_of_a_linked_cache_are_two_files_here(take_in, there, tmp_path):
    """As 'tar -h' packs what 'cache.type symlink' of DVC leaves in a run folder."""
    name = f"runs/tiny/{DENSE.path}/seed0/metrics.jsonl"
    os.link(there / name, there / "runs/tiny/equal")  # which comes first in the archive
    taken, refused = take_in()
    assert (len(taken), refused) == (3, [])
    assert (tmp_path / "here" / name).read_bytes() == (there / name).read_bytes()


def test_an_unfinished_run_gives_way_and_another_one_does_not(take_in, there, tmp_path):
    dense, stem = (tmp_path / "here/runs/tiny" / address.path / "seed0" for address in (DENSE, STEM))
    for folder, address in ((dense, DENSE), (stem, STEM)):
        folder.mkdir(parents=True)
        shutil.copy(there / "runs/tiny" / address.path / "seed0/config.yaml", folder)
    config = (stem / "config.yaml").read_text()
    (stem / "config.yaml").write_text(config.replace("seed: 0", "seed: 1"))
    taken, refused = take_in()
    assert "dense seed 0" in taken
    assert (dense / "weights.safetensors").exists()
    assert refused == [f"stem-full seed 0: {stem} holds something else; move it away"]
    assert [path.name for path in stem.iterdir()] == ["config.yaml"]


@pytest.fixture
def weightless(there):
    """The same without weights, whose hashes are there."""
    for weights in there.glob("runs/tiny/*/*/seed*/weights.safetensors"):
        weights.with_name("weights.sha256").write_text(sha256(weights))
        weights.unlink()
    (there / "about.json").write_text(json.dumps({"device": "a card", "driver": "1.2"}))
    return there


def test_scores_come_without_weights_and_say_where_they_were_trained(take_in, weightless, tmp_path):
    assert take_in() == (["losses of dense"], [])
    assert tables(tmp_path / "here") == tables(weightless)
    assert not files(tmp_path / "here/runs")
    made = json.loads((tmp_path / "here/scores/tiny/made.json").read_text())
    run = json.loads((weightless / "runs/tiny" / DENSE.path / "seed0/provenance.json").read_text())
    assert made == {
        "about": {"device": "a card", "driver": "1.2"},
        "commits": [run["commit"]],
        "dates": [run["date"]] * 2,
        "devices": [],
        "machines": [run["machine"]],
        "versions": run["versions"],
    }
    assert take_in() == (["losses of dense"], [])


@pytest.mark.parametrize("name", ["weights.sha256", "metrics.jsonl"])
def test_scores_of_other_weights_or_losses_are_refused(take_in, weightless, tmp_path, name):
    file = weightless / "runs/tiny" / DENSE.path / "seed0" / name
    old = re.search("[0-9]", file.read_text())[0]
    file.write_text(file.read_text().replace(old, str((int(old) + 1) % 10), 1))
    assert take_in() == ([], ["losses of dense: scored from other runs, text or code"])
    assert not files(tmp_path / "here/scores")


def of_another(run: Path, name: str) -> None:
    shutil.copy(run.parents[1] / "stem-full/seed0" / name, run)


def edited(run: Path, key: str) -> None:
    config = run / "config.yaml"
    config.write_text(config.read_text().replace(f"{key}: ", f"{key}: a"))


WEIGHTS, OTHER = "weights.safetensors", "made with other settings, code or text"


@pytest.mark.parametrize(
    ("change", "what", "reason"),
    [
        (lambda run, name: (run / name).unlink(), WEIGHTS, "it isn't finished"),
        (lambda run, name: (run / name).write_bytes(b"{}"), WEIGHTS, "weights.safetensors is damaged"),
        (of_another, WEIGHTS, "weights.safetensors is of another run"),
        (of_another, "provenance.json", "provenance.json is of another run"),
        (edited, "code", f"{OTHER} (code: a"),
        (edited, "train_sha256", f"{OTHER} (data.train_sha256: a"),
    ],
)
def test_what_differs_is_refused_with_its_scores(take_in, there, tmp_path, change, what, reason):
    change(there / "runs/tiny" / DENSE.path / "seed0", what)
    taken, refused = take_in()
    assert taken == ["stem-full seed 0"]
    assert refused[0].startswith(f"dense seed 0: {reason}")
    assert refused[1:] == ["losses of dense: its runs are neither here nor in the archive"]
    assert not (tmp_path / "here/runs/tiny" / DENSE.path / "seed0/weights.safetensors").exists()


def test_an_archive_that_is_cut_short_or_holds_a_link_changes_nothing(plan, there, tmp_path):
    archive, folders = tmp_path / "made.tar", (there / "data", tmp_path / "runs", tmp_path / "scores")

    def refused(words: str, source: Path, name: str, share: float = 1.0) -> None:
        with tarfile.open(archive, "w") as packed:
            packed.add(source, name)
        archive.write_bytes(archive.read_bytes()[: int(share * archive.stat().st_size)])
        with pytest.raises(UserError, match=words):
            adopt(plan, archive, *folders)

    refused(r"made\.tar can't be read as a tar archive", there / "runs", "runs", share=0.5)
    refused(r"made\.tar can't be read as a tar archive", ROOT / "README.md", "../out.md")
    refused("holds nothing that is planned", ROOT / "README.md", "README.md")
    (there / "runs/tiny/link").symlink_to("/etc")
    refused("runs/tiny/link is neither a file nor a folder; 'tar -chzf' packs", there / "runs", "runs")
    assert not list((tmp_path / "runs").iterdir())
    assert not (tmp_path / "out.md").exists()
