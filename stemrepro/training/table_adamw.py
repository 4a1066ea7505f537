"""Optimisers of tables that aren't dense AdamW: one second moment a row, or only the rows that a batch touched.

The latter isn't the paper's semantics, and is named as such.
"""

from typing import Any

import torch
from torch import Tensor, nn

from stemrepro.common.errors import UserError
from stemrepro.model.ffn.base import table_parameters
from stemrepro.training.compiling import compiled


class TableAdamW(torch.optim.AdamW):
    """AdamW's settings for tables that `step_table` updates."""

    def step_table(self, table: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        """Update a table [rows, width] in place by its gradient and the settings of its group."""
        raise NotImplementedError

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """Update all tables that have a gradient."""
        for group in self.param_groups:
            for table in group["params"]:
                if table.grad is not None:
                    self.step_table(table, table.grad, group)


class RowwiseAdamW(TableAdamW):
    """AdamW whose tables [rows, width] have one second moment per row.

    With the gradient g and the moments m and v:

    m = b1 m + (1 - b1) g,  v_r = b2 v_r + (1 - b2) mean_i g_ri^2,
    U_ri = (1 - rate decay) U_ri - rate (m_ri / (1 - b1^t)) / (sqrt(v_r / (1 - b2^t)) + eps).

    The second moment per row is modded-nanogpt's (record #92), which has b1 = 0 too; here b1 is the backbone's. As
    under dense AdamW every row moves and decays at every step, and t counts all steps.
    """

    def step_table(self, table: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        """Update a table [rows, width] by its dense gradient."""
        state, (beta1, beta2) = self.state[table], group["betas"]
        if not state:
            state["step"] = torch.zeros((), device=table.device)
            state["exp_avg"] = torch.zeros_like(table)
            state["exp_avg_sq"] = torch.zeros_like(table[:, :1])
        state["step"] += 1
        state["exp_avg"].lerp_(gradient, 1 - beta1)
        state["exp_avg_sq"].lerp_(gradient.square().mean(dim=1, keepdim=True), 1 - beta2)
        scale = (state["exp_avg_sq"] / (1 - beta2 ** state["step"])).sqrt() + group["eps"]
        table.mul_(1 - group["lr"] * group["weight_decay"])
        table.sub_(group["lr"] * (state["exp_avg"] / (1 - beta1 ** state["step"])) / scale)


def summed(gradient: Tensor) -> Tensor:
    """Return a sparse gradient [rows, width] with each row once, the sum over its places in their order.

    The sums are to the bit those of the dense gradient of one look-up. torch's `coalesce` adds in another order.
    """
    rows, places = torch.unique(gradient._indices()[0], return_inverse=True)
    values = torch.ops.aten.embedding_dense_backward(gradient._values(), places, len(rows), -1, False)
    return torch.sparse_coo_tensor(rows[None], values, gradient.shape, is_coalesced=True, check_invariants=False)


def sparse_gradients(model: nn.Module) -> None:
    """Give a model's trained tables gradients of the rows that a batch read.

    So no cost of a step grows with the number of all rows.

    UserError: a table of a user's FFN is no nn.Embedding.
    """
    for name, table in table_parameters(model).items():
        if table.requires_grad:
            module = model.get_submodule(name.removesuffix(".weight"))
            if not isinstance(module, nn.Embedding):
                raise UserError(f"{name} is no nn.Embedding; table_update 'touched' needs one")
            module.sparse = True
            table.register_hook(summed)


def clip(tables: list[Tensor], limit: float) -> Tensor:
    """Clip sparse gradients, which torch's clip_grad_norm_ doesn't take; return the norm before."""
    held = []
    for table in tables:
        if table.grad is not None:
            table.grad = table.grad.coalesce()  # after several micro-batches torch forgets that each row occurs once
            held.append(table.grad.values())
    if not held:
        return torch.zeros(())
    norm = nn.utils.get_total_norm(held)
    torch._foreach_mul_(held, torch.clamp(limit / (norm + 1e-6), max=1.0))
    return norm


def new_moments(table: Tensor) -> dict[str, Tensor]:
    """Return the optimiser's state of a table [rows, width] before any step; each row counts its steps."""
    return {
        "step": torch.zeros(len(table), device=table.device),
        "exp_avg": torch.zeros_like(table),
        "exp_avg_sq": torch.zeros_like(table),
    }


def move_rows(table: Tensor, moments: dict[str, Tensor], rows: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
    """Update distinct rows [n] of a table [rows, width] in place by AdamW and their gradient [n, width].

    Nothing is recorded for a gradient; the caller sees to that, as the compiler can't.
    """
    beta1, beta2 = group["betas"]
    steps = moments["step"].index_select(0, rows).add_(1)
    mean = moments["exp_avg"].index_select(0, rows).lerp_(gradient, 1 - beta1)
    square = moments["exp_avg_sq"].index_select(0, rows).mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
    for name, value in (("step", steps), ("exp_avg", mean), ("exp_avg_sq", square)):
        moments[name].index_copy_(0, rows, value)
    steps = steps.unsqueeze(1)  # in place from here on, as a host's memory is slow
    scale = square.div_(1 - beta2**steps).sqrt_().add_(group["eps"])
    moved = mean.div_(1 - beta1**steps).mul_(group["lr"]).div_(scale)
    kept = table.index_select(0, rows).mul_(1 - group["lr"] * group["weight_decay"])
    table.index_copy_(0, rows, kept.sub_(moved))


class TouchedAdamW(TableAdamW):
    """AdamW that updates only those rows of tables that have a gradient.

    A row without gradient keeps its weights, its moments and its count of steps. (Dense AdamW would decay it and let
    old momentum move it.) A row that every batch touches moves as under dense AdamW.
    """

    def __init__(self, tables: list[Any], compile: bool = False, **settings: Any) -> None:
        """Take what torch's AdamW takes, and whether the update is compiled."""
        super().__init__(tables, **settings)
        self.move = compiled(move_rows, dynamic=True) if compile else move_rows  # other numbers of rows in every step

    def step_table(self, table: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        """Update a table [rows, width] in place by its sparse gradient (see `sparse_gradients`)."""
        state, gradient = self.state[table], gradient.coalesce()
        if not state:
            state |= new_moments(table)
        state["step"] = state["step"].to(table.device)  # after a resume it may lie on the processor
        # Not indices() and values(), which are views of a sparse tensor: the compiler fails on them.
        self.move(table, state, gradient._indices()[0], gradient._values(), group)
