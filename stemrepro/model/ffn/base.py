"""What all feed-forward networks share."""

from collections.abc import Callable
from typing import ClassVar, Literal

import torch.nn.functional as F
from torch import Tensor, nn

Places = tuple[Tensor, Tensor]
"""Rows of a batch [n] and positions in them [n]."""


def matrix(inputs: int, outputs: int) -> nn.Linear:
    """Return a linear map without bias."""
    return nn.Linear(inputs, outputs, bias=False)


class FFN(nn.Module):
    """One layer's feed-forward network: forward(x [batch, seq, width], tokens [batch, seq]) -> [batch, seq, width].

    Each method is a task of a network other than its forward pass, with a default that does nothing.

    Attributes:
        load_balancing_loss: load-balancing loss of the last forward pass, 1 when even; None without a learned router.
        load_balancing_weight: what training multiplies it by before it is added to the loss; Switch Transformers' 0.01.
        reads_embedding: x is the token's input embedding under the block's norm, not the residual stream.
        starts: initial values of parameters that are not drawn, by name.
        row_address: what chooses a table's row. "token"; "pair": the token and the one before it; "router": the token
            and x; "order": the token, in an order that is drawn anew at every training step.
    """

    load_balancing_loss: Tensor | None = None
    load_balancing_weight: float = 0.01
    reads_embedding = False
    starts: ClassVar[dict[str, float]] = {}
    row_address: Literal["token", "pair", "router", "order"] = "token"

    def start_run(self, frequencies: Callable[[], Tensor]) -> None:
        """Prepare a run before its first step; `frequencies` counts each token of its text, int64 [vocab]."""

    def start_step(self, stream: str) -> None:
        """Prepare a training step; `stream` names the random stream of this seed, step and layer."""

    def up_vectors(self, x: Tensor, tokens: Tensor, places: Places) -> Tensor | None:
        """Return the vectors [n, ffn_width] in the up-projection's place, or None.

        x is [batch, seq, width], tokens [batch, seq].
        """
        return None

    def gate_vectors(self, x: Tensor, places: Places) -> Tensor | None:
        """Return SiLU(W_g x) [n, ffn_width], by which `up_vectors` are multiplied; None where there is no W_g."""
        return F.silu(self.gate(x[places])) if hasattr(self, "gate") else None


def is_table(parameter_name: str) -> bool:
    """Tell whether a parameter's name is that of a token-indexed table."""
    return parameter_name.endswith(
        ("ffn.table.weight", "attention.table.weight", "pairs.table.weight")
    ) or parameter_name.startswith(("memory.table.", "memory.tables."))


def table_parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """Return the tables of a model by parameter name, each [vocab, its width]; that of pairs [pair_rows, width]."""
    return {name: parameter for name, parameter in model.named_parameters() if is_table(name)}
