"""What AdamWs with an update of their own for tables share."""

import torch
from torch import Tensor


class TableAdamW(torch.optim.AdamW):
    """AdamW whose groups with `tables: True` are updated by `step_table`; other groups are torch's fused AdamW."""

    def step_table(self, table: Tensor, group: dict) -> None:
        """One update in place of a table [rows, width] with a gradient, by the settings of its group."""
        raise NotImplementedError

    @torch.no_grad()
    def step(self, closure: object = None) -> object:
        """One update of all groups; the closure, which makes the gradients, comes first."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        tables = [group for group in self.param_groups if group.get("tables")]
        held = [(group, group["params"]) for group in tables]
        for group in tables:
            for table in group["params"]:
                if table.grad is not None:
                    self.step_table(table, group)
            group["params"] = []
        try:
            super().step()
            return loss
        finally:
            for group, parameters in held:
                group["params"] = parameters
