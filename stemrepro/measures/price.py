"""What a run takes on given devices, in closed form: hours, dollars, memory, traffic and disk."""

from dataclasses import dataclass

from stemrepro.config.parallel import Parallel
from stemrepro.config.scale import Machine
from stemrepro.config.training import RunTraining
from stemrepro.model.config import ModelConfig
from stemrepro.model.cost import expected_distinct, flops_per_token, parameter_counts
from stemrepro.model.traffic import Step, copies_bytes, fsdp_bytes, rows_bytes, tensor_bytes

FLOAT = 4
"""Bytes of a number, of weights, gradients and AdamW's two moments."""
CORE_FLOPS = 4e10
"""Training FLOPs per second of one core at the laptop scale (two cores of an AMD EPYC, 2026-11-22)."""
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


def _split(model: ModelConfig, parallel: Parallel | None) -> tuple[int, int]:
    """Return the parameters that a strategy keeps together, and those of tables that it shards along their width."""
    counts = parameter_counts(model)
    apart = counts["tables"] if parallel and parallel.strategy == "tables" and model.replaced_layers else 0
    return counts["total"] - apart, apart


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
    """Return the bytes on a device.

    Sharded weights have whole gradients where a step has several micro-batches, as these are added up before they
    are reduced.
    """
    together, apart = _split(model, parallel)
    tables = parameter_counts(model)["tables"]
    devices = parallel.ranks // parallel.replicate if parallel and parallel.sharded else 1
    tensor = parallel.tensor if parallel else 1
    gradients = devices if passes(training, parallel.readers if parallel else 1) == 1 else tensor
    each = FLOAT * (3 / devices + 1 / gradients)
    tokens = training.micro_batch * training.sequence
    by_width = 4 * FLOAT / parallel.ranks_per_table if parallel else 0
    return Memory(
        each * (together + apart - tables),
        by_width * apart if apart else each * tables,
        2.0 * FLOAT * min(tokens, training.loss_tokens or tokens) * model.vocab / tensor,
    )


def traffic(model: ModelConfig, training: RunTraining, parallel: Parallel | None) -> float:
    """Return the bytes that a device receives in a step, by the closed forms of stemrepro.model.traffic.

    Of each micro-batch's distinct tokens there are `expected_distinct`. Copies of weights and of tables add their
    gradients up.
    """
    if not parallel:
        return 0.0
    together, apart = _split(model, parallel)
    if not parallel.sharded:
        return copies_bytes(together, parallel.ranks)
    group, shared = parallel.readers // parallel.replicate, parallel.ranks_per_table
    number = {"float32": 4, "bfloat16": 2}[parallel.param_dtype]
    step = Step(group, passes(training, parallel.readers), training.micro_batch * training.sequence, number)
    sharded = fsdp_bytes(model, step, without=apart) / parallel.tensor
    sharded += copies_bytes(together / group, parallel.replicate)
    if parallel.tensor > 1:
        sharded += tensor_bytes(model, step, parallel.tensor, parallel.recompute)
    if not apart:
        return sharded
    rows = rows_bytes(model, step, expected_distinct(step.tokens, model.vocab), shared)
    return sharded + rows + copies_bytes(apart / shared, parallel.ranks // shared)


def device_hours(flops: float, machine: Machine) -> tuple[float, float]:
    """Return the hours of one device at the upper and at the lower end of its utilisation."""
    low, high = machine.utilisation
    return flops / machine.flops / high / 3600, flops / machine.flops / low / 3600
