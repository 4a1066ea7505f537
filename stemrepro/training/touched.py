"""AdamW that moves only the rows of a table that the batch touched: another semantics than the paper's, named as such."""

import torch
from torch import Tensor


class TouchedAdamW(torch.optim.AdamW):
    """AdamW whose groups with `touched: True` are updated row by row.

    A row without gradient keeps its weights, its moments and its own count of steps (dense AdamW would decay it and let old
    momentum move it). A row that every batch touches moves as under dense AdamW. Other groups are torch's fused AdamW.
    """

    @torch.no_grad()
    def step(self, closure: object = None) -> object:
        """One update of all groups."""
        tables = [group for group in self.param_groups if group.get("touched")]
        held = [(group, group["params"]) for group in tables]
        for group in tables:
            for table in group["params"]:
                if table.grad is not None:
                    self._step_rows(table, group)
            group["params"] = []
        try:
            return super().step(closure)
        finally:
            for group, parameters in held:
                group["params"] = parameters

    def _step_rows(self, table: Tensor, group: dict) -> None:
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
