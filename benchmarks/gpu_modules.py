"""Does every feed-forward network and every memory compute on a device what it computes on the processor?

    python -m benchmarks.gpu_modules [--device cpu] [--out rows.jsonl]

One arm of each class makes one forward and one backward pass on the same weights and tokens: on the processor in
float32, on the device in float32, and there in bfloat16 as training does. A line says how far the losses lie apart and
how far the worst gradient of a parameter does, as the norm of the difference over the norm. Where a choice is discrete
(an expert, one of several rows) rounding may change it, so gradients are bounded elsewhere only. Exit code 1: some lie
further apart than they may.
"""

import argparse
import sys

import torch

from benchmarks.gpu_job import record
from stemrepro.config.arm import Arm, shaped
from stemrepro.config.catalog import Catalog
from stemrepro.measures.catalog import load
from stemrepro.model.config import ModelConfig
from stemrepro.model.transformer import build

SCALE = "gpu-smoke"
"""Whose shape the models have."""
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
        except Exception as error:  # of this class alone; the others are compared all the same
            row |= {"error": " ".join(str(error).split())[:300], "holds": False}
        rows.append(row)
    return rows


def main() -> None:
    """Compare, print and record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--out")
    given = parser.parse_args()
    catalog, holds = load(), True
    shape = catalog.scale(SCALE).model
    for name, arm in classes(catalog).items():
        for row in compared(name, shaped(shape, arm), given.device):
            record({"section": "modules", **row}, given.out)
            holds &= row["holds"]
    sys.exit(0 if holds else 1)


if __name__ == "__main__":
    main()
