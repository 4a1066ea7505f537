"""A training step of ours against transformers' Llama and litgpt's GPT of the same shape, and STEM's against dense's.

    python -m benchmarks.peers [--out docs/steps.csv]

A step is forward, loss, backward, clipping and fused AdamW, all ours but for the model, and compiled alike, on random
tokens, in one process with two threads. A row has medians over rounds and a 95% bootstrap interval of their ratio.
litgpt is a peer where it is installed. A run needs a text, of which nothing is read: that of the scale smoke.
"""

import argparse
import os
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from benchmarks.runs import Step, as_a_worker, interleaved, own_step, run_at
from stemrepro.common.files import atomic_write
from stemrepro.common.provenance import provenance
from stemrepro.config.scale import Scale
from stemrepro.measures.catalog import load
from stemrepro.model.config import ModelConfig
from stemrepro.model.cost import flops_per_token
from stemrepro.model.loss import token_losses
from stemrepro.training.compiling import compiled, compiler_works
from stemrepro.training.module import LanguageModule

OUT, BLOCKS = Path("docs/steps.csv"), Path("data/smoke/blocks")
STEMS = ("stem-third", "stem-half", "stem-full", "stem-touched")
WIDE = {"layers": 8}  # what the models of width 256 have other than the scale gpu


def transformers_llama(shape: ModelConfig, length: int) -> torch.nn.Module:
    """Return transformers' Llama of dense's shape."""
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=shape.vocab,
            hidden_size=shape.width,
            intermediate_size=shape.ffn_width,
            num_hidden_layers=shape.layers,
            num_attention_heads=shape.heads,
            num_key_value_heads=shape.kv_heads,
            max_position_embeddings=length,
            rms_norm_eps=shape.norm_eps,
            tie_word_embeddings=False,
            use_cache=False,
        )
    )


def litgpt_gpt(shape: ModelConfig, length: int) -> torch.nn.Module:
    """Return litgpt's GPT of dense's shape."""
    from litgpt import GPT, Config

    return GPT(
        Config(
            block_size=length,
            vocab_size=shape.vocab,
            padded_vocab_size=shape.vocab,
            n_layer=shape.layers,
            n_head=shape.heads,
            n_query_groups=shape.kv_heads,
            n_embd=shape.width,
            rotary_percentage=1.0,
            parallel_residual=False,
            bias=False,
            norm_class_name="RMSNorm",
            norm_eps=shape.norm_eps,
            mlp_class_name="LLaMAMLP",
            intermediate_size=shape.ffn_width,
        )
    )


PEERS = {"transformers": transformers_llama, "litgpt": litgpt_gpt}


def peer_step(model: torch.nn.Module, clip: float, compile: bool) -> Step:
    """Return a step on a batch [sequences, length + 1] of a model that gives logits."""

    def mean_loss(batch: torch.Tensor) -> torch.Tensor:
        output = model(batch[:, :-1])
        return token_losses(getattr(output, "logits", output), batch[:, 1:]).mean()

    loss, optimizer = compiled(mean_loss) if compile else mean_loss, torch.optim.AdamW(model.parameters(), fused=True)

    def take(batch: torch.Tensor) -> None:
        loss(batch).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        optimizer.zero_grad()

    return take


def quotient(ours: np.ndarray, theirs: np.ndarray) -> dict[str, float]:
    """Return median of ours / median of theirs, both [rounds], with the ends of its 95% interval."""
    drawn = np.random.default_rng(0).integers(len(ours), size=(2000, len(ours)))
    low, high = np.quantile(np.median(ours[drawn], axis=1) / np.median(theirs[drawn], axis=1), (0.025, 0.975))
    return {"ratio": float(np.median(ours) / np.median(theirs)), "low": float(low), "high": float(high)}


def compared(scale: Scale, size: tuple[int, int], compile: bool, rounds: int, blocks: Path = BLOCKS) -> list[dict]:
    """Return rows, of batches [sequences, tokens]: each peer in tokens a second, each STEM in ms, against dense."""
    # Where the optimiser moves only a batch's rows, a step is never compiled (stemrepro.training.module).
    catalog, stems = load(), [arm for arm in STEMS if not (compile and arm == "stem-touched")]
    runs = {arm: run_at(catalog, scale, arm, blocks, Path("none")) for arm in ("dense", *stems)}
    turns = {arm: own_step(LanguageModule(run, compile)) for arm, run in runs.items()}
    peers = [name for name in PEERS if find_spec(name)]
    for name in peers:
        turns[name] = peer_step(PEERS[name](runs["dense"].model, size[1]), scale.training.clip, compile)
    seconds = interleaved(turns, (size[0], size[1] + 1), scale.model.vocab, rounds)
    what = f"width {scale.model.width}, {'compiled' if compile else 'eager'}"
    note, tokens, dense = f"{size[0]} x {size[1]} tokens a step", size[0] * size[1], seconds["dense"]
    middle = {name: float(np.median(times)) for name, times in seconds.items()}
    rows: list[dict] = [
        {
            "measure": "training step",
            "what": f"dense, {what}",
            "peer": f"{name} {version(name)}",
            "unit": "tokens/s",
            "ours": tokens / middle["dense"],
            "theirs": tokens / middle[name],
        }
        | quotient(seconds[name], dense)
        for name in peers
    ]
    flops = {arm: flops_per_token(run.model, size[1]) for arm, run in runs.items()}
    rows += [
        {
            "measure": "STEM's step",
            "what": f"{arm}, {what}",
            "peer": "dense",
            "unit": "ms a step",
            "ours": 1e3 * middle[arm],
            "theirs": 1e3 * middle["dense"],
            **quotient(seconds[arm], dense),
            "flop_ratio": flops[arm] / flops["dense"],
        }
        for arm in stems
    ]
    return [row | {"note": note} for row in rows]


def main() -> None:
    """Measure at the laptop's width eager and compiled and at width 256 eager, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=OUT)
    out, about, catalog = parser.parse_args().out, provenance(), load()
    as_a_worker()
    torch.set_num_threads(2)
    versions = ", ".join(f"{name} {version(name)}" for name in ("torch", *PEERS) if find_spec(name))
    origin = {
        "machine": about["machine"],
        "threads": 2,
        "load_before": round(os.getloadavg()[0], 2),
        "versions": versions,
        "commit": about["commit"],
        "date": about["date"],
    }
    laptop, wide = (
        scale.model_copy(update={"model": scale.model.model_copy(update=own)})
        for scale, own in ((catalog.scale("laptop"), {"vocab": 512}), (catalog.scale("gpu"), WIDE))
    )
    rows = compared(laptop, (8, 128), False, 60) + compared(wide, (4, 256), False, 12)
    table = pd.DataFrame(rows + (compared(laptop, (8, 128), True, 60) if compiler_works("cpu") else []))
    print(table.to_string(index=False))
    atomic_write(out, table.assign(**origin).to_csv(index=False, float_format="%.6g"))


if __name__ == "__main__":
    main()
