"""AdamW with one second moment per row of a table: half the state, and a row's elements move by one scale."""

from typing import Any

import torch
from torch import Tensor


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
        """Update a table [rows, width] in place."""
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
