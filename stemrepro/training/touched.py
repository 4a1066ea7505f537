"""AdamW that moves only the rows of a table that the batch touched: another semantics than the paper's, named as such."""

import torch
from torch import Tensor

from stemrepro.training.table_adamw import TableAdamW


class TouchedAdamW(TableAdamW):
    """AdamW whose tables are updated row by row, those rows that have a gradient.

    A row without gradient keeps its weights, its moments and its own count of steps (dense AdamW would decay it and let old
    momentum move it). A row that every batch touches moves as under dense AdamW.
    """

    def step_table(self, table: Tensor, group: dict) -> None:
        """One update in place of a table [rows, width]."""
        state = self.state[table]
        if not state:
            state["step"] = torch.zeros(len(table), device=table.device)
            state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(table), torch.zeros_like(table)
        rows = (table.grad != 0).any(dim=1).nonzero().flatten()
        gradient, (first, second) = table.grad[rows], group["betas"]
        state["step"][rows] += 1
        mean = state["exp_avg"][rows].lerp(gradient, 1 - first)
        square = state["exp_avg_sq"][rows].mul(second).addcmul(gradient, gradient, value=1 - second)
        state["exp_avg"][rows], state["exp_avg_sq"][rows] = mean, square
        steps = state["step"][rows].unsqueeze(1)
        scale = (square / (1 - second**steps)).sqrt().add(group["eps"])
        kept = table[rows] * (1 - group["lr"] * group["weight_decay"])
        table[rows] = kept - group["lr"] * (mean / (1 - first**steps)) / scale
