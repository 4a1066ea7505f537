"""Does every arm train to the same bits as at an earlier commit? Says whether results of that commit may be kept.

    python -m benchmarks.same_losses COMMIT [--steps 40] [--adopt SCALE]

Trains every arm of both trees on the vendored sample, on this machine, one after the other. Compares losses and
gradient norms of all steps and the final weights, bit for bit.

With --adopt, runs of a scale that were made by the code of COMMIT, of arms that are bit-equal, are marked as made by
today's. Nothing else in them changes, and `dvc repro` doesn't train them again.

Exit code: 0 if all arms that both trees have are equal, 1 if not.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml
from rich.console import Console
from safetensors.torch import load_file
from safetensors.torch import save as to_bytes

from stemrepro.common.errors import UserError
from stemrepro.common.files import atomic_write, digest
from stemrepro.common.progress import track
from stemrepro.pipeline.plan import make_plan
from stemrepro.pipeline.runs import runs_of
from stemrepro.training.checkpoint import END, STABLE, AtomicCheckpointIO
from stemrepro.training.run import Run

ROOT = Path(__file__).parent.parent
CHILD = '''
"""Trains every arm of this tree and writes what came out; the fixtures are the tree's own."""
import hashlib
import json
import os

import yaml
from safetensors.torch import load_file

from stemrepro.training.train import train
from tests.conftest import ROOT, quiet

STEPS = int(os.environ["SAME_LOSSES_STEPS"])


def test_write(make_run, tiny):
    shape = tiny.model.model_copy(update={"width": 64, "layers": 6, "ffn_width": 176})
    tokens = STEPS * tiny.training.batch * shape.sequence
    budget = tiny.training.model_copy(update={"tokens": tokens, "save_every": STEPS + 1})
    scale, results = tiny.model_copy(update={"model": shape, "training": budget}), {}
    for arm in yaml.safe_load((ROOT / "recipes/arms.yaml").read_text(encoding="utf-8")):
        run = make_run(arm, scale=scale)
        train(run, quiet)
        rows = [json.loads(line) for line in (run.folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
        hashed = hashlib.sha256()
        for name, value in sorted(load_file(run.weights).items()):
            hashed.update(name.encode() + value.numpy().tobytes())
        results[arm] = {
            "loss": [row["loss"] for row in rows], "norm": [row["norm"] for row in rows], "weights": hashed.hexdigest(),
            "code": run.config["code"],
        }
        print(f"TRAINED {arm}", flush=True)
    with open(os.environ["SAME_LOSSES_OUT"], "w") as file:
        json.dump(results, file)
'''


@contextmanager
def tree(commit: str) -> Iterator[Path]:
    """Give a checkout of a commit, removed afterwards.

    Raises:
        UserError: git fails; it has git's message.
    """
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "tree"
        command = ["git", "worktree", "add", "--quiet", "--detach", str(place), commit]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        if done.returncode:
            raise UserError(f"commit '{commit}': git says: {done.stderr.strip()}")
        try:
            yield place
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", str(place)], cwd=ROOT, check=True)


def trained(place: Path, steps: int, words: str) -> dict[str, dict]:
    """Return losses, norms, weights and code of every arm of a tree.

    Raises:
        UserError: the training failed; it has the last output.
    """
    child = place / "tests" / "same_losses_child.py"
    arms = len(yaml.safe_load((place / "recipes/arms.yaml").read_text(encoding="utf-8")))
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "found.json"
        environment = os.environ | {
            "PYTHONPATH": str(place),
            "SAME_LOSSES_OUT": str(out),
            "SAME_LOSSES_STEPS": str(steps),
            "OMP_NUM_THREADS": "1",
        }
        options = ["-q", "-s", "-p", "no:xdist", "-p", "no:cacheprovider", "-o", "addopts=", str(child)]
        child.write_text(CHILD, encoding="utf-8")
        try:
            process = subprocess.Popen(
                [sys.executable, "-m", "pytest", *options], cwd=place, env=environment, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, text=True,
            )  # fmt: skip
            shown = []
            lines = (shown.append(line) for line in process.stdout)
            for _ in track((line for line in lines if "TRAINED" in shown[-1]), words, total=arms):
                pass
            if process.wait() or not out.exists():
                raise UserError(f"{words} failed:\n{''.join(shown[-40:])}")
        finally:
            child.unlink()
        return json.loads(out.read_text(encoding="utf-8"))


def difference(before: dict, now: dict) -> str:
    """Return in what an arm differs between two trees; an empty text where it doesn't."""
    for what in ("loss", "norm"):
        for step, (old, new) in enumerate(zip(before[what], now[what], strict=True), 1):
            if old != new:
                return f"{what} differs from step {step} on ({old!r} there, {new!r} here)"
    return "" if before["weights"] == now["weights"] else "the final weights differ"


def adopt(runs: list[Run], codes: dict[str, str]) -> list[Run]:
    """Mark finished runs as made by today's code, where they differ in that alone, and return those.

    Their checkpoints are marked too, so that other runs can resume from them. A run that resumes from another names
    that one's code among its settings, and is not adopted.

    Args:
        runs: candidates.
        codes: of each arm that trains to the same bits, the code that the runs must have been made by.
    """
    adopted = []
    for run in runs:
        path = run.folder / "config.yaml"
        config = yaml.safe_load(path.read_text(encoding="utf-8")) if path.exists() else None
        if config is None or config == run.config or config | {"code": run.code} != run.config:
            continue
        if config["code"] != codes.get(run.address.arm):
            continue
        if run.weights.exists():
            atomic_write(run.weights, to_bytes(load_file(run.weights), {"config": digest(run.config)}))
        for checkpoint in (run.folder / name for name in (END, STABLE)):
            if checkpoint.exists():
                held = AtomicCheckpointIO().load_checkpoint(checkpoint)
                AtomicCheckpointIO().save_checkpoint(
                    held | {"run_config": run.config, "stable_phase": run.stable_phase}, checkpoint
                )
        atomic_write(path, yaml.safe_dump(run.config, sort_keys=False))
        adopted.append(run)
    return adopted


def main() -> int:
    """Print a line per arm that differs, and the count of those that don't."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commit")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--adopt", metavar="SCALE", default="", help="keep this scale's runs of bit-equal arms")
    options, console = parser.parse_args(), Console()
    try:
        with tree(options.commit) as place:
            before = trained(place, options.steps, f"arms at {options.commit}")
        now = trained(ROOT, options.steps, "arms here")
        differences = {arm: difference(before[arm], now[arm]) for arm in before if arm in now}
        for arm, words in differences.items():
            if words:
                console.print(f"{arm}: {words}", highlight=False)
        new, gone = sorted(now.keys() - before.keys()), sorted(before.keys() - now.keys())
        equal = [arm for arm, words in differences.items() if not words]
        console.print(
            f"{len(equal)} of {len(differences)} arms train to the same bits as at {options.commit} "
            f"in {options.steps} steps; new: {', '.join(new) or 'none'}; gone: {', '.join(gone) or 'none'}",
            highlight=False,
        )
        if options.adopt:
            runs = runs_of(make_plan(options.adopt))
            adopted = adopt(runs, {arm: before[arm]["code"] for arm in equal})
            console.print(
                f"{len(adopted)} runs of scale '{options.adopt}' are kept as made by today's code", highlight=False
            )
    except UserError as error:
        console.print(f"same_losses: {error}", highlight=False, markup=False)
        return 2
    return 0 if len(equal) == len(differences) else 1


if __name__ == "__main__":
    sys.exit(main())
