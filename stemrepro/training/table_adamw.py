"""What AdamWs with an update of their own for tables share."""

import torch
from torch import Tensor


class TableAdamW(torch.optim.AdamW):
    """AdamW's settings, for tables that `step_table` updates."""

    def step_table(self, table: Tensor, group: dict) -> None:
        """One update in place of a table [rows, width] with a gradient, by the settings of its group."""
        raise NotImplementedError

    @torch.no_grad()
    def step(self) -> None:
        """One update of all tables that have a gradient."""
        for group in self.param_groups:
            for table in group["params"]:
                if table.grad is not None:
                    self.step_table(table, group)
