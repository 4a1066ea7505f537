"""Rows of a large table against a plain copy of as many bytes."""

from collections.abc import Callable

import numpy as np
import torch
from torch.utils.benchmark import Timer

from benchmarks.interleaved import Row, compared

MEASURE = "gather"
TARGET = 0.8
TYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32}


def measure(rows: int, width: int, tokens: int, rounds: int, tick: Callable[[], None], device: str) -> list[Row]:
    """Return rows of index_select of `tokens` rows of a table [rows, width] against copy_ of as many neighbouring rows.

    Rows are drawn evenly, and so is the place of the neighbouring ones. Both write into existing memory. The same bytes
    are counted for both: those that are written.
    """
    draw, results = torch.Generator().manual_seed(0), []
    for name, dtype in TYPES.items():
        table = torch.empty(rows, width, dtype=dtype, device=device).uniform_()
        target = torch.zeros(tokens, width, dtype=dtype, device=device)
        seconds = {"gather": np.empty(rounds), "copy": np.empty(rounds)}
        for number in range(rounds):
            chosen = torch.randint(rows, (tokens,), generator=draw).to(device)
            first = int(torch.randint(rows - tokens, (), generator=draw))
            around = {"table": table, "target": target, "chosen": chosen, "some": table[first : first + tokens]}
            timers = {
                "gather": "torch.index_select(table, 0, chosen, out=target)",
                "copy": "target.copy_(some)",
            }
            for kind in sorted(timers, reverse=bool(number % 2)):
                timer = Timer(timers[kind], globals=around, num_threads=torch.get_num_threads())
                seconds[kind][number] = timer.timeit(3).mean
            tick()
        size = target.numel() * target.element_size()
        about = f"{tokens:,} rows of {rows:,} x {width:,} ({table.numel() * table.element_size() / 1e6:,.0f} MB)"
        results.append(
            compared(
                MEASURE,
                f"rows in {name}",
                "copy_ of as many bytes",
                "GB/s",
                seconds["gather"],
                seconds["copy"],
                size / 1e9,
                "at least",
                TARGET,
                note=about,
            )
        )
    return results
