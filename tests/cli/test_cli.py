"""Bad input through the front door: one sentence, exit code 2."""

import errno
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from stemrepro import cli
from stemrepro.cli import app
from stemrepro.config.address import Address
from stemrepro.measures import store
from tests.conftest import ROOT, TINY, copy_recipes, hear_signals

COMMANDS = [command.callback.__name__ for command in app.registered_commands]


def plain(text):
    """Return a text without line breaks."""
    return " ".join(text.split())


def run(*arguments):
    return CliRunner().invoke(app, list(arguments))


@pytest.fixture(scope="module")
def planned(sample, tmp_path_factory):
    """recipes/ with a scale `tiny` that is planned, and its text."""
    folder = tmp_path_factory.mktemp("planned")
    copy_recipes(folder, "rivals", "cost_model")
    (folder / "recipes/scales/tiny.yaml").write_text(yaml.safe_dump(TINY | {"seeds": [0, 1], "workers": 2}))
    (folder / "data/tiny").mkdir(parents=True)
    (folder / "data/tiny/blocks").symlink_to(sample / "blocks")
    return folder


@pytest.fixture
def project(planned, tmp_path, monkeypatch):
    """A copy of it, the working directory."""
    shutil.copytree(planned, tmp_path, symlinks=True, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("plan", "--scale", "laptob"), "scale 'laptob' is unknown; did you mean 'laptop'?"),
        (("train", "--scale", "smoke"), "run 'stemrepro data --scale smoke' first"),
        (("analyse", "rivals", "--scale", "tiny"), "has no scores yet; run 'stemrepro score --scale tiny' first"),
        (("report", "--scale", "tiny"), "verdicts.json is missing; 'make figures SCALE=tiny' draws it from the scores"),
        (("verify", "--scale", "laptop"), "has no verdicts"),
    ],
)
def test_one_sentence_and_exit_code_two(arguments, words, planned, monkeypatch):
    monkeypatch.chdir(planned)
    before = sorted(planned.rglob("*"))
    done = run(*arguments)
    assert done.exit_code == 2
    assert done.stderr.startswith("stemrepro: ")
    assert words in done.stderr
    assert done.stderr.count("\n") == 1
    assert sorted(planned.rglob("*")) == before  # nothing was made on the way


def test_a_training_whose_repository_git_refuses_says_so_once(project, monkeypatch):
    """As in a container, where another user owns the files: its results name no commit."""
    monkeypatch.setattr("stemrepro.pipeline.runs.train", lambda *_: False)
    subprocess.run(["git", "init", "-q", project], check=True)
    assert run("train", "--scale", "tiny", "dense").stderr == ""
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    said = run("train", "--scale", "tiny", "dense").stderr
    assert said.startswith("stemrepro: git refuses to read this repository, so that results name no commit: ")
    assert said.count("git refuses") == 1


def test_what_dvc_will_refuse_is_told_before_the_work(project, monkeypatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(project.parent))
    (project / "elsewhere").mkdir()
    (project / "runs").symlink_to(project / "elsewhere")
    monkeypatch.setattr("stemrepro.pipeline.reproduce.reproduce", lambda *_: None)
    done = run("reproduce", "--scale", "tiny")
    assert done.exit_code == 0
    assert done.stderr.splitlines() == [
        "stemrepro: DVC needs a git repository here: git init -q && git add -A && git commit -qm stemrepro",
        "stemrepro: DVC refuses runs/, which is a link; docs/howto.md says how another disk is used",
    ]


def test_every_command_has_help():
    assert run("--version").stdout.startswith("stemrepro ")
    shown, names = run("--help").stdout, {command.callback.__name__ for command in app.registered_commands}
    assert names >= {"reproduce", "plan", "data", "train", "score", "analyse", "track", "cost", "sweep", "verify"}
    assert all(name in shown and run(name, "--help").exit_code == 0 for name in names)


@pytest.mark.parametrize("words", [[], *([name] for name in COMMANDS), ["new", "arm"], ["new", "recipe"]], ids=" ".join)
def test_the_help_of_a_command_fits_one_screen(words):
    assert run(*words, "--help").stdout.count("\n") <= 40


ALONE = TINY | {"named_only": True}
"""A scale that no recipe names."""


@pytest.mark.parametrize("command", ["plan", "train", "reproduce"])
def test_a_scale_without_a_recipe_comes_with_the_command_that_writes_one(project, command):
    (project / "recipes/scales/alone.yaml").write_text(yaml.safe_dump(ALONE))
    done = run(command, "--scale", "alone")
    assert done.exit_code == 2
    assert done.stdout == ""
    assert "no recipe is for scale 'alone'" in done.stderr
    assert "'stemrepro new recipe NAME dense stem-third' writes one; then add 'scales: [alone]'" in done.stderr
    assert not (project / "runs/alone").exists()


HUB = "own: {kind: hub, dataset: own, megabytes: %d, licence: mine, attribution: me}\n"


@pytest.mark.parametrize("command", ["plan", "data"])
def test_a_text_that_is_surely_too_small_is_refused_before_it_is_read(project, command):
    mixes, own = project / "recipes/mixes.yaml", TINY | {"data": "own"}
    training = TINY["training"] | {"tokens": 128 * 10**5}
    (project / "recipes/scales/own.yaml").write_text(yaml.safe_dump(own | {"training": training}))
    mixes.write_text((ROOT / "recipes/mixes.yaml").read_text() + HUB % 3)
    done = run(command, "--scale", "own", *(() if command == "plan" else ("fetch",)))
    assert done.exit_code == 2
    assert "reads 12,800,000 tokens, and mix 'own' of recipes/mixes.yaml has 3 megabytes at most" in done.stderr
    assert "give the mix `megabytes` of 58 for one pass" in done.stderr
    assert "or the scale `tokens` of 2666624 or fewer" in done.stderr
    assert not (project / "data/own").exists()


@pytest.mark.parametrize(("vocab", "refused"), [(16_383, False), (16_384, True)])
def test_tokens_of_a_large_vocabulary_have_two_and_a_half_bytes_at_least(project, vocab, refused):
    """12.8M tokens of a text of 7 MB: 1.8 passes at a byte a token, 4.6 at two and a half."""
    training, model = TINY["training"] | {"tokens": 128 * 10**5}, TINY["model"] | {"vocab": vocab}
    own = TINY | {"data": "own", "training": training, "model": model}
    (project / "recipes/scales/own.yaml").write_text(yaml.safe_dump(own))
    (project / "recipes/mixes.yaml").write_text((ROOT / "recipes/mixes.yaml").read_text() + HUB % 7)
    done = run("plan", "--scale", "own")
    assert (done.exit_code == 2 and "has 7 megabytes at most" in done.stderr) == refused


def test_a_plan_says_what_is_known_of_its_text(project):
    own = TINY | {"data": "own"}
    (project / "recipes/scales/own.yaml").write_text(yaml.safe_dump(own))
    (project / "recipes/mixes.yaml").write_text((ROOT / "recipes/mixes.yaml").read_text() + HUB % 1)
    said = plain(run("plan", "--scale", "own").stdout)
    assert "mix 'own' has at most 1 MB, which the longest run would pass over about 0.0069 times" in said
    assert "' is no folder here, and so a dataset of the hub; " in said
    assert "'stemrepro data --scale own' counts its tokens, and 'stemrepro train' refuses more than 4 passes" in said
    (project / "texts").mkdir()
    (project / "texts/one.txt").write_text("some words " * 1000)
    mixes = (ROOT / "recipes/mixes.yaml").read_text() + re.sub(r"dataset: [^,}\s]+", "dataset: texts", HUB % 1)
    (project / "recipes/mixes.yaml").write_text(mixes)
    here = plain(run("plan", "--scale", "own").stdout)
    assert "mix 'own' has at most 0.011 MB, which the longest run would pass over about 0.63 times" in here
    assert "'texts' is a folder here" in here
    assert "how many tokens mix 'text-8' has is not known yet" in plain(run("plan").stdout)
    assert "mix 'sample' has at most 289,233 tokens, and the longest run reads 1,536" in plain(
        run("plan", "--scale", "tiny").stdout
    )


@pytest.mark.slow
def test_several_arms_are_trained_and_scored_together_and_without_mlflow(project):
    arms = ("--scale", "tiny", "dense", "stem-full")
    done = run("train", *arms, "--untracked")
    assert done.exit_code == 0, done.output
    assert re.search(r"trained, in runs/tiny/.* dense \d\.\d{3} \+- \d\.\d{3} \(2\), stem-full \d", plain(done.stdout))
    assert not (project / "mlflow.db").exists()
    done = run("score", *arms, "--kind", "losses")
    assert done.exit_code == 0, done.output
    for arm, ffn in (("dense", "dense"), ("stem-full", "stem")):
        about = store.about(project / "scores/tiny", "losses", Address("main", arm))
        scores = store.lines(project / "scores/tiny", "losses", Address("main", arm), "losses")
        assert f"{arm} {about['loss']['prose']['nats_per_token']:.3f} +- " in plain(done.stdout)
        assert set(scores["seed"]) == {0, 1}
        config = yaml.safe_load((project / "runs/tiny/main" / arm / "seed1/config.yaml").read_text())
        assert (config["arm"], config["variant"], config["model"]["ffn"]) == (arm, "main", ffn)
    assert about["parameters"]["tables"] == 3 * 300 * 24
    assert "0 of 2 arms were scored" in run("score", *arms, "--kind", "losses").stdout


MARK = "STEMREPRO_TEST"
ARMS = ["dense", "stem-full"]
FORKSERVER, RUNS_THERE = "forkserver", "runs/tiny/*/*/seed*/config.yaml"
TRIALS_THERE = "sweeps/tiny/two/runs/*/config.yaml"
LONG = TINY | {"training": TINY["training"] | {"tokens": 32 * 4 * 80, "save_every": 20}, "workers": 2}
"""A scale whose runs are long enough to be stopped."""
TRAIN, SCORE = "train dense stem-full", "score --kind losses dense"
SWEEP = "sweep recipes/sweeps/two.yaml"
STOPPED = "stemrepro: stopped; what is finished is kept, and the same command resumes the rest\n"


def marked(mark):
    """Return the command line by id of each process that holds a mark in its environment and still runs."""
    processes = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
            if f"{MARK}={mark}".encode() in (folder / "environ").read_bytes() and state != "Z":
                processes[int(folder.name)] = (folder / "cmdline").read_text()
        except (FileNotFoundError, ProcessLookupError, PermissionError):  # it has just ended, or is another's
            continue
    return processes


def start(arguments, mark):
    """Start a command, as a shell in a terminal does."""
    command = [sys.executable, "-m", "stemrepro.cli", *arguments]
    as_there = {"env": os.environ | {"PYTHONPATH": str(ROOT), MARK: mark}, "preexec_fn": hear_signals}
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True, **as_there)


def made(project):
    """Return what training and sweeps leave, by path."""
    places = ("runs/**/weights.safetensors", "runs/**/metrics.jsonl", "results/tiny/sweeps/two/data.csv")
    return {path.relative_to(project): path.read_bytes() for place in places for path in project.glob(place)}


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
@pytest.mark.parametrize(
    ("command", "until", "number", "whom", "code"),
    [
        (TRAIN, RUNS_THERE, signal.SIGHUP, "group", 129),
        (SCORE, FORKSERVER, signal.SIGTERM, "command", 143),  # workers are being started
        (SCORE, FORKSERVER, signal.SIGKILL, "command", -9),
        (SWEEP, TRIALS_THERE, signal.SIGINT, "group", 130),
        (SWEEP, TRIALS_THERE, signal.SIGKILL, "command", -9),
    ],
)
def test_a_stopped_command_leaves_nothing_running_and_the_work_goes_on_from_there(
    project, empty_database, monkeypatch, command, until, number, whom, code
):
    """A terminal's signal reaches the command, the fork server, workers and other workers of a sweep.

    A scheduler's may reach the command alone.
    """
    shutil.copy(empty_database, project / "mlflow.db")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{project}/mlflow.db")  # MLflow keeps connections by name
    sweep = {"title": "two", "sampler": "grid", "space": {"arm": ARMS, "learning_rate": [0.01], "seed": [0]}}
    (project / "recipes/sweeps/two.yaml").write_text(yaml.safe_dump(sweep))
    if command == SCORE:
        assert run("train", "--scale", "tiny", "--untracked", "dense").exit_code == 0
    else:
        (project / "recipes/scales/tiny.yaml").write_text(yaml.safe_dump(LONG))
    arguments, mark = [*command.split(), "--scale", "tiny"], str(project)
    process = start([*arguments, *(["--workers", "2"] if command == SWEEP else [])], mark)
    for _ in range(2400):
        if any(until in line for line in marked(mark).values()) if until == FORKSERVER else list(project.glob(until)):
            break
        time.sleep(0.05)
    if whom == "group":
        os.killpg(process.pid, number)
    else:
        os.kill(process.pid, number)
    _, shown = process.communicate(timeout=60)
    assert process.returncode == code, shown
    if number != signal.SIGKILL:
        assert shown == STOPPED
    for _ in range(300):  # what was ended may still be on its way out
        if not (left := marked(mark)):
            break
        time.sleep(0.1)
    assert left == {}
    if (command, number) == (SWEEP, signal.SIGKILL):
        return  # tests/sweeps/test_search.py and tests/training/test_kill.py take such trials and runs up
    again = run(*arguments)
    assert again.exit_code == 0, again.output
    if command == SCORE:
        return
    files = made(project)
    for folder in ("runs", "sweeps", "results"):
        shutil.rmtree(project / folder, ignore_errors=True)
    assert run(*arguments, *(["--untracked"] if command == TRAIN else [])).exit_code == 0
    assert files == made(project) != {}


def test_the_model_that_comes_along_is_edited_from_another_folder(tmp_path, monkeypatch):
    """Its text's files lie next to its runs/, so that nothing has to be trained first."""
    monkeypatch.chdir(tmp_path)
    folder = ROOT / "results/models/runs/atlas/main/stem-full/seed0"
    shown = run("edit", "--run", str(folder), "--from", "Spain", "--to", "Germany", "--top", "1", "--tokens", "1")
    assert shown.exit_code == 0, shown.output
    assert re.search(r"Madrid +Berlin +Berlin", shown.output), shown.output


@pytest.mark.slow
def test_edit_and_generate_on_a_trained_run(atlas_run, atlas_sample, tmp_path, monkeypatch):
    """The whole way from a run folder, in a project's layout, to the terminal."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "runs/tiny/main/stem-full/seed0"
    shutil.copytree(atlas_run("stem-full").folder, folder)
    (tmp_path / "data/tiny").mkdir(parents=True)
    for name in ("blocks", "tokenizer.json"):
        (tmp_path / "data/tiny" / name).symlink_to(atlas_sample / name)
    (tmp_path / "data/atlas-sample").symlink_to(atlas_sample)
    names = [entity["name"] for entity in json.loads((atlas_sample / "corpus/facts.json").read_text())["entities"]]
    shown = run("edit", "--run", str(folder), "--from", names[0], "--to", names[1])
    assert shown.exit_code == 0, shown.output
    assert f"The capital of {names[0]} is" in shown.output
    assert "weights are as before" in shown.output
    wrong = run("edit", "--run", str(folder), "--from", "Atlantis", "--to", names[1])
    assert wrong.exit_code == 2
    assert "country 'Atlantis' is unknown" in wrong.output
    said = run("generate", "--run", str(folder), "--prompt", "The capital", "--tokens", "5")
    assert said.exit_code == 0
    assert said.output.startswith("The capital")
    drawing = ("generate", "--run", str(folder), "--prompt", "The", "--temperature", "2", "--seed")
    drawn = [run(*drawing, seed).output for seed in "112"]
    assert drawn[0] == drawn[1] != drawn[2]
    assert run("generate", "--run", str(tmp_path), "--prompt", "x").exit_code == 2
    ascii = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "ascii"}
    command = [sys.executable, "-m", "stemrepro.cli", "generate", "--run", str(folder), "--tokens", "1", "--prompt"]
    done = subprocess.run([*command, "Zürich"], capture_output=True, text=True, env=ascii)
    assert (done.returncode, done.stdout[:9]) == (0, "Z\\xfcrich"), done.stderr
    said = run("generate", "--run", str(folder), "--prompt", "a\udcffb")
    assert said.exit_code == 2
    assert r"the prompt 'a\udcffb' is no text" in said.output


@pytest.mark.slow
def test_analyses_leave_verdicts_and_say_where(project):
    """Two are drawn at a time, in workers; the first has estimates alone."""
    shutil.copy(ROOT / "recipes/paper_audit.yaml", project / "recipes")
    done = run("analyse", "cost_model", "paper_audit", "--scale", "tiny")
    assert done.exit_code == 0, done.output
    assert "results/tiny/" in done.stdout
    rows = json.loads((project / "results/tiny/paper_audit/verdicts.json").read_text())
    asked = yaml.safe_load((ROOT / "recipes/paper_audit.yaml").read_text())["claims"]
    assert [row["claim"] for row in rows] == list(asked)


@pytest.mark.slow
def test_a_pipe_that_closes_ends_a_command_quietly():
    """As in `stemrepro cost | head -1`; closed before anything is said, so that no buffer hides it."""
    command = [sys.executable, "-m", "stemrepro.cli", "cost", "--shape", "llama-3.2-1b"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    done = subprocess.Popen(command, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, **pipes)
    done.stdout.close()
    assert done.stderr.read() == ""
    assert done.wait() == 141


@pytest.mark.slow
def test_a_failure_that_nobody_reads_is_one():
    command = [sys.executable, "-m", "stemrepro.cli", "plan", "--scale", "nosuch"]
    done = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, env=os.environ | {"PYTHONPATH": str(ROOT)})
    done.stderr.close()
    assert done.wait() == 2


def test_a_pipe_to_another_process_that_breaks_is_a_failure(monkeypatch):
    def broken():
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    monkeypatch.setattr(cli, "app", broken)
    monkeypatch.setattr(cli, "hear_stops", lambda: None)  # this process has its own
    with pytest.raises(BrokenPipeError):
        cli.main()
