"""Rows of a pinned host table, read by the GPU itself; `gather_rows` is None without Triton."""

from typing import Any

try:
    import triton
    import triton.language as tl
except ImportError:
    gather_rows = None
else:
    from torch import Tensor

    WIDEST = 1024
    """Elements that one program copies."""

    @triton.jit
    def _gather(source: Any, ids: Any, target: Any, width: Any, BLOCK: tl.constexpr) -> None:
        place = tl.program_id(0).to(tl.int64)
        columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
        row = tl.load(ids + place).to(tl.int64)  # a table has more elements than 32 bits count
        values = tl.load(source + row * width + columns, mask=columns < width)
        tl.store(target + place * width + columns, values, mask=columns < width)

    def gather_rows(source: Tensor, ids: Tensor, target: Tensor) -> None:
        """Copy target[: n] = source[ids], of source [vocab, width] in pinned memory, ids [n] and target on the GPU."""
        block = min(WIDEST, triton.next_power_of_2(source.shape[1]))
        if len(ids):
            _gather[(len(ids), triton.cdiv(source.shape[1], block))](source, ids, target, source.shape[1], BLOCK=block)
