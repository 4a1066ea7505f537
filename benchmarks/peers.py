"""A training step of ours against transformers' Llama and litgpt's GPT of the same shape, and STEM's against dense's.

    python -m benchmarks.peers [--out docs/steps.csv] [--quick]

A step is forward, loss, backward, clipping and AdamW on one batch of random tokens. The peers have our loss, clipping
and fused AdamW, so that only the model differs. Compiled steps are compiled alike, with the loss. Every round takes one
step of each, in another order each time, in one process with two threads. A row has medians over rounds and a 95%
interval of their ratio (a percentile bootstrap over rounds). litgpt is a peer where it is installed. What a GPU
sustains is benchmarks/gpu_speed.py's.

A run needs a text, of which no token is read: that of `make reproduce SCALE=smoke`. --quick takes few rounds of small
models and compiles none: does it run?
"""

import argparse
import gc
import os
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from scipy.stats import bootstrap

from benchmarks.runs import as_a_worker, interleaved, own_step, run_at
from stemrepro.common.files import atomic_write
from stemrepro.common.provenance import provenance
from stemrepro.config.scale import Scale
from stemrepro.measures.catalog import load
from stemrepro.model.config import ModelConfig
from stemrepro.model.cost import flops_per_token
from stemrepro.model.loss import token_losses
from stemrepro.training.compiling import compiled, compiler_works
from stemrepro.training.module import LanguageModule, mean_loss

THREADS = 2
OUT, BLOCKS = Path("docs/steps.csv"), Path("data/smoke/blocks")
STEMS = ("stem-third", "stem-half", "stem-full")
TOUCHED = "stem-touched"
"""STEM full whose optimiser moves only a batch's rows; such steps are never compiled (stemrepro.training.module)."""
MISSING = "not installed"
WIDE = {"layers": 8}
"""What the models of width 256 have other than the scale gpu."""
Step = Callable[[torch.Tensor], object]


def transformers_llama(shape: ModelConfig, length: int) -> torch.nn.Module:
    """Return transformers' Llama of dense's shape."""
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(LlamaConfig(
        vocab_size=shape.vocab, hidden_size=shape.width, intermediate_size=shape.ffn_width,
        num_hidden_layers=shape.layers, num_attention_heads=shape.heads, num_key_value_heads=shape.kv_heads,
        max_position_embeddings=length, rms_norm_eps=shape.norm_eps, tie_word_embeddings=False, use_cache=False,
    ))  # fmt: skip


def litgpt_gpt(shape: ModelConfig, length: int) -> torch.nn.Module:
    """Return litgpt's GPT of dense's shape."""
    from litgpt import GPT, Config

    return GPT(Config(
        block_size=length, vocab_size=shape.vocab, padded_vocab_size=shape.vocab, n_layer=shape.layers,
        n_head=shape.heads, n_query_groups=shape.kv_heads, n_embd=shape.width, rotary_percentage=1.0,
        parallel_residual=False, bias=False, norm_class_name="RMSNorm", norm_eps=shape.norm_eps,
        mlp_class_name="LLaMAMLP", intermediate_size=shape.ffn_width,
    ))  # fmt: skip


PEERS = {"transformers": transformers_llama, "litgpt": litgpt_gpt}
"""By package."""


class Logits(torch.nn.Module):
    """A peer as our loss calls a model."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def losses(self, tokens: torch.Tensor, targets: torch.Tensor, at_once: None) -> torch.Tensor:
        """Return the losses in nats: tokens and the tokens that follow them [batch, seq] -> [batch, seq]."""
        output = self.model(tokens)
        return token_losses(getattr(output, "logits", output), targets)


def peer_step(model: torch.nn.Module, clip: float, compile: bool) -> Step:
    """Return a step on a batch [sequences, length + 1] of a model that gives logits."""
    model, loss = Logits(model), compiled(mean_loss) if compile else mean_loss
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)

    def take(batch: torch.Tensor) -> None:
        loss(model, batch).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        optimizer.zero_grad()

    return take


def quotient(ours: np.ndarray, theirs: np.ndarray) -> tuple[float, float, float]:
    """Return median of ours / median of theirs, both [rounds], with the ends of its 95% interval."""

    def statistic(a: np.ndarray, b: np.ndarray, axis: int) -> np.ndarray:
        return np.median(a, axis=axis) / np.median(b, axis=axis)

    interval = bootstrap(
        (ours, theirs), statistic, paired=True, vectorized=True, method="percentile", n_resamples=2000, rng=0
    ).confidence_interval
    return float(statistic(ours, theirs, 0)), float(interval.low), float(interval.high)


def compared(scale: Scale, blocks: Path, size: tuple[int, int], compile: bool, rounds: int) -> list[dict]:
    """Return rows: each peer against dense in tokens a second, and each STEM's step against dense's in milliseconds.

    Args:
        scale: whose shape the models have.
        blocks: of any text of at most so large a vocabulary.
        size: sequences and tokens of a batch.
    """
    catalog, turns, stems = load(), {}, STEMS if compile else (*STEMS, TOUCHED)
    runs = {arm: run_at(catalog, scale, arm, blocks, Path("none")) for arm in ("dense", *stems)}
    for arm, run in runs.items():
        turns[arm] = own_step(LanguageModule(run, compile))
    for name, make in PEERS.items():
        try:
            turns[name] = peer_step(make(runs["dense"].model, size[1]), scale.training.clip, compile)
        except ImportError:
            continue
    seconds = interleaved(turns, (size[0], size[1] + 1), scale.model.vocab, rounds)
    del turns
    gc.collect()
    note, what = (
        f"{size[0]} x {size[1]} tokens a step",
        f"width {scale.model.width}, {'compiled' if compile else 'eager'}",
    )
    rows = []
    for name in PEERS:
        row = {"measure": "training step", "what": f"dense, {what}", "peer": name, "unit": "tokens/s"}
        if name in seconds:
            ratio, low, high = quotient(seconds[name], seconds["dense"])
            speeds = [size[0] * size[1] / np.median(seconds[each]) for each in ("dense", name)]
            row |= {"peer": f"{name} {version(name)}"} | dict(zip(("ours", "theirs"), speeds, strict=True))
            row |= {"ratio": ratio, "low": low, "high": high}
        rows.append(row | {"note": note if name in seconds else MISSING})
    flops = {arm: flops_per_token(run.model, size[1]) for arm, run in runs.items()}
    for arm in stems:
        ratio, low, high = quotient(seconds[arm], seconds["dense"])
        times = {key: 1e3 * np.median(seconds[each]) for key, each in (("ours", arm), ("theirs", "dense"))}
        row = {"measure": "STEM's step", "what": f"{arm}, {what}", "peer": "dense", "unit": "ms a step"}
        row |= {"ratio": ratio, "low": low, "high": high, "flop_ratio": flops[arm] / flops["dense"], "note": note}
        rows.append(row | times)
    return rows


def origin() -> dict[str, str | int | float]:
    """Return the columns of every row about its origin."""
    about, versions = provenance(), {}
    for package in ("torch", *PEERS):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return {
        "machine": about["machine"],
        "threads": torch.get_num_threads(),
        "load_before": round(os.getloadavg()[0], 2),
        "versions": ", ".join(f"{package} {number}" for package, number in versions.items()),
        "commit": about["commit"],
        "date": about["date"],
    }


def measured(quick: bool, blocks: Path = BLOCKS) -> pd.DataFrame:
    """Return all rows: at the laptop's width eager and compiled, and at width 256 eager."""
    catalog = load()
    small = {"vocab": 512, "width": 32, "layers": 3, "heads": 2, "kv_heads": 1, "ffn_width": 48}

    def shape(name: str, **fields: int) -> Scale:
        scale = catalog.scale(name)
        return scale.model_copy(update={"model": scale.model.model_copy(update=fields)})

    laptop = shape("laptop", **small if quick else {"vocab": 512})
    wide = shape("gpu", **small | {"width": 64} if quick else WIDE)
    rows = compared(laptop, blocks, (2, 32) if quick else (8, 128), False, 6 if quick else 60)
    rows += compared(wide, blocks, (2, 32) if quick else (4, 256), False, 6 if quick else 12)
    if not quick and compiler_works("cpu"):
        rows += compared(laptop, blocks, (8, 128), True, 60)
    return pd.DataFrame(rows)


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    as_a_worker()
    torch.set_num_threads(THREADS)
    about, table = origin(), measured(options.quick)
    print(table.to_string(index=False))
    if out := options.out or (None if options.quick else OUT):
        atomic_write(out, table.assign(**about).to_csv(index=False, float_format="%.6g"))
        print(f"written: {out}")


if __name__ == "__main__":
    main()
