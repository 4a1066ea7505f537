"""Bytes that a rank receives from others in a training step, in closed form.

Of N ranks each holds 1/N of the weights (FSDP2). Per pass (a micro-batch, forward and backward), each receives the
other N - 1 parts: of a block twice, of embedding, last norm and head once, since these stay after the forward pass.
Once a step it receives as much of the gradients, in float32. Padding, where N doesn't divide rows, is left out.

    tables inside FSDP     tables are gathered as all weights of a block
    tables by width        a rank has 1/N of each table's columns. Per pass and table it receives the rows that it
                           reads, and gradients on the way back: rows x ffn_width x (N - 1) / N numbers each way
    experts by rank        G ranks share a layer's experts. Each token goes to its expert's rank and back, and so do
                           its gradients: 4 x tokens x top_k x width x (G - 1) / G numbers, if experts are used evenly.
                           N / G ranks hold the same experts, each a part of them (FSDP2)
"""

from dataclasses import dataclass

from stemrepro.model.config import ModelConfig
from stemrepro.model.cost import parameter_counts, row_elements
from stemrepro.model.counting import ffn_cost

REDUCED = 4
"""Bytes of a number in a reduction of gradients: float32."""
ID = 8
"""Bytes of a token's id: int64."""


@dataclass(frozen=True)
class Step:
    """A training step on several ranks.

    Attributes:
        passes: micro-batches of each rank.
        tokens: of a micro-batch.
        number: bytes of a gathered weight, a row's element or a hidden state's; 2 is bfloat16.
    """

    ranks: int
    passes: int
    tokens: int
    number: int = 2


def step_of(sequences: int, length: int, ranks: int, most: int) -> Step:
    """Return the step of a batch of so many sequences, at most `most` of them a micro-batch.

    ValueError: a rank's sequences are no whole micro-batches.
    """
    size = min(most, sequences // ranks)
    if not size or sequences % (ranks * size):
        raise ValueError(f"{sequences} sequences don't divide into micro-batches of {size} on {ranks} ranks")
    return Step(ranks, sequences // (ranks * size), size * length)


def _of_others(ranks: int) -> float:
    return (ranks - 1) / ranks


def _weights(twice: int, once: int, step: Step, ranks: int) -> float:
    gathered = step.passes * step.number * (2 * twice + once)
    return _of_others(ranks) * (gathered + REDUCED * (twice + once))


def fsdp_bytes(config: ModelConfig, step: Step, without: int = 0) -> float:
    """Return the bytes received under FSDP2; `without` elements of the blocks are held otherwise."""
    outside = (2 * config.vocab + 1) * config.width
    return _weights(parameter_counts(config)["total"] - outside - without, outside, step, step.ranks)


def width_bytes(config: ModelConfig, step: Step, rows: float) -> float:
    """Return the bytes received with tables by width, of ids, rows and their gradients too.

    Args:
        rows: that a pass reads, from each table: its tokens, or the distinct ones among them.
    """
    ids = ID * (step.ranks - 1) * (1 + rows)
    moved = ids + 2 * _of_others(step.ranks) * rows * row_elements(config) * step.number
    return fsdp_bytes(config, step, without=parameter_counts(config)["tables"]) + step.passes * moved


def exchanged_bytes(config: ModelConfig, step: Step, group: int) -> float:
    """Return the bytes received of tokens' hidden states and their gradients, with experts shared by `group` ranks."""
    moved = 4 * step.tokens * config.top_k * config.width * len(config.replaced_layers) * step.number
    return step.passes * _of_others(group) * moved


def expert_bytes(config: ModelConfig, step: Step) -> float:
    """Return the bytes received with experts by rank, as many ranks a group as there are experts, or all."""
    group = min(config.experts, step.ranks)
    experts = len(config.replaced_layers) * config.experts * ffn_cost("dense", config).stored
    held = _weights(experts // group, 0, step, step.ranks // group)
    return fsdp_bytes(config, step, without=experts) + exchanged_bytes(config, step, group) + held
