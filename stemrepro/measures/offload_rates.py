"""Rates that devices, links and hosts are assumed to sustain in models of the overlap; measured ones are named."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Device:
    """A device, its link and its host.

    Attributes:
        flops: per second, in bfloat16.
        memory: bytes per second that it reads of its own memory.
        link: bytes per second from host memory, or to it.
        gather: bytes per second that the host gathers into staging; infinite where a kernel reads the pinned rows over
            the link.
        latency: seconds until the device sees what was copied, while the link is free.
        busy: seconds that a copy keeps the link, whatever its size.
        update: elements of tables per second that the host moves by AdamW.
    """

    flops: float
    memory: float
    link: float
    gather: float
    latency: float
    busy: float
    update: float


HOST_GATHER = 14.6e9
"""Bytes per second, measured: rows of 2,560 bfloat16 by index_select, two cores (docs/performance.csv, "gather")."""
HOST_UPDATE = 2.65e8
"""Elements per second, measured: rows of 2,560 float32 moved by stemrepro.training.touched (the same, "rows moved")."""
SERVER_UPDATE = 2e11 / 28
"""That of a server whose memory gives 200 GB/s, in one pass over an element's 28 bytes: assumed, not measured."""
DEVICES = {
    "h100-pcie-4": Device(4e14, 2.7e12, 25e9, np.inf, 1e-5, 0, SERVER_UPDATE),
    "h100-pcie-5": Device(4e14, 2.7e12, 50e9, np.inf, 1e-5, 0, SERVER_UPDATE),
    "h100-pcie-5-busy": Device(4e14, 2.7e12, 50e9, np.inf, 0, 1e-5, SERVER_UPDATE),
    "h100-pcie-5-staged": Device(4e14, 2.7e12, 50e9, HOST_GATHER, 1e-5, 0, HOST_UPDATE),
}
"""Devices by name; their rates are assumed, not measured.

They are 40% of an H100's 989 TFLOPs, 80% of its 3.35 TB/s, 80% of a link's nominal 32 and 64 GB/s, and 10 microseconds
for a copy. "busy": a copy keeps the link for that time. "staged": a host of two cores gathers and moves rows.
"""
