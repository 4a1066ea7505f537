"""What all feed-forward networks share, and the way from a name to a class."""

import importlib
import importlib.util
import sys
from collections.abc import Callable
from functools import cache
from typing import ClassVar, Literal

import torch.nn.functional as F
from torch import Tensor, nn

from stemrepro.common.errors import UserError
from stemrepro.model.ffn.naming import module_of

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
        gate = getattr(self, "gate", None)
        return None if gate is None else F.silu(gate(x[places]))


@cache
def ffn_class(name: str) -> type[FFN]:
    """Return the class of a network: the one that its module defines, or the named one of a file outside the package.

    Raises:
        UserError: the file can't be imported or has no such class.
    """
    place = module_of(name)
    if isinstance(place, str):
        module = importlib.import_module(place)
        classes = [value for value in vars(module).values() if isinstance(value, type) and value.__module__ == place]
        [network] = [value for value in classes if issubclass(value, FFN)]  # a file has one network
        return network
    loading = importlib.util.spec_from_file_location(f"own_ffn_{'_'.join(place.with_suffix('').parts)}", place)
    assert loading is not None, f"{place} is no .py file"
    assert loading.loader is not None, f"{place} is no .py file"
    module = importlib.util.module_from_spec(loading)
    sys.modules[module.__name__] = module  # torch.compile looks up the globals of a method there
    try:
        loading.loader.exec_module(module)
    except Exception as error:
        del sys.modules[module.__name__]
        raise UserError(f"{place} can't be imported: {type(error).__name__}: {error}") from error
    wanted = name.partition(":")[2]
    value = getattr(module, wanted, None)
    if not (isinstance(value, type) and issubclass(value, FFN)):
        raise UserError(f"{place} has no class '{wanted}' that is an FFN (stemrepro.model.ffn.base)")
    return value


def is_table(parameter_name: str) -> bool:
    """Tell whether a parameter's name is that of a token-indexed table."""
    return parameter_name.endswith(
        ("ffn.table.weight", "attention.table.weight", "pairs.table.weight")
    ) or parameter_name.startswith(("memory.table.", "memory.tables."))


def table_parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """Return the tables of a model by parameter name, each [vocab, its width]; that of pairs [pair_rows, width]."""
    return {name: parameter for name, parameter in model.named_parameters() if is_table(name)}
