"""The base of AdamWs that update tables in a different way."""

import torch
from torch import Tensor


class TableAdamW(torch.optim.AdamW):
    """AdamW's settings for tables that `step_table` updates."""

    def step_table(self, table: Tensor, group: dict) -> None:
        """Update a table [rows, width] with a gradient in place, by the settings of its group."""
        raise NotImplementedError

    @torch.no_grad()
    def step(self) -> None:
        """Update all tables that have a gradient."""
        for group in self.param_groups:
            for table in group["params"]:
                if table.grad is not None:
                    self.step_table(table, group)
