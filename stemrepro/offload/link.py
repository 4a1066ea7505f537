"""How rows come from host memory to where the model computes: an order of copies, and waiting for them.

A buffer is filled, waited for, read, and released. A link with a stream of its own copies while the model works.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from stemrepro.offload.gather import gather_rows


@dataclass
class Buffer:
    """Rows on the device [capacity, width], and what a link keeps to order the copies into it."""

    rows: Tensor
    staging: Tensor | None = None
    ready: Any = None
    free: Any = None


class Link:
    """Copies in the model's own order, for a model on the CPU: each is done when `fill` returns."""

    def __init__(self, device: torch.device = torch.device("cpu")) -> None:  # noqa: B008, it never changes
        self.device, self.moved = device, 0  # bytes

    def buffer(self, capacity: int, source: Tensor) -> Buffer:
        """Return room for `capacity` rows of a table [vocab, width]."""
        with torch.inference_mode(False):  # or it could not be filled outside
            return Buffer(torch.empty(capacity, source.shape[1], dtype=source.dtype, device=self.device))

    def fill(self, buffer: Buffer, source: Tensor, ids: Tensor) -> None:
        """Begin to bring source[ids] into buffer.rows[: len(ids)]: source [vocab, width] and ids [n] in host memory."""
        self.copy(buffer, source, ids)
        self.moved += len(ids) * source.shape[1] * source.element_size()

    def copy(self, buffer: Buffer, source: Tensor, ids: Tensor) -> None:
        """Copy the rows, in the model's own order."""
        torch.index_select(source, 0, ids, out=buffer.rows[: len(ids)])

    def wait(self, buffer: Buffer) -> None:
        """Let what the model does from here on find the buffer filled."""

    def release(self, buffer: Buffer) -> None:
        """Let the buffer be filled again after what the model did up to here."""


class CudaLink(Link):
    """Copies on one side stream, with two events per buffer: "filled" and "read".

    Where Triton is installed a kernel reads the pinned rows over the bus: gather and copy are one trip. Otherwise the
    processor gathers them into pinned staging, and the stream copies that. This class was written without a GPU at hand
    and hasn't run so far.
    """

    def __init__(self, device: torch.device) -> None:
        super().__init__(device)
        self.stream = torch.cuda.Stream(device)
        self.sent: tuple[Tensor, Tensor, Tensor] | None = None

    def buffer(self, capacity: int, source: Tensor) -> Buffer:
        """Return room for rows as `Link` does, with its events."""
        buffer = super().buffer(capacity, source)
        buffer.rows.record_stream(self.stream)
        buffer.ready, buffer.free = torch.cuda.Event(), torch.cuda.Event()
        buffer.free.record(torch.cuda.current_stream(self.device))
        return buffer

    def _on_device(self, ids: Tensor) -> Tensor:
        """Return the ids on the device.

        All tables of a pass ask for the same ids, which are sent once, before any wait.
        """
        if self.sent is None or self.sent[0] is not ids:
            pinned = ids.pin_memory()
            with torch.cuda.stream(self.stream):
                self.sent = ids, pinned, pinned.to(self.device, non_blocking=True)
        return self.sent[2]

    def copy(self, buffer: Buffer, source: Tensor, ids: Tensor) -> None:
        """Copy the rows on the side stream, after what last read the buffer."""
        if gather_rows is not None and source.is_pinned():
            device_ids = self._on_device(ids)
            self.stream.wait_event(buffer.free)
            with torch.cuda.stream(self.stream):
                gather_rows(source, device_ids, buffer.rows)
        else:
            if buffer.staging is None:
                buffer.staging = torch.empty(buffer.rows.shape, dtype=buffer.rows.dtype, pin_memory=True)
            self.stream.wait_event(buffer.free)
            buffer.ready.synchronize()  # the copy before this one may still read the staging
            torch.index_select(source, 0, ids, out=buffer.staging[: len(ids)])
            with torch.cuda.stream(self.stream):
                buffer.rows[: len(ids)].copy_(buffer.staging[: len(ids)], non_blocking=True)
        buffer.ready.record(self.stream)

    def wait(self, buffer: Buffer) -> None:
        """Let the model's stream wait for the buffer's event; the processor doesn't wait."""
        torch.cuda.current_stream(self.device).wait_event(buffer.ready)

    def release(self, buffer: Buffer) -> None:
        """Record the event that the next copy into the buffer waits for."""
        buffer.free.record(torch.cuda.current_stream(self.device))
