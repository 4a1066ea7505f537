"""Rows of a host table by FBGEMM's embedding operator compared with ours: look-up, and look-up, gradient and update.

fbgemm-gpu-cpu 1.X goes with torch 2.(X + 5). For a processor it has no Adam, so its row-wise AdaGrad is compared with
our AdamW. AdamW has two moments per element where that has one per row: what a fused update of less state would save.
"""

from collections.abc import Callable
from importlib.metadata import version

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.interleaved import Row, compared, interleaved
from benchmarks.peer_training import MISSING
from benchmarks.peer_update import SETTINGS
from stemrepro.training.touched import TouchedAdamW, summed

MEASURE, PEER, UNIT = "rows looked up", "fbgemm-gpu-cpu", "million elements/s"
WHATS = ("look-up", "look-up, gradient and update")


def fbgemm(table: Tensor) -> Callable[[Tensor], Tensor]:
    """Return FBGEMM's operator on a copy of a table [rows, width]: token ids [n] -> [n, width].

    The backward pass of what it returns updates its rows.
    """
    from fbgemm_gpu.split_table_batched_embeddings_ops_training import (
        ComputeDevice,
        EmbeddingLocation,
        OptimType,
        PoolingMode,
        SplitTableBatchedEmbeddingBagsCodegen,
    )

    operator = SplitTableBatchedEmbeddingBagsCodegen(
        [(*table.shape, EmbeddingLocation.HOST, ComputeDevice.CPU)],
        optimizer=OptimType.EXACT_ROWWISE_ADAGRAD, pooling_mode=PoolingMode.NONE,
    )  # fmt: skip
    with torch.no_grad():
        operator.split_embedding_weights()[0].copy_(table)
    return lambda tokens: operator(tokens, torch.tensor([0, len(tokens)])).view(len(tokens), -1)


def measure(rows: int, width: int, tokens: int, rounds: int, tick: Callable[[], None]) -> list[Row]:
    """Return rows for `tokens` ids of a table [rows, width], drawn evenly with repeats.

    One row is of a look-up alone, one of a look-up with the gradient of its sum and an update.

    Raises:
        AssertionError: the operators give other rows, so that their times can't be compared.
    """
    table = torch.randn(rows, width, generator=torch.Generator().manual_seed(0))
    try:
        theirs, peer = fbgemm(table), f"{PEER} {version(PEER)}"
    except (ImportError, OSError):  # a version for another torch can't be loaded
        return [Row(MEASURE, what, PEER, UNIT, note=MISSING) for what in WHATS]
    ours = nn.Parameter(table.clone())
    ours.register_hook(summed)
    optimizer = TouchedAdamW([ours], **SETTINGS)

    def ids(number: int) -> Tensor:
        return torch.randint(rows, (tokens,), generator=torch.Generator().manual_seed(number))

    def looked_up(number: int) -> Tensor:
        return F.embedding(ids(number), ours, sparse=True)

    def moved(number: int) -> None:
        optimizer.zero_grad()
        looked_up(number).sum().backward()
        optimizer.step()

    if not torch.equal(looked_up(0), theirs(ids(0))):
        raise AssertionError(f"{PEER} and ours give other rows, so their times can't be compared")
    with torch.no_grad():
        alone = interleaved({"ours": looked_up, "theirs": lambda number: theirs(ids(number))}, rounds, tick)
    whole = interleaved({"ours": moved, "theirs": lambda number: theirs(ids(number)).sum().backward()}, rounds, tick)
    about = f"{tokens:,} ids of {rows:,} rows x {width:,}"
    return [
        compared(MEASURE, what, peer, UNIT, seconds["ours"], seconds["theirs"], tokens * width / 1e6, note=about)
        for what, seconds in zip(WHATS, (alone, whole), strict=True)
    ]
