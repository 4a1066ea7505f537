"""How several ranks share one model."""

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard

from stemrepro.common.errors import UserError
from stemrepro.config.parallel import Parallel
from stemrepro.model.transformer import Decoder
from stemrepro.training import ranks


def shard(model: Decoder, parallel: Parallel, device: torch.device) -> None:
    """Shard a model over all ranks, block by block, in place.

    Raises:
        UserError: it has a parameter without dimensions.
    """
    for name, parameter in model.named_parameters():
        if parameter.dim() == 0:
            raise UserError(f"strategy '{parallel.strategy}' can't shard {name}, a single number; use strategy 'ddp'")
    mesh = init_device_mesh(device.type, (ranks.world(),))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)


def reduce_gradients_when(model: torch.nn.Module, last: bool) -> None:
    """Have a sharded model reduce its gradients after the `last` micro-batch of a step alone."""
    if isinstance(model, FSDPModule):
        model.set_requires_gradient_sync(last)
