"""Passes of a model whose tables are in host memory beside those of the same model with its tables on the device, in every home.

A pass is a chunk of a prefill, or a step of decoding behind it. Logits are compared bit by bit, bytes with the cost model. On a processor there is
one memory and nothing can overlap: what is seen there is what the bookkeeping and the gather cost.
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
    """Return what `offload` is told, by home."""
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
    """Passes of one model behind a prefix: `prefill` reads a chunk of each sequence, `decode` a token."""

    def __init__(self, model: Decoder, prefix: Tensor, batches: Callable[[int], Tensor]) -> None:
        self.model, self.batches = model, batches
        self.before = Cache(len(model.blocks))
        with torch.no_grad():
            model(prefix, self.before)

    def _read(self, tokens: Tensor) -> Tensor:
        """Logits of tokens [batch, new] behind the prefix, which stays what it is."""
        cache = Cache(len(self.model.blocks))
        cache.tokens = self.before.tokens
        for own, past in zip(cache.layers, self.before.layers, strict=True):
            own.keys, own.values = past.keys, past.values
        with torch.no_grad():
            return self.model(tokens, cache)

    def prefill(self, number: int) -> Tensor:
        """Logits of a chunk."""
        return self._read(self.batches(number))

    def decode(self, number: int) -> Tensor:
        """Logits of a token of each sequence."""
        return self._read(self.batches(number)[:, :1])


def checked(passes: dict[str, Passes], offloaded_by_name: dict[str, OffloadedTables], rounds: int) -> None:
    """Every home gives the same bits, and without a cache moves the bytes of the cost model.

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
    """Return each home's passes beside those of the same model with its tables on the device, behind `prefix` tokens of each sequence."""
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
    found = []
    for what, target in TARGETS.items():
        evals = {
            name: (offloaded.link.moved, offloaded.counts.tokens, offloaded.counts.found)
            for name, offloaded in offloaded_by_name.items()
        }
        turns = {name: getattr(own, what) for name, own in passes.items()}
        seconds = interleaved(turns, rounds, tick, device=device)
        for name, offloaded in offloaded_by_name.items():
            moved, tokens, hits = evals[name]
            taken = offloaded.counts.tokens - tokens
            per_pass = taken / (steps.sequences * (CHUNK if what == "prefill" else 1))
            note = (
                f"{ARM}, {steps.sequences} sequences of {prefix} tokens before; {(offloaded.link.moved - moved) / per_pass / 1e6:.3g} MB a pass, "
                f"{offloaded.device_bytes / 1e6:.3g} MB on the device for {sum(t.numel() * t.element_size() for t in offloaded.tables) / 1e6:.3g} MB of "
                f"tables, {100 * (offloaded.counts.found - hits) / taken:.0f}% of tokens found there"
            )
            found.append(
                compared(
                    MEASURE, f"{what}, {name}", RESIDENT, "ms a pass", seconds[name], seconds[RESIDENT], bound="at most", target=target, note=note,
                )
            )  # fmt: skip
    del passes, models, offloaded_by_name
    gc.collect()
    return found
