"""What a run takes on given devices, in closed form: hours, dollars, memory, traffic and disk."""

from dataclasses import dataclass

from stemrepro.config.parallel import Parallel
from stemrepro.config.scale import Machine
from stemrepro.config.training import RunTraining
from stemrepro.model.config import ModelConfig
from stemrepro.model.cost import flops_per_token, parameter_counts
from stemrepro.model.traffic import Step, fsdp_bytes

FLOAT = 4
"""Bytes of a number, of weights, gradients and AdamW's two moments."""
CORE_FLOPS = 4e10
"""Training FLOPs per second of one core at the laptop scale (docs/LOG.md)."""
CHECKPOINTS = 2
"""Checkpoints of a run that are kept at a time."""


def training_flops(model: ModelConfig, training: RunTraining) -> float:
    """Return the FLOPs of a run, forward and backward."""
    return 3.0 * training.tokens * flops_per_token(model, training.sequence)


def block_bytes(tokens: int, vocab: int) -> int:
    """Return the bytes of text on disk: two a token, or four where a vocabulary has more than 65,536 entries."""
    return tokens * (2 if vocab <= 2**16 else 4)


def checkpoint_bytes(model: ModelConfig) -> int:
    """Return the bytes of a checkpoint: weights and AdamW's two moments."""
    return 3 * FLOAT * parameter_counts(model)["total"]


def weight_bytes(model: ModelConfig, training: RunTraining) -> int:
    """Return the bytes that stay of a run: its weights, and snapshots of its tables in bfloat16."""
    counts = parameter_counts(model)
    return FLOAT * counts["total"] + 2 * len(training.snapshots) * counts["tables"]


def passes(training: RunTraining, readers: int) -> int:
    """Return how many micro-batches each of so many readers has in a step."""
    return training.batch // (training.micro_batch * readers)


@dataclass(frozen=True)
class Memory:
    """Bytes on one device.

    Attributes:
        state: weights, gradients and moments, tables apart.
        tables: the same of the tables.
        logits: of the tokens of a micro-batch that have them at a time, with their gradient.
    """

    state: float
    tables: float
    logits: float

    @property
    def total(self) -> float:
        """All of them; activations come on top."""
        return self.state + self.tables + self.logits


def memory(model: ModelConfig, training: RunTraining, parallel: Parallel | None) -> Memory:
    """Return the bytes on a device."""
    counts, ranks = parameter_counts(model), parallel.ranks if parallel else 1
    each = 4 * FLOAT / (ranks if parallel and parallel.strategy == "fsdp" else 1)
    tokens = training.micro_batch * training.sequence
    return Memory(
        each * (counts["total"] - counts["tables"]),
        each * counts["tables"],
        2.0 * FLOAT * min(tokens, training.loss_tokens or tokens) * model.vocab,
    )


def traffic(model: ModelConfig, training: RunTraining, parallel: Parallel | None) -> float:
    """Return the bytes that a device receives in a step, by the closed forms of stemrepro.model.traffic."""
    if not parallel:
        return 0.0
    ranks = parallel.ranks
    if parallel.strategy == "ddp":
        return 2 * (ranks - 1) / ranks * FLOAT * parameter_counts(model)["total"]
    return fsdp_bytes(model, Step(ranks, passes(training, ranks), training.micro_batch * training.sequence, FLOAT))


def device_hours(flops: float, machine: Machine) -> tuple[float, float]:
    """Return the hours of one device at the upper and at the lower end of its utilisation."""
    low, high = machine.utilisation
    return flops / machine.flops / high / 3600, flops / machine.flops / low / 3600
