"""Tables sharded along their width: each rank has some columns of all rows, and ranks exchange the rows they read.

Under FSDP a pass brings all rows of a table to each rank. Here it brings those of the rank's own distinct tokens. The
official code does so too. Other than there, ids are distinct, and are exchanged once for all layers. In a group of W
ranks, each receives per pass and table (its own distinct ids) x width x (W - 1) / W numbers, and returns as many.
"""

from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

from stemrepro.training import ranks


@dataclass(frozen=True)
class Request:
    """What the ranks of a group read in one pass.

    Attributes:
        tokens: this rank's ids, of any shape.
        places: for each of them, the row among this rank's distinct ids.
        counts: number of distinct ids of each rank.
        ids: the distinct ids of all ranks, one rank after another.
    """

    tokens: Tensor
    places: Tensor
    counts: list[int]
    ids: Tensor


class Exchange:
    """The exchange of rows in a group, shared by all tables of a model.

    Attributes:
        received, returned: bytes of rows that came from other ranks so far, and of gradients that went to them.
        asked: bytes of ids that came from other ranks.
    """

    def __init__(self, group: dist.ProcessGroup) -> None:
        self.group, self.ranks, self.rank = group, dist.get_world_size(group), dist.get_rank(group)
        self.received = self.returned = self.asked = 0
        self.request: Request | None = None

    def request_of(self, tokens: Tensor) -> Request:
        """Return the request of a pass; layers that read by the same ids have one."""
        if self.request is None or self.request.tokens is not tokens:
            distinct, places = torch.unique(tokens, return_inverse=True)
            counts = self._from_all(torch.tensor([len(distinct)], device=tokens.device)).flatten().tolist()
            padded = self._from_all(F.pad(distinct, (0, max(counts) - len(distinct))))
            ids = torch.cat([row[:count] for row, count in zip(padded, counts, strict=True)])
            self.request = Request(tokens, places, counts, ids)
        return self.request

    def _from_all(self, mine: Tensor) -> Tensor:
        """Return the values [n] of all ranks [ranks, n]."""
        gathered = [torch.empty_like(mine) for _ in range(self.ranks)]
        dist.all_gather(gathered, mine, group=self.group)
        self.asked += (self.ranks - 1) * mine.numel() * mine.element_size()
        return torch.stack(gathered)

    def forth(self, columns: Tensor, counts: list[int]) -> Tensor:
        """Send this rank's columns [sum of counts, width / ranks]; return its own rows [its count, width]."""
        mine, part = counts[self.rank], columns.shape[1]
        parts = columns.new_empty(self.ranks * mine, part)
        dist.all_to_all_single(parts, columns.contiguous(), [mine] * self.ranks, counts, group=self.group)
        self.received += (self.ranks - 1) * mine * part * columns.element_size()
        return parts.view(self.ranks, mine, part).transpose(0, 1).flatten(1)

    def back(self, rows: Tensor, counts: list[int]) -> Tensor:
        """Send gradients of this rank's rows; return those of its columns. Shapes are those of `forth`, reversed."""
        mine, part = counts[self.rank], rows.shape[1] // self.ranks
        parts = rows.view(mine, self.ranks, part).transpose(0, 1).flatten(0, 1).contiguous()
        columns = rows.new_empty(sum(counts), part)
        dist.all_to_all_single(columns, parts, counts, [mine] * self.ranks, group=self.group)
        self.returned += (self.ranks - 1) * mine * part * rows.element_size()
        return columns


class _Rows(torch.autograd.Function):
    """`Exchange.forth`, whose gradient is that of the mean over all ranks, as FSDP's."""

    @staticmethod
    def forward(ctx: object, columns: Tensor, exchange: Exchange, counts: list[int]) -> Tensor:
        ctx.exchange, ctx.counts = exchange, counts
        return exchange.forth(columns, counts)

    @staticmethod
    def backward(ctx: object, gradient: Tensor) -> tuple[Tensor, None, None]:
        return ctx.exchange.back(gradient.contiguous(), ctx.counts) / ranks.world(), None, None


class WidthTable(nn.Module):
    """A module in a table's place: forward(ids of any shape) -> [..., width].

    Attributes:
        weight: the table [rows, width]; this rank has width / ranks of its columns.
        num_embeddings: its rows.
    """

    def __init__(
        self, table: nn.Embedding, mesh: DeviceMesh, exchange: Exchange, dtype: torch.dtype = torch.float32
    ) -> None:
        """Take a whole table that is the same on all ranks.

        Args:
            mesh: [copies of a table, ranks that share one].
            exchange: among the ranks that share one.
            dtype: of rows that are exchanged, and of their gradients; the table itself stays as it is.
        """
        super().__init__()
        self.exchange, self.num_embeddings, self.dtype = exchange, table.num_embeddings, dtype
        whole = table.weight
        sharded = distribute_tensor(whole.detach(), mesh, (Replicate(), Shard(1)), src_data_rank=None)
        self.weight = nn.Parameter(sharded, requires_grad=whole.requires_grad)

    @torch.compiler.disable  # it waits for numbers of other ranks
    def forward(self, tokens: Tensor) -> Tensor:
        """Return the rows of ids."""
        request = self.exchange.request_of(tokens)
        columns = F.embedding(request.ids, self.weight.to_local()).to(self.dtype)
        return F.embedding(request.places, _Rows.apply(columns, self.exchange, request.counts))

    def reduce_copies(self) -> None:
        """Add up the gradients of a table's copies, which read different tokens."""
        if isinstance(gradient := self.weight.grad, DTensor) and gradient.device_mesh.size(0) > 1:
            dist.all_reduce(gradient.to_local(), group=gradient.device_mesh.get_group(0))
