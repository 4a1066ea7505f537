"""A STEM step's time against the rows of its tables alone, for each way in which tables are updated, with its parts.

Input embedding, output head and tokens stay at the smallest vocabulary. Only the tables have more rows, which no batch
reads. So what grows is the cost of a row that nobody requested.
"""

import gc
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from torch import nn

from benchmarks.interleaved import Row, compared, interleaved
from benchmarks.peer_training import Steps
from stemrepro.model.ffn.base import table_parameters
from stemrepro.training.module import LanguageModule, mean_loss
from stemrepro.training.optimizers import TABLES
from stemrepro.training.touched import sparse_gradients

FLAT, PARTS = "rows of the tables", "parts of that step"
TARGET = 1.1
ARM = "stem-third"
SPARSE = "torch's SparseAdam"
"""Torch's way: gradients of the batch's rows alone and SparseAdam, without decay and without clipping of their norm."""
UPDATES = (*TABLES, SPARSE)
PART_NAMES = ("forward and backward", "clipping", "update")


def enlarged(module: LanguageModule, rows: int, sparse: bool) -> None:
    """Give every table so many rows."""
    for layer in module.run.model.replaced_layers:
        table = module.model.blocks[layer].ffn.table
        module.model.blocks[layer].ffn.table = nn.Embedding(rows, table.embedding_dim, sparse=sparse)
    if module.run.training.table_update == "touched":
        sparse_gradients(module.model)


class Stepped:
    """A model whose tables have so many rows; a call with a round's number takes a step.

    Attributes:
        parts: seconds of PART_NAMES in each step.
    """

    def __init__(self, steps: Steps, update: str, rows: int) -> None:
        run = steps.run(ARM)
        if update != SPARSE:
            run = replace(run, training=run.training.model_copy(update={"table_update": update}))
        self.steps, self.module, self.parts = steps, LanguageModule(run), []
        enlarged(self.module, rows, update == SPARSE)
        if update == SPARSE:
            tables = list(table_parameters(self.module.model).values())
            apart = set(map(id, tables))
            self.clipped = [p for p in self.module.model.parameters() if id(p) not in apart]
            self.optimizers = [torch.optim.AdamW(self.clipped, fused=True), torch.optim.SparseAdam(tables)]
        else:
            self.clipped = None
            self.optimizers = [self.module.configure_optimizers()["optimizer"]]

    def __call__(self, number: int) -> None:
        """Take a step on the batch of a round."""
        size = self.steps.sequences, self.steps.length + 1
        batch = torch.randint(1, self.steps.scale.model.vocab, size, generator=torch.Generator().manual_seed(number))
        times = [time.perf_counter()]
        mean_loss(self.module.model, batch).backward()
        times.append(time.perf_counter())
        if self.clipped is None:
            self.module.configure_gradient_clipping(self.optimizers[0])
        else:
            nn.utils.clip_grad_norm_(self.clipped, self.module.run.training.clip)
        times.append(time.perf_counter())
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad()
        times.append(time.perf_counter())
        self.parts.append(np.diff(times))


def measure(steps: Steps, sizes: tuple[int, ...], rounds: int, tick: Callable[[], None]) -> list[Row]:
    """Return each update's step at each number of rows against the same update's at the first number.

    The first number is the model's vocabulary. For the largest, each part's time is also compared with the whole
    step's.
    """
    turns = {(update, rows): Stepped(steps, update, rows) for update in UPDATES for rows in sizes}
    seconds = interleaved(turns, rounds, tick)
    results = [
        compared(
            FLAT,
            f"{update}, {rows:,} rows",
            f"{update}, {sizes[0]:,} rows",
            "ms a step",
            seconds[update, rows],
            seconds[update, sizes[0]],
            bound="at most",
            target=TARGET,
            note=f"{ARM}, tables {rows:,} x {steps.scale.model.ffn_width} "
            f"in {len(steps.run(ARM).model.replaced_layers)} layers, "
            f"{steps.sequences} x {steps.length} tokens below {sizes[0]:,}",
        )
        for update in UPDATES
        for rows in sizes[1:]
    ]
    for update in UPDATES:
        parts = np.array(turns[update, sizes[-1]].parts[-rounds:])
        for place, name in enumerate(PART_NAMES):
            results.append(
                compared(
                    PARTS,
                    f"{update}, {sizes[-1]:,} rows: {name}",
                    "the whole step",
                    "ms a step",
                    parts[:, place],
                    seconds[update, sizes[-1]],
                )
            )
    del turns
    gc.collect()
    return results
