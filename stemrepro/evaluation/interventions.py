"""What a trained model's tables are asked to do without: rows dealt out to other tokens, or every row the mean of all.

Controls at inference, for models that were trained as usual. A loss that survives the mean rows came from the gate and the
down-projection; what permuting costs beyond that is what rows of wrong tokens mislead to.
"""

import torch

from stemrepro.model.ffn import table_parameters
from stemrepro.model.transformer import Decoder


@torch.no_grad()
def permute_rows(model: Decoder, seed: int) -> None:
    """Deals every table's rows out to other tokens, each table by an order of its own that the seed fixes."""
    for number, table in enumerate(table_parameters(model).values()):
        generator = torch.Generator().manual_seed(1000 * seed + number)
        table.copy_(table[torch.randperm(len(table), generator=generator)])


@torch.no_grad()
def mean_rows(model: Decoder, weights: torch.Tensor | None = None) -> None:
    """Makes every row of a table the mean of its rows.

    Args:
        weights: how often each token occurs [vocab]; None for all alike.
    """
    for table in table_parameters(model).values():
        share = torch.ones(len(table)) if weights is None else weights.float()
        table.copy_((share / share.sum()) @ table)
