"""Passes of a model whose tables are in host memory, in every home, against its passes with tables on the device.

A pass is a chunk of a prefill, or a step of decoding after it. Logits are compared bit by bit, bytes with the cost
model. A processor has one memory and nothing can overlap: times show what the bookkeeping and the gather cost.
"""

import gc
from collections.abc import Callable

import torch
from torch import Tensor

from benchmarks.interleaved import Row, compared, interleaved
from benchmarks.peer_training import Steps
from stemrepro.data.blocks import TokenBlocks
from stemrepro.model.cache import Cache
from stemrepro.model.cost import row_bytes
from stemrepro.model.transformer import Decoder, build
from stemrepro.offload.offload import OffloadedTables, offload
from stemrepro.offload.row_cache import RowCache

MEASURE = "tables in host memory"
ARM, RESIDENT = "stem-third", "on the device"
CHUNK = 128
SHARES = (1 / 32, 1 / 8)
"""Rows that a cache holds / rows of a table."""
TARGETS = {"prefill": 1.01, "decode": 1.05}


def homes(vocab: int) -> dict[str, dict]:
    """Return the arguments of `offload`, by home."""
    cached = {
        f"ahead, distinct, LFU of 1/{round(1 / share)}": {"cache": RowCache(max(1, round(share * vocab)), vocab)}
        for share in SHARES
    }
    return {
        "when asked for": {"ahead": 0, "distinct": False},
        "ahead": {"distinct": False},
        "ahead, distinct": {},
    } | cached


class Passes:
    """Passes of one model after a prefix: `prefill` reads a chunk of each sequence, `decode` a token."""

    def __init__(self, model: Decoder, prefix: Tensor, batches: Callable[[int], Tensor]) -> None:
        self.model, self.batches = model, batches
        self.before = Cache(len(model.blocks))
        with torch.no_grad():
            model(prefix, self.before)

    def _read(self, tokens: Tensor) -> Tensor:
        """Return logits of tokens [batch, new] after the prefix, whose cache stays as it is."""
        cache = Cache(len(self.model.blocks))
        cache.tokens = self.before.tokens
        for layer, past in zip(cache.layers, self.before.layers, strict=True):
            layer.keys, layer.values = past.keys, past.values
        with torch.no_grad():
            return self.model(tokens, cache)

    def prefill(self, number: int) -> Tensor:
        """Return logits of a chunk."""
        return self._read(self.batches(number))

    def decode(self, number: int) -> Tensor:
        """Return logits of a token of each sequence."""
        return self._read(self.batches(number)[:, :1])


def checked(passes: dict[str, Passes], offloaded_by_name: dict[str, OffloadedTables], rounds: int) -> None:
    """Check that every home gives the same bits, and without a cache moves the bytes of the cost model.

    Raises:
        RuntimeError: one doesn't.
    """
    for number in range(rounds):
        for kind in TARGETS:
            wanted = getattr(passes[RESIDENT], kind)(number)
            for name, offloaded in offloaded_by_name.items():
                moved, rows = offloaded.link.moved, offloaded.counts.fetched
                if not torch.equal(getattr(passes[name], kind)(number), wanted):
                    raise RuntimeError(f"tables {name}: another model's logits")
                element = offloaded.tables[0].element_size()
                bytes_of_rows = row_bytes(passes[name].model.config, offloaded.counts.fetched - rows, element)
                if offloaded.link.moved - moved != bytes_of_rows:
                    raise RuntimeError(
                        f"tables {name}: {offloaded.link.moved - moved} bytes moved, not {bytes_of_rows}"
                    )


def measure(steps: Steps, prefix: int, rounds: int, tick: Callable[[], None]) -> list[Row]:
    """Return each home's passes against those with tables on the device, after `prefix` tokens of each sequence."""
    config, device = steps.run(ARM).model, steps.device
    kind = torch.bfloat16 if device == "cuda" else torch.float32
    blocks = TokenBlocks(steps.blocks, "train", prefix + CHUNK - 1, config.vocab)
    models = {name: build(config, 0).to(device, kind).eval() for name in (RESIDENT, *homes(config.vocab))}
    offloaded_by_name = {name: offload(models[name], **settings) for name, settings in homes(config.vocab).items()}

    def chunk(number: int) -> Tensor:
        return blocks.batch(0, number, steps.sequences)[:, prefix:].to(device)

    before = blocks.batch(1, 0, steps.sequences)[:, :prefix].to(device)
    passes = {name: Passes(model, before, chunk) for name, model in models.items()}
    checked(passes, offloaded_by_name, 3)
    results = []
    for what, target in TARGETS.items():
        counted = {
            name: (offloaded.link.moved, offloaded.counts.tokens, offloaded.counts.found)
            for name, offloaded in offloaded_by_name.items()
        }
        turns = {name: getattr(model_passes, what) for name, model_passes in passes.items()}
        seconds = interleaved(turns, rounds, tick, device=device)
        for name, offloaded in offloaded_by_name.items():
            moved, tokens, hits = counted[name]
            taken = offloaded.counts.tokens - tokens
            per_pass = taken / (steps.sequences * (CHUNK if what == "prefill" else 1))
            table_bytes = sum(table.numel() * table.element_size() for table in offloaded.tables)
            note = (
                f"{ARM}, {steps.sequences} sequences of {prefix} tokens before; "
                f"{(offloaded.link.moved - moved) / per_pass / 1e6:.3g} MB a pass, "
                f"{offloaded.device_bytes / 1e6:.3g} MB on the device for {table_bytes / 1e6:.3g} MB of tables, "
                f"{100 * (offloaded.counts.found - hits) / taken:.0f}% of tokens found there"
            )
            results.append(
                compared(
                    MEASURE, f"{what}, {name}", RESIDENT, "ms a pass", seconds[name], seconds[RESIDENT],
                    bound="at most", target=target, note=note,
                )
            )  # fmt: skip
    del passes, models, offloaded_by_name
    gc.collect()
    return results
