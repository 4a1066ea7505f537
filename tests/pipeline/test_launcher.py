"""What a launcher is called with and what is waited for, by a queue of files. Real Slurm: tests/cluster."""

import os
import shutil
import subprocess
import sys
from types import SimpleNamespace

import pytest
import yaml

from stemrepro.common.errors import Unfinished, UserError
from stemrepro.pipeline import launcher, plan
from stemrepro.pipeline.launcher import hand_over
from tests.conftest import ROOT, TINY, copy_recipes

LEFT = SimpleNamespace(ended=False)


def write_command(folder, name, script):
    (folder / "bin" / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / "bin" / name).chmod(0o755)


@pytest.fixture(autouse=True)
def queue(tmp_path, monkeypatch):
    """A folder with the answers of squeue, 1 to 9, each given once; without one the queue is empty."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(launcher, "POLL", 0.01)
    (tmp_path / "bin").mkdir()
    (tmp_path / "queue").mkdir()
    for name, script in {
        "squeue": "for f in queue/*; do [ -f $f ] || exit 0; cat $f; grep -q down $f && c=1; rm $f; exit $c; done",
        "launch": 'echo "$SBATCH_JOB_NAME" "$SLURM_JOB_NAME" "$@" >> launched; exit $FAILS',
    }.items():
        write_command(tmp_path, name, script)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin", prepend=":")
    return tmp_path / "queue"


def launched(folder):
    file = folder.with_name("launched")
    return file.read_text().splitlines() if file.exists() else []


def test_the_command_follows_the_launcher_and_its_job_is_named(queue):
    hand_over("tiny", "launch --comment='two words'", ["--replace", "dense"], [])
    said = "stemrepro-tiny stemrepro-tiny --comment=two words stemrepro train --scale tiny --untracked --replace dense"
    assert launched(queue) == [f"{said} --part 1/1"]


def test_a_job_in_the_queue_is_waited_for_also_where_slurm_does_not_answer_once(queue, capsys):
    for number, answer in enumerate([f"17 {queue.parent}\n17 {queue.parent}", f"17 {queue.parent}", "down"]):
        (queue / str(number)).write_text(f"{answer}\n")
    hand_over("tiny", "launch", [], [])
    assert not any(queue.iterdir())
    assert launched(queue) == []
    said = capsys.readouterr().err
    assert "waiting for stemrepro-tiny, which is in the queue (job 17)" in said
    assert "can't be read" in said


def test_a_job_of_another_folder_is_not(queue):
    (queue / "1").write_text(f"17 {queue.parent}/clone two\n")
    hand_over("tiny", "launch", [], [])
    assert len(launched(queue)) == 1


def test_no_job_is_submitted_where_the_queue_is_unknown(queue):
    (queue / "1").write_text("down\n")
    with pytest.raises(UserError, match="queue can't be read"):
        hand_over("tiny", "launch", [], [])
    assert launched(queue) == []


@pytest.mark.parametrize(
    ("prefix", "kind", "words"),
    [
        ("env FAILS=3 launch", UserError, "ended with code 3, and 1 runs haven't ended"),
        ("launch", Unfinished, "1 runs haven't ended"),
        ("no-such-command", UserError, "there is no command 'no-such-command' here"),
    ],
)  # fmt: skip
def test_runs_that_are_left_are_an_error(prefix, kind, words):
    with pytest.raises(UserError, match=words) as error:
        hand_over("tiny", prefix, [], [LEFT])
    assert type(error.value) is kind


def test_without_slurm_a_sentence(queue, monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UserError, match="needs Slurm"):
        hand_over("tiny", "launch", [], [LEFT])


@pytest.mark.slow
def test_a_scale_with_a_launcher_trains_by_it_and_the_job_trains_itself(queue, sample):
    folder, environment = queue.parent, os.environ | {"PYTHONPATH": str(ROOT)}
    copy_recipes(folder, "rivals")
    file = folder / "recipes/scales/tiny.yaml"
    file.write_text(yaml.safe_dump(TINY | {"launcher": "launch"}))
    plan.write("tiny", ("rivals",))
    (folder / "data/tiny").mkdir(parents=True)
    shutil.copytree(sample / "blocks", folder / "data/tiny/blocks")
    write_command(folder, "stemrepro", f'exec {sys.executable} -m stemrepro.cli "$@"')
    write_command(folder, "launch", 'echo "$@" >> launched; exec "$@"')
    command = ["stemrepro", "train", "dense", "--scale", "tiny", "--untracked"]
    for _ in range(2):  # the second time nothing is left to launch
        subprocess.run(command, env=environment, check=True)
    assert launched(queue) == ["stemrepro train --scale tiny --untracked dense --part 1/1"]
    assert (folder / "runs/tiny/main/dense/seed0/weights.safetensors").exists()
