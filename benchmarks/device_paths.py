"""Do the paths that need a GPU give what the CPU's give? Pairs of short runs that must learn the same.

    python -m benchmarks.device_paths [--device cpu] [--steps 20] [--out rows.jsonl]

Each line says how far the losses of two runs on the vendored sample lie apart, and whether their weights have the same
bits. With --device cpu the same pairs run on the processor. The text is that of the scale gpu-smoke. Exit code 1: a
pair lies further apart than it may.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from safetensors.torch import load_file

from benchmarks.gpu_job import record
from benchmarks.runs import as_a_worker, run_at
from stemrepro.common.paths import DATA
from stemrepro.measures.catalog import load
from stemrepro.training.run import Run
from stemrepro.training.train import train

SCALE = "gpu-smoke"
ROUNDING, HALF = 1e-4, 0.05
"""How far losses may lie apart, in nats: in float32, and where products are in 16 bits."""


@dataclass(frozen=True)
class Pair:
    """Two runs of an arm that differ in one setting.

    Attributes:
        name: of the difference.
        arm: of both.
        first, second: settings of the training, each over those of the scale.
        most: by which their losses may differ.
        stopped: whether the second is interrupted half-way, and resumes.
    """

    name: str
    arm: str
    first: dict
    second: dict
    most: float
    stopped: bool = False


def pairs(accelerator: str) -> tuple[Pair, ...]:
    """Return what is compared, the quick ones first."""
    cpu, here = {"accelerator": "cpu"}, {"accelerator": accelerator}
    return (
        Pair("processor and device, dense", "dense", cpu, here, ROUNDING),
        Pair("processor and device, STEM", "stem-full", cpu, here, ROUNDING),
        Pair("whole and resumed", "stem-full", here, here, ROUNDING, stopped=True),
        Pair("float32 and bfloat16", "stem-third", here, here | {"precision": "bf16-mixed"}, HALF),
        Pair("float32 and float16", "stem-third", here, here | {"precision": "16-mixed"}, HALF),
        Pair("eager and compiled", "stem-third", here, here | {"compile": True}, ROUNDING),
    )


class Stopped(Exception):
    """Stands for a kill."""


def trained(run: Run, stopped: bool) -> tuple[list[float], dict[str, torch.Tensor]]:
    """Train a run, once interrupted if asked for -> its losses and weights."""

    def leave(step: int, *_: object) -> None:
        if step > run.training.steps // 2:
            raise Stopped

    if stopped:
        with suppress(Stopped):
            train(run, leave)
    train(run, lambda *_: None)
    rows = (run.folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(row)["loss"] for row in rows], load_file(run.weights)


def compared(pair: Pair, base: Run, steps: int, accelerator: str, home: Path) -> dict:
    """Return a row: largest difference of losses, what is allowed, and whether weights have equal bits."""
    fields = {"tokens": steps * base.training.batch * base.training.sequence, "accelerator": accelerator,
              "compile": False, "save_every": max(1, steps // 4), "evals": 1}  # fmt: skip
    runs = [
        replace(base, folder=home / place, training=base.training.model_copy(update=fields | settings))
        for place, settings in (("first", pair.first), ("second", pair.second))
    ]
    (ours, weights), (theirs, others) = trained(runs[0], False), trained(runs[1], pair.stopped)
    equal = all(torch.equal(weight, others[name]) for name, weight in weights.items())
    apart = max(abs(a - b) for a, b in zip(ours, theirs, strict=True))
    return {"apart": apart, "most": pair.most, "same_bits": equal, "holds": apart <= pair.most}


def rows(device: str, steps: int) -> Iterator[dict]:
    """Yield a row for each pair; one that raises says why, and the others are compared all the same."""
    catalog, accelerator = load(), "gpu" if device == "cuda" else "cpu"
    for pair in pairs(accelerator):
        with tempfile.TemporaryDirectory() as home:
            base = run_at(catalog, catalog.scale(SCALE), pair.arm, DATA / SCALE / "blocks", Path("none"))
            try:
                found = compared(pair, base, steps, accelerator, Path(home))
            except Exception as error:
                found = {"error": " ".join(str(error).split())[:300], "holds": False}
        yield {"section": "paths", "pair": pair.name, **found}


def main() -> None:
    """Compare, print and record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--out")
    given = parser.parse_args()
    if given.device == "cuda" and not torch.cuda.is_available():
        sys.exit("torch sees no GPU here; give --device cpu")
    as_a_worker()
    holds = True
    for row in rows(given.device, given.steps):
        record(row, given.out)
        holds &= row["holds"]
    sys.exit(0 if holds else 1)


if __name__ == "__main__":
    main()
