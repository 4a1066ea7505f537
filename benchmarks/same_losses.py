"""Does every arm train to the same bits as at an earlier commit? Says whether results of that commit may be kept.

    python -m benchmarks.same_losses COMMIT [--steps 40] [--adopt SCALE]

Trains every arm of both trees on the vendored sample, on this machine. Compares losses and gradient norms of all steps
and the final weights, bit for bit. With --adopt, runs of a scale that were made by the code of COMMIT, of arms that are
bit-equal, are marked as made by today's, and `dvc repro` doesn't train them again. Exit code 1: some arms differ.
"""

import argparse
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path

import yaml
from safetensors.torch import load_file
from safetensors.torch import save as to_bytes

from stemrepro.common.files import atomic_write, digest, read_json, write_json
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
        weights = b"".join(key.encode() + w.numpy().tobytes() for key, w in sorted(load_file(run.weights).items()))
        results[arm] = {"weights": hashlib.sha256(weights).hexdigest(), "code": run.config["code"]}
        results[arm] |= {key: [row[key] for row in rows] for key in ("loss", "norm")}
        print(arm, end=" ", flush=True)
    with open(os.environ["SAME_LOSSES_OUT"], "w") as file:
        json.dump(results, file)
'''


@contextmanager
def tree_of(commit: str) -> Iterator[Path]:
    """Unpack a commit, without its results, for as long as it is needed; git says why where it can't."""
    with tempfile.TemporaryDirectory() as place:
        asked = ["git", "archive", commit, ":!results", ":!scores"]
        archive = subprocess.run(asked, cwd=ROOT, stdout=subprocess.PIPE)
        if archive.returncode:
            sys.exit(2)
        with tarfile.open(fileobj=BytesIO(archive.stdout)) as opened:
            opened.extractall(place, filter="data")
        yield Path(place)


def run_child(place: Path, code: str, plugins: Sequence[str], **variables: object) -> None:
    """Run a test file in a tree, with that tree's code and fixtures, on one thread."""
    with tempfile.TemporaryDirectory() as folder:
        child = Path(folder, "test_child.py")
        child.write_text(code, encoding="utf-8")
        own = {"PYTHONPATH": place, "OMP_NUM_THREADS": 1} | variables
        options = ["-q", "-s", "-p", "no:xdist", "-p", "no:cacheprovider", "-o", "addopts="]
        options += [option for plugin in plugins for option in ("-p", plugin)]
        environment = os.environ | {key: str(value) for key, value in own.items()}
        subprocess.run([sys.executable, "-m", "pytest", *options, child], check=True, cwd=place, env=environment)


def trained(place: Path, steps: int) -> dict[str, dict]:
    """Return losses, norms, weights and code of every arm of a tree."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "found.json")
        run_child(place, CHILD, ["tests.conftest"], SAME_LOSSES_OUT=out, SAME_LOSSES_STEPS=steps)
        return json.loads(out.read_text(encoding="utf-8"))


def difference(before: dict, now: dict) -> str:
    """Return in what an arm differs between two trees; an empty text where it doesn't."""
    for what in ("loss", "norm"):
        for step, (old, new) in enumerate(zip(before[what], now[what], strict=True), 1):
            if old != new:
                return f"{what} differs from step {step} on ({old!r} there, {new!r} here)"
    return "" if before["weights"] == now["weights"] else "the final weights differ"


def adopt(runs: list[Run], codes: dict[str, str]) -> list[Run]:
    """Mark finished runs, made by the code that `codes` has by arm, as made by today's, and return those."""
    adopted = []
    for run in runs:
        path = run.folder / "config.yaml"
        config = yaml.safe_load(path.read_text(encoding="utf-8")) if path.exists() else run.config
        if config == run.config or config != run.config | {"code": codes.get(run.address.arm)}:
            continue
        if run.weights.exists():
            atomic_write(run.weights, to_bytes(load_file(run.weights), {"config": digest(run.config)}))
        for checkpoint in (run.folder / name for name in (END, STABLE)):
            if checkpoint.exists():
                own = {"run_config": run.config, "stable_phase": run.stable_phase}
                AtomicCheckpointIO().save_checkpoint(AtomicCheckpointIO().load_checkpoint(checkpoint) | own, checkpoint)
        if (record := run.folder / "provenance.json").exists():
            write_json(record, read_json(record) | {"params_hash": run.params_hash})
        atomic_write(path, yaml.safe_dump(run.config, sort_keys=False))
        adopted.append(run)
    return adopted


def main() -> None:
    """Print a line per arm that differs, and the count of those that don't."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commit")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--adopt", metavar="SCALE", default="", help="keep this scale's runs of bit-equal arms")
    options = parser.parse_args()
    with tree_of(options.commit) as place:
        before = trained(place, options.steps)
    now = trained(ROOT, options.steps)
    differences = {arm: difference(before[arm], now[arm]) for arm in before if arm in now}
    equal = [arm for arm, words in differences.items() if not words]
    print("", *(f"{arm}: {words}" for arm, words in differences.items() if words), sep="\n")
    new, gone = sorted(now.keys() - before.keys()), sorted(before.keys() - now.keys())
    print(
        f"{len(equal)} of {len(differences)} arms train to the same bits as at {options.commit} in "
        f"{options.steps} steps; new: {', '.join(new) or 'none'}; gone: {', '.join(gone) or 'none'}"
    )
    if options.adopt:
        adopted = adopt(runs_of(make_plan(options.adopt)), {arm: before[arm]["code"] for arm in equal})
        print(f"{len(adopted)} runs of scale '{options.adopt}' are kept as made by today's code")
    sys.exit(0 if len(equal) == len(differences) else 1)


if __name__ == "__main__":
    main()
