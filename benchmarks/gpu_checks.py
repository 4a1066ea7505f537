"""Does a device compute what the processor computes, and do its own ways of training learn the same?

modules: one arm of each feed-forward network and memory makes one pass, forward and backward, on the same weights and
tokens: on the processor in float32, on the device in float32 and in bfloat16. How far do the losses lie apart, and the
worst gradient of a parameter, as the norm of the difference over the norm? paths: pairs of short runs on the text of
the scale gpu-smoke. How far do their losses lie apart, and have their weights equal bits?
"""

import json
import math
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from operator import sub
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

from benchmarks.runs import run_at
from stemrepro.common.paths import DATA
from stemrepro.config.arm import Arm, shaped
from stemrepro.config.catalog import Catalog
from stemrepro.model.config import ModelConfig
from stemrepro.model.transformer import build
from stemrepro.training.run import Run
from stemrepro.training.train import train

SCALE = "gpu-smoke"
# Arms whose gradients rounding may change by a choice, or by a norm or a gate that makes much of little
CHOOSING = ("topk-moe", "sparse-experts", "stem-slots", "joint-token-mixture", "gemma-ple", "engram", "mome")
# Nats between the losses, and the share of its norm between the gradients of a parameter. The worst of a processor's
# bfloat16 was 0.054, of a number that is the sum of many (torch 2.11, an AMD EPYC).
BOUNDS = {"float32": (1e-5, 1e-3), "bfloat16": (5e-3, 0.1)}
CHOSEN = 1e-2  # nats between losses in bfloat16 where a choice is discrete
SMALL = 1e-4  # of the norm of all gradients: smaller ones are compared with this share, as they are rounding
ROUNDING, HALF = 1e-4, 0.05  # nats between the losses of runs: in float32, and where products are in 16 bits


def classes(catalog: Catalog) -> dict[str, Arm]:
    """Return one arm of each network and memory, by name."""
    found = {}
    for name, arm in catalog.arms.items():
        found.setdefault((arm.ffn, arm.memory, arm.values != "none", arm.pairs), name)
    return {name: catalog.arms[name] for name in found.values()}


def step(config: ModelConfig, tokens: Tensor, device: str, bf16: bool = False) -> tuple[float, dict[str, Tensor]]:
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


def apart(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> tuple[float, str]:
    """Return how far the worst gradient lies from theirs, and its parameter; infinite where one side lacks it."""
    if lacking := sorted(ours.keys() ^ theirs.keys()):
        return math.inf, lacking[0]
    least = SMALL * float(torch.stack([gradient.norm() for gradient in theirs.values()]).norm())
    distances = [(float((ours[n] - g).norm() / g.norm().clamp_min(least)), n) for n, g in theirs.items()]
    return max(distances, key=lambda each: math.inf if math.isnan(each[0]) else each[0])


def modules(catalog: Catalog, device: str, names: Iterable[str] = ()) -> Iterator[dict]:
    """Yield how far loss and gradients lie from the processor's, of each type of number and each network and memory."""
    for name in names or classes(catalog):
        config, chooses = shaped(catalog.scale(SCALE).model, catalog.arms[name]), name in CHOOSING
        tokens = torch.randint(1, config.vocab, (8, 65), generator=torch.Generator().manual_seed(0))
        loss, gradients = step(config, tokens, "cpu")
        for kind, (most, most_gradient) in BOUNDS.items():
            bf16 = kind == "bfloat16"
            most, most_gradient = CHOSEN if chooses and bf16 else most, None if chooses else most_gradient
            row = {"class": name, "type": kind, "most_loss": most, "most_gradient": most_gradient}
            try:
                other, others = step(config, tokens, device, bf16)
                worst, where = apart(others, gradients)
                held = abs(other - loss) <= most and (chooses or worst <= most_gradient)
                yield row | {"loss": abs(other - loss), "gradient": worst, "parameter": where, "holds": held}
            except Exception as error:
                yield row | {"error": repr(error)[:300], "holds": False}


def pairs(device: str) -> list[tuple[str, str, dict, dict, float]]:
    """Return what is compared, the quick ones first: name, arm, settings of both runs, nats that they may differ by."""
    cpu, here = {"accelerator": "cpu"}, {"accelerator": "gpu" if device == "cuda" else "cpu"}
    return [
        ("processor and device, dense", "dense", cpu, here, ROUNDING),
        ("processor and device, STEM", "stem-full", cpu, here, ROUNDING),
        ("whole and resumed", "stem-full", here, here, ROUNDING),
        ("float32 and bfloat16", "stem-third", here, here | {"precision": "bf16-mixed"}, HALF),
        ("float32 and float16", "stem-third", here, here | {"precision": "16-mixed"}, HALF),
        ("eager and compiled", "stem-third", here, here | {"compile": True}, ROUNDING),
    ]


def trained(run: Run, stop: int) -> tuple[list[float], dict[str, Tensor]]:
    """Train a run, interrupted once from step `stop` on (0: never) -> its losses and weights."""

    def leave(step: int, *_: object) -> None:
        if 0 < stop <= step:
            raise InterruptedError

    with suppress(InterruptedError):
        train(run, leave)
    train(run, lambda *_: None)
    lines = (run.folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line)["loss"] for line in lines], load_file(run.weights)


def paths(catalog: Catalog, device: str, steps: int = 20) -> Iterator[dict]:
    """Yield a row for each pair: the largest difference of losses, and whether weights have equal bits."""
    scale, save = catalog.scale(SCALE), max(1, steps // 4)
    tokens = steps * scale.training.batch * scale.model.sequence
    same = {"tokens": tokens, "compile": False, "save_every": save, "evals": 1}
    for name, arm, *settings, most in pairs(device):
        try:
            with tempfile.TemporaryDirectory() as home:
                run = run_at(catalog, scale, arm, DATA / SCALE / "blocks", Path(home))
                first, second = (
                    replace(run, folder=run.folder / str(k), training=run.training.model_copy(update=same | own))
                    for k, own in enumerate(settings)
                )
                ours, weights = trained(first, stop=0)
                theirs, others = trained(second, stop=2 * save + 1 if name == "whole and resumed" else 0)
            far, equal = max(map(abs, map(sub, ours, theirs))), all(weights[key].equal(others[key]) for key in weights)
            yield {"pair": name, "apart": far, "most": most, "same_bits": equal, "holds": far <= most}
        except Exception as error:
            yield {"pair": name, "error": repr(error)[:300], "holds": False}
