"""What tables in host memory cost a training step at the least, modelled by a step's parts.

No run trains so. The device would compute a step while the rows that only the next one reads come. Then all gradients
go back, the host moves the step's rows, and the rows that both steps read follow: clipping needs the norm of all
gradients. It is a lower bound: a batch from everywhere has more distinct tokens than neighbours in one source's text.
"""

from dataclasses import dataclass

from stemrepro.config.scale import Shape
from stemrepro.measures.costs import dense_and_stem
from stemrepro.measures.offload_rates import Device
from stemrepro.model.config import ModelConfig
from stemrepro.model.cost import flops_per_token, parameter_counts, row_bytes

NUMBER = 4
"""Bytes of a table's element in training: float32."""
TOUCHED = 7 * NUMBER
"""Bytes that AdamW moves per element: weight, gradient and two moments are read, three of them written."""


@dataclass(frozen=True)
class Rows:
    """Rows of each table that a step reads, and the share of the next step's that this one doesn't."""

    distinct: float
    new: float


@dataclass(frozen=True)
class Step:
    """Seconds of a step's parts.

    Attributes:
        early: of host and link for rows of the next step, at the same time as `compute`.
        late: of host and link for rows that had to wait for the update.
    """

    compute: float
    early: float
    back: float
    update: float
    late: float

    @property
    def seconds(self) -> float:
        return max(self.compute, self.early) + self.back + self.update + self.late


def computing(stem: ModelConfig, tokens: int, sequence: int, device: Device) -> float:
    """Return the seconds of a step's forward and backward pass, and of the backbone's update."""
    backbone = TOUCHED * parameter_counts(stem)["active"] / device.memory
    return 3 * tokens * flops_per_token(stem, sequence // 2) / device.flops + backbone


def on_device(shape: Shape, placement: str, tokens: int, device: Device, rows: Rows) -> float:
    """Return the seconds of a step over so many tokens whose tables the device holds and moves."""
    _, stem = dense_and_stem(shape, placement)
    moved = row_bytes(stem, rows.distinct, TOUCHED) / device.memory
    return computing(stem, tokens, shape.sequence, device) + moved


def from_host(shape: Shape, placement: str, tokens: int, device: Device, rows: Rows, ahead: bool = True) -> Step:
    """Return a step over so many tokens with tables in host memory.

    Args:
        ahead: whether new rows come a step ahead; else all rows wait for the update of the step before.
    """
    _, stem = dense_and_stem(shape, placement)
    size, new = row_bytes(stem, rows.distinct, NUMBER), rows.new if ahead else 0.0
    brought = size / device.link + size / device.gather
    return Step(
        computing(stem, tokens, shape.sequence, device),
        early=new * brought + device.latency * ahead,
        back=size / device.link + device.latency,
        update=size / NUMBER / device.update,
        late=(1 - new) * brought + device.latency,
    )
