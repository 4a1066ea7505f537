"""What tables in host memory cost a training step, modelled: the engine of stemrepro/tables/training.py, part after part.

The device computes a step while the rows that only the next one reads come; then all gradients go back, the host moves the step's rows, and
the rows that both steps read follow. Clipping needs the norm of all gradients, so none of these can begin earlier.
"""

from dataclasses import dataclass

from stemrepro.measures.costs import dense_and_stem
from stemrepro.measures.offload_rates import Device
from stemrepro.model.cost import flops_per_token, row_bytes
from stemrepro.scale import Shape

NUMBER = 4
"""Bytes of a table's element in training: float32."""
TOUCHED = 7 * NUMBER
"""Bytes that AdamW moves an element: weight, gradient and two moments are read, three of them written."""


@dataclass(frozen=True)
class Rows:
    """Rows of each table that a step reads, and the share of the next step's that this one doesn't."""

    distinct: float
    new: float


@dataclass(frozen=True)
class Step:
    """Seconds of a step's parts.

    Attributes:
        compute: forward and backward on the device.
        early: of the link for rows of the next step, beside `compute`.
        back: of the link for gradients.
        update: of the host.
        late: of the link for rows that had to wait for the update.
    """

    compute: float
    early: float
    back: float
    update: float
    late: float

    @property
    def seconds(self) -> float:
        """Of the whole step."""
        return max(self.compute, self.early) + self.back + self.update + self.late


def on_device(shape: Shape, placement: str, tokens: int, device: Device, rows: Rows) -> float:
    """Seconds of a step over so many tokens whose tables the device holds and moves; the backbone's update, equal in both, is left out."""
    _, stem = dense_and_stem(shape, placement)
    compute = 3 * tokens * flops_per_token(stem, shape.sequence // 2) / device.flops
    return compute + row_bytes(stem, rows.distinct, TOUCHED) / device.memory


def from_host(shape: Shape, placement: str, tokens: int, device: Device, rows: Rows, ahead: bool = True) -> Step:
    """A step over so many tokens with tables in host memory.

    Args:
        ahead: bring what can come a step ahead; else all rows wait for the update of the step before.
    """
    _, stem = dense_and_stem(shape, placement)
    compute = 3 * tokens * flops_per_token(stem, shape.sequence // 2) / device.flops
    moved, start = row_bytes(stem, rows.distinct, NUMBER) / device.link, len(stem.placed) * device.latency
    new = rows.new if ahead else 0.0
    return Step(
        compute,
        early=new * moved + start * ahead,
        back=moved + start,
        update=row_bytes(stem, rows.distinct, NUMBER) / NUMBER / device.update,
        late=(1 - new) * moved + start,
    )
