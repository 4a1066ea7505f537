"""Do the paths that need a GPU give what the CPU's give? Pairs of short runs that must learn the same.

    python -m benchmarks.device_paths [--device gpu] [--steps 40]

Each line says how far the losses of two runs on the vendored sample lie apart, and whether their weights have the same
bits. With --device cpu the same pairs run on the processor. Exit code 1: a pair lies further apart than it may.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from safetensors.torch import load_file

from benchmarks.peers import VOCAB, prepared, shaped
from benchmarks.runs import as_a_worker
from stemrepro.measures.catalog import load
from stemrepro.training.run import Run
from stemrepro.training.train import train

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


def pairs(device: str) -> tuple[Pair, ...]:
    """Return what is compared on a device."""
    cpu, here = {"accelerator": "cpu"}, {"accelerator": device}
    rows = {"table_update": "touched"}
    return (
        Pair("processor and device, dense", "dense", cpu, here, ROUNDING),
        Pair("processor and device, STEM", "stem-full", cpu, here, ROUNDING),
        Pair("tables on the device and in host memory", "stem-touched", rows, rows | {"table_home": "host"}, ROUNDING),
        Pair("eager and compiled", "stem-third", here, here | {"compile": True}, ROUNDING),
        Pair("whole and resumed", "stem-full", here, here, ROUNDING, stopped=True),
        Pair("float32 and bfloat16", "stem-third", here, here | {"precision": "bf16-mixed"}, HALF),
        Pair("float32 and float16", "stem-third", here, here | {"precision": "16-mixed"}, HALF),
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


def compared(device: str, steps: int) -> Iterator[dict]:
    """Yield a row for each pair: name, largest difference of losses, what is allowed, and whether bits are equal."""
    catalog = load()
    with prepared() as home:
        base = shaped(catalog, "laptop", home, (8, 128), vocab=VOCAB)
        fields = {"tokens": steps * 8 * 128, "accelerator": device, "compile": False, "save_every": max(1, steps // 4),
                  "evals": 1, "snapshots": ()}  # fmt: skip
        for number, pair in enumerate(pairs(device)):
            runs = []
            for place, settings in enumerate((pair.first, pair.second)):
                run = base.run(pair.arm)
                training = run.training.model_copy(update=fields | settings)
                runs.append(replace(run, folder=Path(home) / f"pair{number}-{place}", training=training))
            (ours, weights), (theirs, others) = trained(runs[0], False), trained(runs[1], pair.stopped)
            equal = all(torch.equal(weight, others[name]) for name, weight in weights.items())
            apart = max(abs(a - b) for a, b in zip(ours, theirs, strict=True))
            yield {"pair": pair.name, "apart": apart, "most": pair.most, "same_bits": equal,
                   "holds": apart <= pair.most}  # fmt: skip


def main() -> None:
    """Compare and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "gpu"), default="gpu")
    parser.add_argument("--steps", type=int, default=40)
    given = parser.parse_args()
    if given.device == "gpu" and not torch.cuda.is_available():
        sys.exit("--device gpu: torch sees no GPU here; give --device cpu")
    as_a_worker()
    holds = True
    for row in compared(given.device, given.steps):
        print(json.dumps(row), flush=True)
        holds &= row["holds"]
    sys.exit(0 if holds else 1)


if __name__ == "__main__":
    main()
