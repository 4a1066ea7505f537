"""How several ranks share one model."""

from functools import partial

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard, register_fsdp_forward_method
from torch.utils.checkpoint import checkpoint

from stemrepro.common.errors import UserError
from stemrepro.config.parallel import Parallel
from stemrepro.model.ffn.base import table_parameters
from stemrepro.model.transformer import Decoder
from stemrepro.training import ranks
from stemrepro.training.compiling import compiled
from stemrepro.training.tensor_parallel import split
from stemrepro.training.width_tables import Exchange, WidthTable


def shard(model: Decoder, parallel: Parallel, device: torch.device) -> None:
    """Shard a model over all ranks, block by block, in place.

    Raises:
        UserError: it has a parameter without dimensions, or a table whose width can't be shared.
    """
    for name, parameter in model.named_parameters():
        if parameter.dim() == 0:
            raise UserError(f"strategy '{parallel.strategy}' can't shard {name}, a single number; use strategy 'ddp'")
    sizes = {"copy": parallel.replicate, "shard": parallel.readers // parallel.replicate, "tensor": parallel.tensor}
    sizes = {name: size for name, size in sizes.items() if size > 1 or name == "shard"}
    mesh = init_device_mesh(device.type, tuple(sizes.values()), mesh_dim_names=tuple(sizes))
    if parallel.tensor > 1:
        split(model, mesh["tensor"])
    tables = share_tables(model, parallel, device) if parallel.strategy == "tables" else []
    # Inputs are not cast: a block's positions stay float32.
    gathered = MixedPrecisionPolicy(getattr(torch, parallel.param_dtype), torch.float32, cast_forward_inputs=False)
    sharded = partial(
        fully_shard,
        mesh=mesh[tuple(name for name in sizes if name != "tensor")],
        mp_policy=gathered,
        ignored_params={table.weight for table in tables},
    )
    for block in model.blocks:
        sharded(block)
    sharded(model)
    register_fsdp_forward_method(model, "losses")


def compile_blocks(model: Decoder) -> None:
    """Compile a model block by block, in place: between blocks weights are gathered, which no compiled code can do."""
    for block in model.blocks:
        block.forward = partial(compiled(type(block).forward), block)


def recompute(model: Decoder) -> None:
    """Have each block keep its input alone, and make its activations anew in the backward pass, in place."""
    for block in model.blocks:
        block.forward = partial(checkpoint, block.forward, use_reentrant=False, preserve_rng_state=False)


def share_tables(model: Decoder, parallel: Parallel, device: torch.device) -> list[WidthTable]:
    """Shard a model's tables along their width, in place; return them in the model's order, the same on all ranks.

    Raises:
        UserError: a table's width is no multiple of the ranks that share it, or its module is no nn.Embedding.
    """
    shared = parallel.ranks_per_table
    mesh = init_device_mesh(device.type, (ranks.world() // shared, shared), mesh_dim_names=("copy", "width"))
    exchange, tables = Exchange(mesh.get_group("width")), []
    for name in table_parameters(model):
        owner, place = model.get_submodule(name.removesuffix(".table.weight")), name.removesuffix(".weight")
        if not isinstance(owner.table, nn.Embedding) or owner.table.embedding_dim % shared:
            raise UserError(
                f"strategy 'tables' can't share {place} among {shared} ranks: it must be an nn.Embedding whose width "
                f"is a multiple of that; choose another table_ranks, or strategy 'fsdp'"
            )
        owner.table = WidthTable(owner.table, mesh, exchange, getattr(torch, parallel.param_dtype))
        tables.append(owner.table)
    return tables


def reduce_copies(model: nn.Module) -> None:
    """Add up the gradients of tables' copies, where tables are sharded along their width and have any."""
    for module in model.modules():
        if isinstance(module, WidthTable):
            module.reduce_copies()


def reduce_gradients_when(model: nn.Module, last: bool) -> None:
    """Have a sharded model reduce its gradients after the `last` micro-batch of a step alone."""
    if isinstance(model, FSDPModule):
        model.set_requires_gradient_sync(last)
