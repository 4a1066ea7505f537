"""Tables in host memory for a model that computes elsewhere: `offload` moves them, and logits stay the same.

All token ids of a pass are given when it begins, so rows can be on their way before a layer needs them. The paper's
systems text has asynchronous prefetch, de-duplication of ids, and a cache of hot rows.
"""

from dataclasses import dataclass
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stemrepro.common.errors import UserError
from stemrepro.model.block import Block
from stemrepro.model.names import OWN_FILE
from stemrepro.model.transformer import Decoder
from stemrepro.offload.link import Buffer, CudaLink, Link
from stemrepro.offload.row_cache import RowCache


@dataclass
class Counts:
    """Rows that passes requested so far, per table.

    Attributes:
        tokens: token places.
        rows: rows requested: distinct ids per pass, or as many as tokens without de-duplication.
        fetched: those of them that the cache did not hold.
        found: token places whose row the cache held.
    """

    tokens: int = 0
    rows: int = 0
    fetched: int = 0
    found: int = 0


class HostTable(nn.Module):
    """A module in a table's place: forward(tokens [batch, seq]) -> [batch, seq, width] on the model's device."""

    def __init__(self, offloaded: "OffloadedTables", place: int) -> None:
        super().__init__()
        self.offloaded, self.place = offloaded, place

    def forward(self, tokens: Tensor) -> Tensor:
        """Return U[token]."""
        return self.offloaded.take(self.place, tokens)


class OffloadedTables:
    """Host tables of one model, in the order in which a pass reads them.

    Rows of up to `ahead` tables are on their way while the model works. With 0 they are brought when a layer requests
    them, and the model waits.

    Args:
        tables: [vocab, width] each, in host memory; pinned where the link wants that.
        distinct: bring each row of a pass once.
        cache: keeps rows on the device from pass to pass; needs `distinct`, and belongs to these tables alone.

    Raises:
        ValueError: a cache without de-duplication or of other tables, or a negative `ahead`.
    """

    def __init__(
        self, tables: list[Tensor], link: Link, ahead: int = 2, distinct: bool = True, cache: RowCache | None = None
    ) -> None:
        if cache is not None and not distinct:
            raise ValueError("a cache of rows needs de-duplicated ids (distinct=True)")
        if cache is not None and cache.taken:
            raise ValueError("the cache's books are those of another model's rows; give each its own RowCache")
        if ahead < 0:
            raise ValueError(f"rows are brought 0 tables ahead or more, not {ahead}")
        self.tables, self.link, self.ahead, self.distinct, self.cache = tables, link, ahead, distinct, cache
        self.stores: list[Tensor] = []
        if cache is not None:
            cache.taken = True
            with torch.inference_mode(False):
                self.stores = [
                    torch.zeros(len(cache.held), table.shape[1], dtype=table.dtype, device=link.device)
                    for table in tables
                ]
        self.buffers: list[Buffer | None] = [None] * min(max(1, ahead), len(tables))
        self.counts = Counts()
        self.tokens: Tensor | None = None
        self.begun = self.taken = 0

    @property
    def device_bytes(self) -> int:
        """Return bytes of buffers and cache slots on the model's device."""
        held = [buffer.rows for buffer in self.buffers if buffer is not None] + self.stores
        return sum(tensor.numel() * tensor.element_size() for tensor in held)

    def begin(self, tokens: Tensor) -> None:
        """Begin a pass over tokens [batch, seq]: rows of the first tables are on their way when this returns."""
        self._abandon()
        host = tokens.cpu()
        if self.distinct:
            ids, places, times = torch.unique(host, return_inverse=True, return_counts=True)
        else:
            ids, places, times = host.flatten(), torch.arange(host.numel()).view_as(host), torch.ones(host.numel())
        if len(ids) and not 0 <= int(ids.min()) <= int(ids.max()) < len(self.tables[0]):
            raise ValueError(
                f"token ids {int(ids.min())} to {int(ids.max())}: the tables hold rows 0 to {len(self.tables[0]) - 1}"
            )
        self.fetched, cached = ids, 0
        self.tokens, self.begun, self.taken = tokens, 0, 0  # from here on what fails is taken out of the books
        if self.cache is not None:
            slots, missed = map(torch.from_numpy, self.cache.request(ids.numpy()))
            self.fetched, cached = ids[missed], int(times[~missed].sum())
            self.moves = self._moves(slots, missed)
        self.places = places.to(self.link.device)
        self.counts.tokens += tokens.numel()
        self.counts.rows += len(ids)
        self.counts.fetched += len(self.fetched)
        self.counts.found += cached
        for _ in range(min(self.ahead, len(self.tables))):
            self._fetch_next()

    def _moves(self, slots: Tensor, missed: Tensor) -> list[Tensor]:
        """Return the moves between ids of the pass, cache slots and fetched rows, the same for all tables.

        They are places of held ids, their slots, places of fetched ids, which of the fetched enter, and their slots.
        They lie on the device, where lists of indices cost no wait.
        """
        held, came = (~missed).nonzero().flatten(), missed.nonzero().flatten()
        enter = (slots[came] >= 0).nonzero().flatten()
        return [indices.to(self.link.device) for indices in (held, slots[held], came, enter, slots[came][enter])]

    def _abandon(self) -> None:
        """Take out of the cache's books what a pass that ended early never brought to all tables."""
        if self.tokens is not None and self.cache is not None and self.taken < len(self.tables):
            self.cache.forget(self.fetched.numpy())
        self.tokens = None

    def _fetch_next(self) -> None:
        place, table = self.begun % len(self.buffers), self.tables[self.begun]
        try:
            buffer, wanted = self.buffers[place], len(self.fetched)
            if buffer is None or buffer.rows.shape[0] < wanted or buffer.rows.shape[1:] != table.shape[1:]:
                buffer = self.buffers[place] = self.link.buffer(wanted, table)
            self.link.fill(buffer, table, self.fetched)
        except BaseException:
            self._abandon()
            raise
        self.begun += 1

    def take(self, place: int, tokens: Tensor) -> Tensor:
        """Return rows of a table for the tokens [batch, seq] of the pass that has begun -> [batch, seq, width].

        RuntimeError: they are not the pass's tokens, a table is read twice or out of turn, or the rows never arrived.
        """
        if tokens is not self.tokens:
            raise RuntimeError(f"rows of table {place} are requested for tokens that no pass has begun with")
        if place != self.taken:
            raise RuntimeError(f"table {place} is read when it is table {self.taken}'s turn")
        if self.begun == place:
            self._fetch_next()
        buffer = cast(Buffer, self.buffers[place % len(self.buffers)])
        self.link.wait(buffer)
        rows = buffer.rows[: len(self.fetched)]
        if self.cache is not None:
            rows = self._with_cache(place, rows)
        vectors = F.embedding(self.places, rows)
        self.link.release(buffer)
        self.taken += 1
        if self.ahead and self.begun < len(self.tables):
            self._fetch_next()
        return vectors

    def _with_cache(self, place: int, fetched: Tensor) -> Tensor:
        """Return rows of all ids of the pass [ids, width]; the fetched ones then enter the cache."""
        store, (held, held_slots, came, enter, enter_slots) = self.stores[place], self.moves
        rows = torch.empty(len(held) + len(came), store.shape[1], dtype=store.dtype, device=store.device)
        rows.index_copy_(0, held, store.index_select(0, held_slots))
        rows.index_copy_(0, came, fetched)
        store.index_copy_(0, enter_slots, fetched.index_select(0, enter))
        return rows


def table_owners(model: Decoder) -> list[nn.Module]:
    """Return modules whose `table` a pass reads by token, in that order; UserError: there is none, or another way."""
    config = model.config
    from_file = bool(OWN_FILE.fullmatch(config.ffn))
    outside = model.pairs is not None or model.memory is not None
    by_token = not outside and all(cast(Block, block).ffn.row_address == "token" for block in model.blocks)
    if from_file or not by_token or config.table_shared:
        raise UserError(f"'{config.ffn}' can't be offloaded: the token alone doesn't choose its rows, a table a layer")
    modules: list[nn.Module] = []
    for block in model.blocks:
        modules += cast(Block, block).attention, cast(Block, block).ffn
    owners = [module for module in modules if isinstance(getattr(module, "table", None), nn.Embedding)]
    if not owners:
        raise UserError(f"'{config.ffn}' has no table to offload")
    return owners


def offload(
    model: Decoder, ahead: int = 2, distinct: bool = True, cache: RowCache | None = None, link: Link | None = None
) -> OffloadedTables:
    """Move a model's tables to host memory, for inference: in their places are `HostTable`s that read them from there.

    Call it with the model on its device. Gradients don't reach the tables. UserError: see `table_owners`.
    """
    device = model.embedding.weight.device
    link = link or (CudaLink(device) if device.type == "cuda" else Link())
    owners = table_owners(model)
    tables = []
    for owner in owners:
        table = cast(nn.Embedding, owner.table).weight.detach().cpu()
        tables.append(table.pin_memory() if link.device.type == "cuda" else table)
    offloaded = OffloadedTables(tables, link, ahead, distinct, cache)
    for place, owner in enumerate(owners):
        owner.table = HostTable(offloaded, place)
    model.register_forward_pre_hook(
        lambda _, inputs, named: offloaded.begin(inputs[0] if inputs else named["tokens"]), with_kwargs=True
    )
    return offloaded
