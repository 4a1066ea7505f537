"""What a retrofit can be, without torch."""

from dataclasses import replace
from typing import Literal, get_args

from stemrepro.common.errors import UserError
from stemrepro.model.config import ModelConfig

Kind = Literal["token-means", "mean-row"]
"""How rows are made: each of its token's mean, or as a control all of them of the mean over all tokens."""
KINDS: tuple[Kind, ...] = get_args(Kind)


def check(dense: ModelConfig, stem: ModelConfig, ffn: str = "stem") -> None:
    """Raise UserError unless one is the other with tables in place of up-projections in its `replaced_layers`.

    Args:
        ffn: the network that the second must have; "stem-interpolated" keeps the up-projections for a while.
    """
    if stem.ffn != ffn or stem.table_shared:
        what = f"ffn '{stem.ffn}'" + (" with a shared table" if stem.table_shared else "")
        raise UserError(f"{what} can't be retrofitted so; choose an arm with ffn '{ffn}' and a table for each layer")
    if not stem.replaced_layers:
        raise UserError("no layer is to have a table; choose another placement than 'none'")
    retrofitted = replace(dense, replaced_layers=stem.replaced_layers, ffn=ffn, table_init=stem.table_init)
    if dense.replaced_layers or retrofitted != stem:
        raise UserError(f"a retrofit needs a dense model of the same shape: {dense} is none of {stem}")
