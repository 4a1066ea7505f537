"""A training step of ours against transformers' Llama and litgpt's GPT of the same shape, and STEM's against dense's.

A step is forward, loss, backward, clipping and AdamW on one batch of random tokens. The peers have our loss, clipping
and fused AdamW, so that only the model differs. Compiled steps are compiled alike, with the loss.
"""

import gc
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.engine import own_step
from benchmarks.interleaved import Row, compared, interleaved
from benchmarks.runs import run_at
from stemrepro.config.catalog import Catalog
from stemrepro.config.scale import Scale
from stemrepro.model.config import ModelConfig
from stemrepro.model.cost import flops_per_token
from stemrepro.model.loss import token_losses
from stemrepro.training.compiling import compiled
from stemrepro.training.module import LanguageModule, mean_loss
from stemrepro.training.run import Run

TRAINING, STEM, PRODUCTS = "training step", "STEM's step", "products in a step"
FASTER, SLOWER = 1.4, 1.05
"""Targets: tokens per second of ours / a peer's, and the most of (STEM's step / dense's) / (their FLOPs' ratio)."""
STEMS = ("stem-third", "stem-half", "stem-full")
TOUCHED = "stem-touched"
"""STEM full whose optimiser moves only a batch's rows; such steps are never compiled (stemrepro.training.train)."""
MISSING = "not installed"
KERNELS = (
    "aten::mm",
    "aten::_scaled_dot_product_flash_attention_for_cpu",
    "aten::_scaled_dot_product_flash_attention_for_cpu_backward",
)
"""Matrix products and attention, which peers call alike and as often."""


def stems(compile: bool) -> tuple[str, ...]:
    """Return the arms whose step is compared with dense's."""
    return STEMS if compile else (*STEMS, TOUCHED)


def transformers_llama(shape: ModelConfig, length: int) -> torch.nn.Module:
    """Return transformers' Llama of dense's shape."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=shape.vocab, hidden_size=shape.width, intermediate_size=shape.ffn_width,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads, num_key_value_heads=shape.kv_heads, max_position_embeddings=length,
        rms_norm_eps=shape.norm_eps, tie_word_embeddings=False, use_cache=False,
    )  # fmt: skip
    return LlamaForCausalLM(config)


def litgpt_gpt(shape: ModelConfig, length: int) -> torch.nn.Module:
    """Return litgpt's GPT of dense's shape."""
    from litgpt import GPT, Config

    config = Config(
        block_size=length, vocab_size=shape.vocab, padded_vocab_size=shape.vocab, n_layer=shape.layers,
        n_head=shape.heads,
        n_query_groups=shape.kv_heads, n_embd=shape.width, rotary_percentage=1.0, parallel_residual=False, bias=False,
        norm_class_name="RMSNorm", norm_eps=shape.norm_eps, mlp_class_name="LLaMAMLP",
        intermediate_size=shape.ffn_width,
    )  # fmt: skip
    return GPT(config)


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


def peer_step(model: torch.nn.Module, clip: float, compile: bool) -> Callable[[torch.Tensor], object]:
    """Return a step on a batch [micro_batch, seq + 1] of a model that gives logits."""
    model, loss = Logits(model), compiled(mean_loss) if compile else mean_loss
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)

    def take(batch: torch.Tensor) -> None:
        with torch.autocast(batch.device.type, torch.bfloat16, enabled=batch.is_cuda):
            value = loss(model, batch)
        value.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        optimizer.zero_grad()

    return take


@dataclass(frozen=True)
class Steps:
    """Steps of arms and peers at a scale's shape, on batches [sequences, length + 1]."""

    catalog: Catalog
    scale: Scale
    name: str
    blocks: Path
    sequences: int
    length: int
    device: str = "cpu"

    def run(self, arm: str) -> Run:
        """Return an arm's run, of which nothing is written."""
        return run_at(self.catalog, self.scale, arm, self.blocks, Path("none"))

    def make(self, name: str, compile: bool) -> Callable[[int], object]:
        """Return an arm's or a peer's step on the batch of a round.

        Raises:
            ImportError: the peer's package isn't installed.
        """
        if name in PEERS:
            model = PEERS[name](self.run("dense").model, self.length).to(self.device)
            take = peer_step(model, self.scale.training.clip, compile)
        else:
            take = own_step(LanguageModule(self.run(name), compile).to(self.device))
        vocab, size = self.scale.model.vocab, (self.sequences, self.length + 1)
        return lambda number: take(
            torch.randint(1, vocab, size, generator=torch.Generator().manual_seed(number)).to(self.device)
        )

    def seconds(
        self, names: tuple[str, ...], compile: bool, rounds: int, tick: Callable[[], None]
    ) -> dict[str, np.ndarray]:
        """Return seconds by round of those of the names that can be imported."""
        turns = {}
        for name in names:
            try:
                turns[name] = self.make(name, compile)
            except ImportError:
                continue
        seconds = interleaved(turns, rounds, tick, device=self.device)
        del turns
        gc.collect()
        return seconds

    def rows(self, compile: bool, rounds: int, tick: Callable[[], None]) -> list[Row]:
        """Return peers and STEM against dense."""
        others = (*PEERS, *stems(compile))
        seconds = self.seconds(("dense", *others), compile, rounds, tick)
        return [self._row(other, seconds, compile) for other in others]

    def products(self, rounds: int, tick: Callable[[], None]) -> Row:
        """Return time in KERNELS against that of all operations of dense's eager step on a CPU.

        The profiler makes small operations longer, so that the share is if anything larger.
        """
        take, times = self.make("dense", False), []
        take(0)
        for number in range(rounds):
            with profile(activities=[ProfilerActivity.CPU]) as profiled:
                take(number)
            events = {event.key: event.self_cpu_time_total / 1e6 for event in profiled.key_averages()}
            times.append((sum(events[kernel] for kernel in KERNELS), sum(events.values())))
            tick()
        return compared(PRODUCTS, self._named("dense", False), "all of its operations", "ms a step", *np.array(times).T)

    def left_out(self, why: str) -> list[Row]:
        """Return the rows of compiled steps where none are taken."""
        peers = [
            Row(TRAINING, self._named("dense", True), peer, "tokens/s", bound="at least", target=FASTER, note=why)
            for peer in PEERS
        ]
        return peers + [
            Row(STEM, self._named(arm, True), "dense", "ms a step", bound="at most", note=why) for arm in stems(True)
        ]

    def _named(self, arm: str, compile: bool) -> str:
        return f"{arm}, {self.name}, {'compiled' if compile else 'eager'}"

    def _row(self, other: str, seconds: dict[str, np.ndarray], compile: bool) -> Row:
        """Return the row of one peer or one STEM."""
        note = f"{self.sequences} x {self.length} tokens a step"
        if other in stems(compile):
            flops = [flops_per_token(self.run(arm).model, self.length) for arm in (other, "dense")]
            ratio = flops[0] / flops[1]
            return compared(
                STEM, self._named(other, compile), "dense", "ms a step", seconds[other], seconds["dense"],
                bound="at most", target=SLOWER * ratio, flop_ratio=ratio, note=note,
            )  # fmt: skip
        if other not in seconds:
            return Row(
                TRAINING,
                self._named("dense", compile),
                other,
                "tokens/s",
                bound="at least",
                target=FASTER,
                note=MISSING,
            )
        return compared(
            TRAINING, self._named("dense", compile), f"{other} {version(other)}", "tokens/s", seconds["dense"],
            seconds[other],
            self.sequences * self.length, "at least", FASTER, note=note,
        )  # fmt: skip
