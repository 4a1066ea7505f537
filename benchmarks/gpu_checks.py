"""Does a device compute what the processor computes, and do its own ways of training learn the same?

    python -m benchmarks.gpu_checks modules [--device cpu] [--out rows.jsonl]
    python -m benchmarks.gpu_checks paths [--steps 20]

modules: one arm of each feed-forward network and memory makes one forward and one backward pass on the same weights and
tokens: on the processor in float32, on the device in float32, and there in bfloat16 as training does. A line says how
far the losses lie apart and how far the worst gradient of a parameter does, as the norm of the difference over the
norm. Where a choice is discrete (an expert, one of several rows) rounding may change it, so gradients are bounded
elsewhere only.

paths: pairs of short runs on the text of the scale gpu-smoke: on the processor and the device, whole and resumed, in
other types of numbers, compiled. A line says how far their losses lie apart, and whether their weights have equal bits.

Exit code 1: some lie further apart than they may.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors.torch import load_file

from benchmarks.gpu_job import failed, record
from benchmarks.runs import as_a_worker, run_at
from stemrepro.common.paths import DATA
from stemrepro.config.arm import Arm, shaped
from stemrepro.config.catalog import Catalog
from stemrepro.measures.catalog import load
from stemrepro.model.config import ModelConfig
from stemrepro.model.transformer import build
from stemrepro.training.run import Run
from stemrepro.training.train import train

SCALE = "gpu-smoke"
SEQUENCES, LENGTH = 8, 64
CHOOSING = ("topk-moe", "sparse-experts", "stem-slots", "joint-token-mixture", "gemma-ple", "engram", "mome")
"""Arms whose gradients rounding may change by a choice, or by a norm or a gate that makes much of little."""
LOSSES = {"float32": 1e-5, "bfloat16": 5e-3}
GRADIENTS = {"float32": 1e-3, "bfloat16": 0.1}
"""The worst of a processor's bfloat16 was 0.054, of a number that is the sum of many (torch 2.11, an AMD EPYC)."""
CHOSEN = 1e-2
"""The most that a loss in bfloat16 may differ by where a choice is discrete, in nats."""
SMALL = 1e-4
"""Of the norm of all gradients: smaller ones of a parameter are compared with this share, as they are rounding."""
ROUNDING, HALF = 1e-4, 0.05
"""How far losses of runs may lie apart, in nats: in float32, and where products are in 16 bits."""


def classes(catalog: Catalog) -> dict[str, Arm]:
    """Return one arm of each network and memory, by name."""
    found = {}
    for name, arm in catalog.arms.items():
        found.setdefault((arm.ffn, arm.memory, arm.values != "none", arm.pairs), name)
    return {name: catalog.arms[name] for name in found.values()}


def step(
    config: ModelConfig, tokens: torch.Tensor, device: str, bf16: bool = False
) -> tuple[float, dict[str, torch.Tensor]]:
    """Return the loss in nats of tokens [sequences, length + 1], and the gradients by parameter, on the processor."""
    model, counts = build(config, 0), torch.bincount(tokens.flatten(), minlength=config.vocab)
    for layer, block in enumerate(model.blocks):
        block.ffn.start_run(lambda: counts)
        block.ffn.start_step(f"0:0:{layer}")
    model, tokens = model.to(device), tokens.to(device)
    with torch.autocast(device, torch.bfloat16, enabled=bf16):
        loss = model.losses(tokens[:, :-1], tokens[:, 1:]).mean()
    loss.backward()
    return loss.item(), {name: p.grad.float().cpu() for name, p in model.named_parameters() if p.grad is not None}


def apart(ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor]) -> tuple[float, str]:
    """Return how far the worst gradient lies from theirs, and its parameter; infinite where one side lacks it."""
    if lacking := sorted(ours.keys() ^ theirs.keys()):
        return float("inf"), lacking[0]
    floor = SMALL * float(torch.stack([gradient.norm() for gradient in theirs.values()]).norm())
    distances = {
        name: float((gradient - theirs[name]).norm() / theirs[name].norm().clamp_min(floor))
        for name, gradient in ours.items()
    }
    worst = max(distances, key=lambda name: distances[name] if distances[name] == distances[name] else float("inf"))
    return distances[worst], worst


def compared(name: str, config: ModelConfig, device: str) -> list[dict]:
    """Return a row for each type of number: how far loss and gradients lie from the processor's."""
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(1, config.vocab, (SEQUENCES, LENGTH + 1), generator=generator)
    loss, gradients = step(config, tokens, "cpu")
    rows = []
    for kind in LOSSES:
        chooses, bf16 = name in CHOOSING, kind == "bfloat16"
        most = CHOSEN if chooses and bf16 else LOSSES[kind]
        row = {"class": name, "type": kind, "most_loss": most, "most_gradient": None if chooses else GRADIENTS[kind]}
        try:
            other, others = step(config, tokens, device, bf16)
            worst, where = apart(others, gradients)
            held = abs(other - loss) <= most and (chooses or worst <= GRADIENTS[kind])
            row |= {"loss": abs(other - loss), "gradient": worst, "parameter": where, "holds": held}
        except Exception as error:
            row |= failed(error) | {"holds": False}
        rows.append(row)
    return rows


def modules(device: str) -> Iterator[dict]:
    """Yield the rows of every network and memory."""
    catalog = load()
    for name, arm in classes(catalog).items():
        yield from compared(name, shaped(catalog.scale(SCALE).model, arm), device)


class Pair(NamedTuple):
    """Two runs of an arm with settings of their own; their losses may lie `most` apart; the second may be resumed."""

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
    """Train a run, once interrupted half-way if asked for -> its losses and weights."""

    def leave(step: int, *_: object) -> None:
        if step > run.training.steps // 2:
            raise Stopped

    if stopped:
        with suppress(Stopped):
            train(run, leave)
    train(run, lambda *_: None)
    rows = (run.folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(row)["loss"] for row in rows], load_file(run.weights)


def both(pair: Pair, base: Run, steps: int, accelerator: str, home: Path) -> dict:
    """Return a row: largest difference of losses, what is allowed, and whether weights have equal bits."""
    fields = {"tokens": steps * base.training.batch * base.training.sequence, "accelerator": accelerator,
              "compile": False, "save_every": max(1, steps // 4), "evals": 1}  # fmt: skip
    runs = [
        replace(base, folder=home / place, training=base.training.model_copy(update=fields | settings))
        for place, settings in (("first", pair.first), ("second", pair.second))
    ]
    (ours, weights), (theirs, others) = trained(runs[0], False), trained(runs[1], pair.stopped)
    equal = all(torch.equal(weight, others[name]) for name, weight in weights.items())
    most = max(abs(a - b) for a, b in zip(ours, theirs, strict=True))
    return {"apart": most, "most": pair.most, "same_bits": equal, "holds": most <= pair.most}


def paths(device: str, steps: int) -> Iterator[dict]:
    """Yield a row for each pair."""
    catalog, accelerator = load(), "gpu" if device == "cuda" else "cpu"
    for pair in pairs(accelerator):
        with tempfile.TemporaryDirectory() as home:
            base = run_at(catalog, catalog.scale(SCALE), pair.arm, DATA / SCALE / "blocks", Path("none"))
            try:
                found = both(pair, base, steps, accelerator, Path(home))
            except Exception as error:
                found = failed(error) | {"holds": False}
        yield {"pair": pair.name, **found}


def main() -> None:
    """Compare, print and record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("modules", "paths"))
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--out")
    given = parser.parse_args()
    if given.device == "cuda" and not torch.cuda.is_available():
        sys.exit("torch sees no GPU here; give --device cpu")
    if given.part == "paths":
        as_a_worker()
    holds = True
    for row in modules(given.device) if given.part == "modules" else paths(given.device, given.steps):
        record({"section": given.part, **row}, given.out)
        holds &= row["holds"]
    sys.exit(0 if holds else 1)


if __name__ == "__main__":
    main()
