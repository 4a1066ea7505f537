"""What a run takes on given devices, in closed form: hours, dollars, memory, traffic and disk."""

from dataclasses import dataclass

from stemrepro.config.parallel import Parallel
from stemrepro.config.scale import Machine
from stemrepro.config.training import RunTraining
from stemrepro.model.config import ModelConfig
from stemrepro.model.cost import expected_distinct, flops_per_token, parameter_counts, row_elements

FLOAT, ID = 4, 8
"""Bytes of a number, of weights, gradients, AdamW's two moments and whatever is sent; and of a token's id."""
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


def passes(training: RunTraining, devices: int) -> int:
    """Return how many micro-batches a device has in a step."""
    return training.batch // (training.micro_batch * devices)


@dataclass(frozen=True)
class Memory:
    """Bytes on one device.

    Attributes:
        state: weights, gradients and moments, tables apart.
        tables: the same of the tables.
        logits: of a micro-batch, with their gradient.
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

    Fully sharded weights have whole gradients where a step has several micro-batches, as these are added up before they
    are reduced.
    """
    together, apart = _split(model, parallel)
    tables = parameter_counts(model)["tables"]
    devices = parallel.devices if parallel and parallel.sharded else 1
    gradients = devices if passes(training, parallel.devices if parallel else 1) == 1 else 1
    each = FLOAT * (3 / devices + 1 / gradients)
    by_width = 4 * FLOAT / parallel.ranks_per_table if parallel else 0
    return Memory(
        each * (together + apart - tables),
        by_width * apart if apart else each * tables,
        2.0 * FLOAT * training.micro_batch * training.sequence * model.vocab,
    )


def traffic(model: ModelConfig, training: RunTraining, parallel: Parallel | None) -> float:
    """Return the bytes that a device receives in a step, all sent in float32.

    Fully sharded blocks are gathered for the forward and for the backward pass of each micro-batch, embeddings, head
    and norm once; gradients are reduced once. Tables along their width: of each micro-batch's distinct tokens, of which
    there are `expected_distinct`, ids and rows come and gradients go; copies add their gradients up.
    """
    if not parallel:
        return 0.0
    ranks, (together, apart) = parallel.devices, _split(model, parallel)
    others, steps = (ranks - 1) / ranks, passes(training, ranks)
    if not parallel.sharded:
        return 2 * others * FLOAT * together
    root = (2 * model.vocab + 1) * model.width
    gathered = others * FLOAT * (steps * (2 * together - root) + together)
    if not apart:
        return gathered
    shared = parallel.ranks_per_table
    ids = expected_distinct(training.micro_batch * training.sequence, model.vocab)
    rows = 2 * ids * row_elements(model) * FLOAT * (shared - 1) / shared
    copies = ranks // shared
    added = 2 * (copies - 1) / copies * FLOAT * apart / shared
    return gathered + steps * (rows + (shared - 1) * ids * ID) + added


def device_hours(flops: float, machine: Machine) -> tuple[float, float]:
    """Return the hours of one device at the upper and at the lower end of its utilisation."""
    low, high = machine.utilisation
    return flops / machine.flops / high / 3600, flops / machine.flops / low / 3600
