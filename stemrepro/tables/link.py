"""How rows come from host memory to where the model computes: an order of copies, and waiting for them.

A buffer is filled, waited for, read, and released; a link with a stream of its own lets copies run beside the model's work.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from stemrepro.tables.gather import gather_rows


@dataclass
class Buffer:
    """Rows on the device [capacity, width], and what a link keeps to order the copies into it."""

    rows: Tensor
    staging: Tensor | None = None
    ready: object = None
    free: object = None


@dataclass
class Link:
    """Copies in the model's own order, for a model on the CPU: each is done when `fill` returns.

    Attributes:
        moved: bytes of rows brought so far.
    """

    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    moved: int = 0

    def buffer(self, capacity: int, source: Tensor) -> Buffer:
        """Room for `capacity` rows of a table [vocab, width]."""
        return Buffer(torch.empty(capacity, source.shape[1], dtype=source.dtype, device=self.device))

    def fill(self, buffer: Buffer, source: Tensor, ids: Tensor) -> None:
        """Begins to bring source[ids] into buffer.rows[: len(ids)]: source [vocab, width] and ids [n] in host memory."""
        self.copy(buffer, source, ids)
        self.moved += len(ids) * source.shape[1] * source.element_size()

    def copy(self, buffer: Buffer, source: Tensor, ids: Tensor) -> None:
        """The copy itself."""
        torch.index_select(source, 0, ids, out=buffer.rows[: len(ids)])

    def wait(self, buffer: Buffer) -> None:
        """What the model does from here on finds the buffer filled."""

    def release(self, buffer: Buffer) -> None:
        """What the model did up to here was the last to read the buffer."""


class CudaLink(Link):
    """Copies on one side stream, an event a buffer for "filled" and one for "read".

    Where Triton is installed a kernel reads the pinned rows over the bus, one trip for gather and copy; otherwise the processor gathers
    them into pinned staging, and the stream copies that.
    """

    def __init__(self, device: torch.device) -> None:
        super().__init__(device)
        self.stream = torch.cuda.Stream(device)

    def buffer(self, capacity: int, source: Tensor) -> Buffer:
        """As Link's, with pinned staging unless the rows are read directly."""
        made = super().buffer(capacity, source)
        made.rows.record_stream(self.stream)
        if gather_rows is None or not source.is_pinned():
            made.staging = torch.empty(capacity, source.shape[1], dtype=source.dtype, pin_memory=True)
        made.ready, made.free = torch.cuda.Event(), torch.cuda.Event()
        made.free.record(torch.cuda.current_stream(self.device))
        return made

    def copy(self, buffer: Buffer, source: Tensor, ids: Tensor) -> None:
        """On the side stream, after what last read the buffer."""
        self.stream.wait_event(buffer.free)
        if buffer.staging is None:
            with torch.cuda.stream(self.stream):
                gather_rows(source, ids.to(self.device, non_blocking=True), buffer.rows)
        else:
            buffer.ready.synchronize()  # the copy before this one may still read the staging
            torch.index_select(source, 0, ids, out=buffer.staging[: len(ids)])
            with torch.cuda.stream(self.stream):
                buffer.rows[: len(ids)].copy_(buffer.staging[: len(ids)], non_blocking=True)
        buffer.ready.record(self.stream)

    def wait(self, buffer: Buffer) -> None:
        """The model's stream waits for the buffer's event; the processor doesn't."""
        torch.cuda.current_stream(self.device).wait_event(buffer.ready)

    def release(self, buffer: Buffer) -> None:
        """Records the event that the next copy into the buffer waits for."""
        buffer.free.record(torch.cuda.current_stream(self.device))


def link_to(device: torch.device) -> Link:
    """The link for a model on this device."""
    return CudaLink(device) if device.type == "cuda" else Link()
