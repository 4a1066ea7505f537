"""Layers that several ranks compute together: each has some heads, channels of ffn_width and entries of the vocabulary.

A table along its width is sharded as its network's channels are. So a rank has the part of a row that it needs, and no
row is exchanged. What ranks add up are the outputs of attention and network, and in the backward pass their inputs.
"""

import logging
from contextlib import AbstractContextManager, nullcontext

from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, distribute_module
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    RowwiseParallel,
    loss_parallel,
    parallelize_module,
)

from stemrepro.config.parallel import Parallel
from stemrepro.model.transformer import Decoder

COLUMNS = ("query", "key", "value", "gate", "up", "table")
"""Modules of a block whose outputs are sharded; those of ROWS take them and are added up."""
ROWS = ("out", "down")


class Whole(ParallelStyle):
    """A module that every rank computes as a whole, with parameters on the mesh of all others."""

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        def to_mesh(_: nn.Module, inputs: tuple[Tensor], mesh: DeviceMesh) -> tuple[DTensor]:
            return (DTensor.from_local(inputs[0], mesh, [Replicate()], run_check=False),)

        return distribute_module(module, device_mesh, None, to_mesh, lambda _, output, mesh: output.to_local())


def _first_whole(inputs: int) -> PrepareModuleInput:
    """Return the style of a module whose first input every rank has; its gradients are added up once."""
    layouts = (Replicate(), *[None] * (inputs - 1))
    return PrepareModuleInput(input_layouts=layouts, desired_input_layouts=layouts)


def split(model: Decoder, mesh: DeviceMesh) -> None:
    """Share a decoder's layers among the ranks of a mesh of one dimension, in place; `Parallel.check` says which."""
    # It advises to flatten meshes of two dimensions.
    logging.getLogger("torch.distributed.tensor._redistribute").setLevel(logging.ERROR)
    plan: dict[str, ParallelStyle] = {
        "embedding": RowwiseParallel(input_layouts=Replicate()),
        "norm": Whole(),
        "head": ColwiseParallel(use_local_output=False),
    }
    for name, _ in model.blocks.named_modules(prefix="blocks"):
        last = name.rpartition(".")[2]
        if last.endswith("norm"):
            plan[name] = Whole()
        elif last in COLUMNS:
            plan[name] = ColwiseParallel()
        elif last in ROWS:
            plan[name] = RowwiseParallel()
        elif last in ("attention", "ffn"):
            plan[name] = _first_whole(7 if last == "attention" else 2)
    parallelize_module(model, mesh, plan)


def losses_of_shards(parallel: Parallel | None) -> AbstractContextManager:
    """Return the context in which losses are computed where the head's output is sharded."""
    return loss_parallel() if parallel and parallel.tensor > 1 else nullcontext()
