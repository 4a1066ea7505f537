"""Rows of a host table updated by AdamW, drawn from all rows, against torch's fused AdamW on neighbouring elements."""

from collections.abc import Callable

import numpy as np
import torch
from torch.utils.benchmark import Timer

from benchmarks.interleaved import Row, compared
from stemrepro.training.touched import move_rows, new_moments

MEASURE = "rows moved"
SETTINGS = {"lr": 1e-3, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.1}


def measure(rows: int, width: int, moved: int, rounds: int, tick: Callable[[], None]) -> list[Row]:
    """Return the row of `moved` rows of a table [rows, width] updated by `move_rows`.

    It reads and writes weights and moments where they lie.
    """
    draw, seconds = torch.Generator().manual_seed(0), {"rows": np.empty(rounds), "together": np.empty(rounds)}
    table, gradient = torch.randn(rows, width, generator=draw), torch.randn(moved, width, generator=draw)
    together = torch.nn.Parameter(torch.randn(moved, width, generator=draw))
    together.grad = gradient
    optimizer, moments = torch.optim.AdamW([together], **SETTINGS, fused=True), new_moments(table)
    for number in range(rounds):
        chosen = torch.randperm(rows, generator=draw)[:moved].sort().values
        around = {
            "move_rows": move_rows, "table": table, "moments": moments, "chosen": chosen, "gradient": gradient,
            "group": SETTINGS, "optimizer": optimizer,
        }  # fmt: skip
        timers = {"rows": "move_rows(table, moments, chosen, gradient, group)", "together": "optimizer.step()"}
        for kind in sorted(timers, reverse=bool(number % 2)):
            timer = Timer(timers[kind], globals=around, num_threads=torch.get_num_threads())
            seconds[kind][number] = timer.timeit(3).mean
        tick()
    about = f"{moved:,} rows of {rows:,} x {width:,}, with two moments each"
    return [
        compared(MEASURE, "rows in float32", "torch's fused AdamW", "million elements/s", seconds["rows"],
        seconds["together"], moved * width / 1e6, note=about,),
    ]  # fmt: skip
