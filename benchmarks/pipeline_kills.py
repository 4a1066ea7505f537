"""Kills the whole pipeline of the smoke scale with SIGKILL again and again, and starts it anew each time.

    python -m benchmarks.pipeline_kills --kills 100 --sweep-kills 20

Does it finish unaided, with the bytes of a clone that nothing happened to? Two clones of this commit run
`make reproduce SCALE=smoke`, one of them killed at random moments. A third of the kills take everything, a third DVC
alone (or what runs in its place), a third one process below it. Then the same with a sweep of two workers. Writes
docs/pipeline_kills.csv: how many kills hit which stage.
"""

import argparse
import json
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import chdir, closing, suppress
from pathlib import Path

import pandas as pd
import psutil

from stemrepro.common.files import atomic_write
from stemrepro.common.progress import track
from stemrepro.common.provenance import provenance

BIN = Path(sys.executable).parent
PIPELINE = ["make", "reproduce", "SCALE=smoke", f"BIN={BIN}", "-o", f"{BIN}/.installed", "-o", f"{BIN}/python"]
SWEEP = ["stemrepro", "sweep", "kills.yaml", "--scale", "smoke", "--workers", "2"]
SPACE = "title: Killed\nsampler: grid\nspace: {arm: [dense, stem-full], learning_rate: [0.005, 0.01], seed: [100]}\n"
PATIENCE = 15.0  # seconds after which a command that lost a process is left to itself
PARTS = ("losses", "benchmarks", "geometry", "distance", "reasoning")
AIMS = ("everything", "the_head", "one_below")
FOLDERS = ("data", "runs", "scores", "results", "metrics", "plan", "dvc_plots", "sweeps")
FOR_ITSELF = {"date", "seconds", "resumed_from"}  # of a provenance.json: what no two trainings share


def clone(folder: Path, source: Path) -> Path:
    """Clone a repository's commit into a folder, and return it."""
    subprocess.run(["git", "clone", "--quiet", str(source), str(folder)], check=True)
    (folder / "kills.yaml").write_text(SPACE, encoding="utf-8")
    return folder


def start(command: list[str], folder: Path) -> subprocess.Popen:
    """Start a command of a clone, with the clone's code; its output goes to <folder>.log."""
    environment = os.environ | {"PYTHONPATH": str(folder), "PATH": f"{BIN}:{os.environ['PATH']}"}
    with Path(f"{folder}.log").open("ab") as log:
        return subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )


def finish(command: list[str], folder: Path) -> None:
    """Run a command to its end.

    Raises:
        RuntimeError: it fails, and so needs a hand.
    """
    if code := start(command, folder).wait():
        raise RuntimeError(f"'{' '.join(command)}' ended with {code} in {folder}; see {folder}.log")


def below(process: subprocess.Popen) -> list[psutil.Process]:
    """Return what a command has started, parents first; a recipe's shell is none of it."""
    with suppress(psutil.NoSuchProcess):
        return [child for child in psutil.Process(process.pid).children(recursive=True) if name(child)]
    return []


def name(process: psutil.Process) -> str:
    """Return what a process does: "dvc", a command of stemrepro, or "helper"; "" for shells and those that are gone."""
    with suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
        words = process.cmdline()
        if not words or Path(words[0]).name in {"sh", "bash", "make"}:
            return ""
        for number, word in enumerate(words[:3]):
            if Path(word).name == "dvc":
                return "dvc"
            if Path(word).name == "stemrepro":
                data = words[number + 2 : number + 3] if words[number + 1] == "data" else []
                return " ".join([words[number + 1], *data, *(part for part in words if part in PARTS)])
        return "helper"  # a worker, a server of forks, a tracker of resources
    return ""


def kill(process: subprocess.Popen, aim: str, rng: random.Random) -> str:
    """Kill what is aimed at, and return what was at work."""
    children = below(process)
    names = [name(child) for child in children]
    stage = next((words for words in reversed(names) if words not in {"dvc", "helper"}), names[0] if names else "make")
    if aim == "the_head":
        victims = children[:1]  # make and its shell end with it
    elif aim == "one_below":
        victims = [rng.choice(children[1:] or children)] if children else []
    else:
        victims = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
    for victim in victims:
        with suppress(psutil.NoSuchProcess):
            victim.kill()
    return stage


def differences(one: Path, other: Path) -> list[str]:
    """Return the files of two clones that differ, and runs that MLflow shows otherwise.

    Dates and times of provenance don't count.
    """
    differing = []
    names = {
        path.relative_to(root).as_posix()
        for root in (one, other)
        for folder in (*FOLDERS, "dvc.lock")
        for path in [root / folder, *(root / folder).rglob("*")]
        if path.is_file() and path.suffix != ".db" and not path.name.startswith(".")
    }
    for path in sorted(names):
        if not ((one / path).exists() and (other / path).exists()):
            differing.append(f"{path} (in one alone)")
        elif (one / path).read_bytes() != (other / path).read_bytes():
            if Path(path).name == "provenance.json" and lasting(one / path) == lasting(other / path):
                continue
            differing.append(path)
    return differing + (["mlflow.db"] if shown(one) != shown(other) else [])


def lasting(path: Path) -> dict:
    """Return what the provenance of two trainings of one commit has in common."""
    return {key: value for key, value in json.loads(path.read_text(encoding="utf-8")).items() if key not in FOR_ITSELF}


def shown(folder: Path) -> set[tuple]:
    """Return runs in MLflow: key, state and names of metrics. Values are left out, as some are times."""
    if not (folder / "mlflow.db").exists():
        return set()
    with closing(sqlite3.connect(folder / "mlflow.db")) as base:
        return set(
            base.execute(
                "select tags.value, runs.status, latest_metrics.key from runs join tags using (run_uuid) "
                "left join latest_metrics using (run_uuid) "
                "where tags.key = 'run_key' and runs.lifecycle_stage = 'active'"
            )
        )


def run(
    what: str, command: list[str], kills: int, gap: float, folders: tuple[Path, Path], reset: Callable[[Path], None]
) -> tuple[list[dict], int]:
    """Kill a command so many times, every `gap` seconds in the mean.

    After every pass the clone is compared, and begins anew.

    Raises:
        RuntimeError: a start that nobody killed fails, or the bytes are others.
    """
    rng, rows, passes = random.Random(0), [], 0
    whole, killed = folders

    def compare() -> None:
        nonlocal passes
        passes += 1
        if other := differences(whole, killed):
            raise RuntimeError(f"{what}, pass {passes}: {len(other)} files differ: {', '.join(other[:9])}")

    process = None
    for number in track(range(kills), f"kills of {what}"):
        aim = AIMS[number % len(AIMS)]
        while True:
            if process is None:
                process, hurt = start(command, killed), False
            with suppress(subprocess.TimeoutExpired):
                code = process.wait(timeout=rng.expovariate(1 / gap))
                if code and not hurt:
                    raise RuntimeError(
                        f"'{' '.join(command)}' ended with {code}, though nobody killed it; see {killed}.log"
                    )
                if code == 0:
                    compare()
                    reset(killed)
                process = None
                continue
            rows.append({"what": what, "at": kill(process, aim, rng), "aim": aim})
            hurt = True
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=PATIENCE)
                process = None
            break
    if process is not None:
        process.wait()
    finish(command, killed)
    compare()
    return rows, passes


def write(rows: list[dict], passes: dict[str, int], out: Path) -> None:
    """Write how many kills of each kind hit which stage, and how often each command finished."""
    table = pd.DataFrame(rows)
    everywhere = table.assign(at="everywhere")
    counts = pd.concat(
        [pd.crosstab([part["what"], part["at"]], part["aim"]).reset_index() for part in (table, everywhere)]
    )
    counts["kills"] = counts[list(AIMS)].sum(axis=1)
    counts["came_to_its_end"] = counts["what"].map(passes).where(counts["at"] == "everywhere").astype("Int64")
    atomic_write(out, counts.sort_values("what", kind="stable").to_csv(index=False))


def main() -> None:
    """Run both clones, kill, compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--sweep-kills", type=int, default=20)
    parser.add_argument("--gap", type=float, default=20.0, help="seconds to the next kill, in the mean")
    parser.add_argument("--whole", type=Path, help="a clone of this commit in which everything has finished")
    parser.add_argument("--out", type=Path, default=Path("docs/pipeline_kills.csv"))
    options = parser.parse_args()
    place = Path(tempfile.mkdtemp(prefix="kills-"))
    whole = options.whole or clone(place / "whole", Path.cwd())
    folders = whole, clone(place / "killed", whole)

    def wipe(folder: Path) -> None:
        subprocess.run(["git", "clean", "-fdxq"], cwd=folder, check=True)
        subprocess.run(["git", "checkout", "-q", "."], cwd=folder, check=True)
        (folder / "kills.yaml").write_text(SPACE, encoding="utf-8")

    rows, passes = [], {}
    for what, command, kills, reset in (
        ("pipeline", PIPELINE, options.kills, wipe),
        ("sweep", SWEEP, options.sweep_kills, lambda folder: shutil.rmtree(folder / "sweeps")),
    ):
        finish(command, folders[0])
        hits, passes[what] = run(what, command, kills, options.gap, folders, reset)
        rows += hits
        write(rows, passes, options.out)
    with chdir(whole):
        about = provenance()
    print(
        json.dumps(
            {"kills": len(rows), "passes": passes, "commit": about["commit"], "machine": about["machine"]}, indent=1
        )
    )
    shutil.rmtree(place)


if __name__ == "__main__":
    main()
