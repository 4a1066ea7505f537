"""Is the engine fast? A training step of ours, eager and compiled, beside Hugging Face's Llama and litgpt's in one process.

    python -m benchmarks.engine [--scale laptop] [--rounds 60] [--arms stem-third stem-full token-only] [--peers]

Each round takes one step of everything, in another order each time, on the same random tokens; a row has the median over rounds of its
step's time and of its ratio to the row named in the column's head, by round. `FLOPs` is what an arm's step would be of dense's if time followed
them. --peers adds transformers' Llama and litgpt's GPT of dense's shape, with dense's loss, clipping and optimiser; litgpt where it is installed
(pip install --no-deps litgpt). Nothing else should run meanwhile.
"""

import argparse
import random
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.progress import track
from rich.table import Column, Table

from benchmarks.arms import step
from benchmarks.runs import as_a_worker, run_at
from stemrepro.book import load
from stemrepro.model.config import ModelConfig
from stemrepro.model.cost import flops_per_token
from stemrepro.model.loss import token_losses
from stemrepro.training.module import LanguageModule

WARM_UP = 5
Step = Callable[[torch.Tensor], float]
"""Takes a step on a batch [micro_batch, seq + 1] and returns its seconds."""


def own_step(module: LanguageModule) -> Step:
    """Loss, gradient, clipping and update as in training."""
    optimizer = module.configure_optimizers()["optimizer"]
    return lambda batch: step(module, optimizer, batch, bf16=False)[0]


def peer_step(model: torch.nn.Module, clip: float) -> Step:
    """The same of a model whose call gives logits [batch, seq, vocab]."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)

    def timed(batch: torch.Tensor) -> float:
        start = time.perf_counter()
        logits = model(batch[:, :-1])
        token_losses(getattr(logits, "logits", logits), batch[:, 1:]).mean().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        optimizer.zero_grad()
        return time.perf_counter() - start

    return timed


def llama(shape: ModelConfig, length: int) -> torch.nn.Module:
    """transformers' Llama of dense's shape."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=shape.vocab, hidden_size=shape.width, intermediate_size=shape.ffn_width, num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads, num_key_value_heads=shape.kv_heads, max_position_embeddings=length,
        rms_norm_eps=shape.norm_eps, tie_word_embeddings=False, use_cache=False,
    )  # fmt: skip
    return LlamaForCausalLM(config)


def litgpt(shape: ModelConfig, length: int) -> torch.nn.Module:
    """litgpt's GPT of dense's shape."""
    from litgpt import GPT, Config

    config = Config(
        block_size=length, vocab_size=shape.vocab, padded_vocab_size=shape.vocab, n_layer=shape.layers, n_head=shape.heads,
        n_query_groups=shape.kv_heads, n_embd=shape.width, rotary_percentage=1.0, parallel_residual=False, bias=False,
        norm_class_name="RMSNorm", norm_eps=shape.norm_eps, mlp_class_name="LLaMAMLP", intermediate_size=shape.ffn_width,
    )  # fmt: skip
    return GPT(config)


def main() -> None:
    """Prints one row a model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", default="laptop")
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--arms", nargs="*", default=["stem-third", "stem-full", "token-only"])
    parser.add_argument("--peers", action="store_true")
    options = parser.parse_args()
    as_a_worker()
    book = load()
    scale, blocks = book.scale(options.scale), Path("data") / options.scale / "blocks"
    torch.set_num_threads(scale.training.threads)
    runs = {arm: run_at(book, scale, arm, blocks, Path("none")) for arm in ("dense", *options.arms)}
    shape, length = runs["dense"].model, scale.model.sequence
    steps = {"dense, eager": own_step(LanguageModule(runs["dense"]))}
    steps |= {f"{arm}, compiled": own_step(LanguageModule(run, compile=True)) for arm, run in runs.items()}
    if options.peers:
        steps["transformers Llama"] = peer_step(llama(shape, length), scale.training.clip)
        if find_spec("litgpt"):
            steps["litgpt"] = peer_step(litgpt(shape, length), scale.training.clip)
    seconds, order = np.empty((options.rounds + WARM_UP, len(steps))), list(range(len(steps)))
    calls, size = list(steps.values()), (scale.training.micro_batch, length + 1)
    for number in track(range(len(seconds)), "rounds, after compiling", transient=True):
        batch = torch.randint(1, shape.vocab, size, generator=torch.Generator().manual_seed(number))
        random.Random(number).shuffle(order)
        for place in order:
            seconds[number, place] = calls[place](batch)
    names, seconds = list(steps), seconds[WARM_UP:]
    against = ["dense, eager", "dense, compiled", *(name for name in names if name in ("transformers Llama", "litgpt"))]
    table = Table(Column("", no_wrap=True), "tokens/s", *(f"step / {name}" for name in against), "FLOPs / dense")
    dense = flops_per_token(shape, length)
    for place, name in enumerate(names):
        ratios = [np.median(seconds[:, place] / seconds[:, names.index(other)]) for other in against]
        arm = name.partition(",")[0]
        flops = f"{flops_per_token(runs[arm].model, length) / dense:.3f}" if arm in runs else ""
        speed = size[0] * length / np.median(seconds[:, place])
        table.add_row(name, f"{speed:,.0f}", *(f"{ratio:.3f}" for ratio in ratios), flops)
    Console(width=max(Console().width, 110)).print(table)
    print(f"{options.rounds} rounds, {torch.get_num_threads()} thread(s), torch {torch.__version__}")


if __name__ == "__main__":
    main()
