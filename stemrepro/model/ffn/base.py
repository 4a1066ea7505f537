"""What all feed-forward networks share, and the way from a name to a class."""

import importlib
import importlib.util
import pkgutil
import sys
from collections.abc import Callable
from functools import cache
from typing import ClassVar, Literal, TypeVar

import torch.nn.functional as F
from torch import Tensor, nn

from stemrepro.common.errors import UserError, unknown
from stemrepro.model.names import OWN_FILE, module_of, own_file

Places = tuple[Tensor, Tensor]
"""Rows of a batch [n] and positions in them [n]."""
Need = Literal["rank", "experts", "slots"]
Growth = Literal["", "ffn_width", "experts"]


def matrix(inputs: int, outputs: int) -> nn.Linear:
    """Return a linear map without bias."""
    return nn.Linear(inputs, outputs, bias=False)


class FFN(nn.Module):
    """One layer's feed-forward network: forward(x [batch, seq, width], tokens [batch, seq]) -> [batch, seq, width].

    Each method is a task of a network other than its forward pass, with a default that does nothing. An attribute
    `table`, an nn.Embedding, is a token table, with its own start, clipping and learning rate (see `is_table`).

    Attributes:
        needs: fields of ModelConfig that it needs (set by `ffn`, as the next two).
        grows_by: the field by which an arm is matched in size to another, or "".
        fewest: experts that a token must use, or its router learns nothing.
        load_balancing_loss: load-balancing loss of the last forward pass, 1 when even; None without a learned router.
        load_balancing_weight: what training multiplies it by before it is added to the loss; Switch Transformers' 0.01.
        reads_embedding: x is the token's input embedding under the block's norm, not the residual stream.
        rows_per_token: rows of its table that a token reads.
        in_no_product: parameters of several dimensions that nothing is multiplied by, as "ffn.biases".
        starts: initial values of parameters that are not drawn, by name.
        row_address: what chooses a table's row. "token"; "pair": the token and the one before it; "router": the token
            and x; "order": the token, in an order that is drawn anew at every training step.
    """

    needs: ClassVar[tuple[Need, ...]] = ()
    grows_by: ClassVar[Growth] = ""
    fewest: ClassVar[int] = 1
    load_balancing_loss: Tensor | None = None
    load_balancing_weight: float = 0.01
    reads_embedding = False
    rows_per_token = 1
    in_no_product: ClassVar[tuple[str, ...]] = ()
    starts: ClassVar[dict[str, float]] = {}
    row_address: Literal["token", "pair", "router", "order"] = "token"

    def start_run(self, frequencies: Callable[[], Tensor]) -> None:
        """Prepare a run before its first step; `frequencies` counts each token of its text, int64 [vocab]."""

    def start_step(self, stream: str) -> None:
        """Prepare a micro-batch of training; `stream` names the random stream of this seed, step and layer.

        All micro-batches of a step name the same one.
        """

    def up_vectors(self, x: Tensor, tokens: Tensor, places: Places) -> Tensor | None:
        """Return W_u x, or what stands in its place, [n, ffn_width]; None where nothing does."""
        up = getattr(self, "up", None)
        return None if up is None else up(x[places])

    def gate_vectors(self, x: Tensor, places: Places) -> Tensor | None:
        """Return SiLU(W_g x) [n, ffn_width], by which `up_vectors` are multiplied; None where there is no W_g."""
        gate = getattr(self, "gate", None)
        return None if gate is None else F.silu(gate(x[places]))


Network = TypeVar("Network", bound=FFN)
_REGISTERED: dict[str, type[FFN]] = {}


def ffn(
    name: str, needs: tuple[Need, ...] = (), grows_by: Growth = "", fewest: int = 1
) -> Callable[[type[Network]], type[Network]]:
    """Register a class under the name that recipes/arms.yaml uses; its file has that name, with _ for -."""

    def register(network: type[Network]) -> type[Network]:
        network.needs, network.grows_by, network.fewest = needs, grows_by, fewest
        _REGISTERED[name] = network
        return network

    return register


@cache
def ffns() -> dict[str, type[FFN]]:
    """Return all networks of the package by name."""
    for module in pkgutil.iter_modules(sys.modules[__package__].__path__, f"{__package__}."):
        importlib.import_module(module.name)
    return dict(_REGISTERED)  # a user's file can't replace one


@cache
def ffn_class(name: str) -> type[FFN]:
    """Return the class of a network; "my/silu.py:SiluRows" names one of a file outside the package.

    UserError: the name is unknown, or the file can't be imported or has no such class.
    """
    if OWN_FILE.fullmatch(name):
        return _own_class(name)
    if name not in ffns():
        raise unknown("ffn", name, ffns(), "stemrepro/model/ffn")
    return ffns()[name]


def _own_class(name: str) -> type[FFN]:
    module_of(name)
    file = own_file(name)
    found = importlib.util.spec_from_file_location(f"own_ffn_{'_'.join(file.with_suffix('').parts)}", file)
    assert found is not None, f"{file} is no .py file"
    assert found.loader is not None, f"{file} is no .py file"
    module = importlib.util.module_from_spec(found)
    sys.modules[module.__name__] = module  # torch.compile looks up the globals of a method there
    try:
        found.loader.exec_module(module)
    except Exception as error:
        del sys.modules[module.__name__]
        raise UserError(f"{file} can't be imported: {type(error).__name__}: {error}") from error
    wanted = name.partition(":")[2]
    network = getattr(module, wanted, None)
    if not (isinstance(network, type) and issubclass(network, FFN)):
        raise UserError(f"{file} has no class '{wanted}' that is an FFN (stemrepro.model.ffn.base)")
    return network


def is_table(parameter_name: str) -> bool:
    """Tell whether a parameter's name is that of a token-indexed table."""
    return parameter_name.endswith(
        ("ffn.table.weight", "attention.table.weight", "pairs.table.weight")
    ) or parameter_name.startswith("memory.tables.")


def table_parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """Return the tables of a model by parameter name, each [vocab, its width]; that of pairs [pair_rows, width]."""
    return {name: parameter for name, parameter in model.named_parameters() if is_table(name)}
