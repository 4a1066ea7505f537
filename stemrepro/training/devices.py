"""A run on several devices by Lightning's and torch's own means: DDP, or FSDP2 with distributed checkpoints.

torchrun or srun starts a process for each device. In one that trains alone, functions here return what they are given.
"""

import atexit
import os
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from lightning.fabric.plugins import environments
from lightning.pytorch.strategies import ModelParallelStrategy
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.optim import Optimizer

from stemrepro.common.errors import UserError
from stemrepro.model.transformer import Decoder
from stemrepro.training.compiling import compiled
from stemrepro.training.run import Run

Value = TypeVar("Value")
REST = "meta.pt"
"""File of all but the tensors of a distributed checkpoint; those are safetensors, so reading executes no code."""


def environment() -> environments.ClusterEnvironment | None:
    """Return what has started this process among others, as Lightning detects it; None where nothing has."""
    if environments.TorchElasticEnvironment.detect():
        return environments.TorchElasticEnvironment()
    # Lightning's own requeueing would leave files in the run folder.
    return environments.SLURMEnvironment(auto_requeue=False) if environments.SLURMEnvironment.detect() else None


def join(run: Run) -> None:
    """Join the processes that train a run together; they stay joined for the runs that follow.

    UserError: they aren't as many as the run's devices.
    """
    parallel = run.parallel
    if parallel is None or dist.is_initialized():
        return
    around = environment()
    if around is None or around.world_size() != parallel.ranks:
        raise UserError(
            f"{run}: parallel asks for devices {parallel.devices} on each of {parallel.nodes} nodes, and here are "
            f"{around.world_size() if around else 1} processes; start it with 'torchrun --nnodes={parallel.nodes} "
            f"--nproc-per-node={parallel.devices} --no-python stemrepro train ...', or with srun"
        )
    os.environ |= {"MASTER_ADDR": around.main_address, "MASTER_PORT": str(around.main_port)}
    gpu = run.training.accelerator == "gpu"
    if gpu:
        torch.cuda.set_device(around.local_rank())
    torch.set_num_threads(run.training.threads)
    patience = timedelta(hours=1)  # all others wait while rank 0 writes or hashes a checkpoint
    rank, backend = around.global_rank(), "nccl" if gpu else "gloo"
    dist.init_process_group(backend, timeout=patience, rank=rank, world_size=parallel.ranks)
    atexit.register(dist.destroy_process_group)


def is_rank_zero() -> bool:
    """Tell whether this process is the first, which alone writes."""
    return not dist.is_initialized() or dist.get_rank() == 0


def from_rank_zero(function: Callable[[], Value]) -> Value:
    """Call a function in the first process alone and return its result in all."""
    answer: list[Any] = [function() if is_rank_zero() else None]
    if dist.is_initialized():
        dist.broadcast_object_list(answer)
    result: Value = answer[0]
    return result


def unsharded(tensor: Tensor) -> Tensor:
    """Return all of a tensor that may be sharded; every process must call it."""
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def gathered(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return whole tensors in the memory of the first process, none in others; every process must call it."""
    held = ((name, unsharded(tensor.detach())) for name, tensor in state.items())
    return {name: tensor.cpu().contiguous() for name, tensor in held if is_rank_zero()}


def shard_like(tensor: Tensor, like: Tensor) -> Tensor:
    """Return a whole tensor that every process has as the shards that a tensor of its shape has."""
    from torch.distributed.tensor import DTensor, distribute_tensor

    if not isinstance(like, DTensor) or like.shape != tensor.shape:
        return tensor
    return distribute_tensor(tensor.to(like.device), like.device_mesh, like.placements, src_data_rank=None)


def shard(model: Decoder, mesh: DeviceMesh, compiles: bool) -> None:
    """Shard a model by FSDP2, block by block, in place; no compiled code can gather weights, so blocks are compiled."""
    from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method

    for block in model.blocks:
        if compiles:
            block.forward = partial(compiled(type(block).forward), block)
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    register_fsdp_forward_method(model, "losses")


def _places(checkpoint: dict[str, Any]) -> Iterator[tuple[dict[str, Any], Any, str]]:
    """Yield (its dictionary, its key there, its name in a folder) of each weight and of each state of the optimiser."""
    for name in list(checkpoint["state_dict"]):
        yield checkpoint["state_dict"], name, name
    for number, state in checkpoint["optimizer_states"][0]["state"].items():
        for key in list(state):
            yield state, key, f"optimizer.{number}.{key}"


def write(checkpoint: dict[str, Any], path: Path) -> None:
    """Write Lightning's checkpoint to a folder, each process its shards: aside, then renamed, so whole or absent."""
    import torch.distributed.checkpoint as dcp

    aside, tensors = path.with_name(f".{path.name}.00000000"), {}  # `remove_leftovers` knows such names
    for home, key, name in _places(checkpoint):
        if home[key].dim():
            tensors[name], home[key] = home[key].detach(), None
    if is_rank_zero():
        aside.mkdir(parents=True)
        torch.save(checkpoint, aside / REST)
    dist.barrier()
    dcp.save(tensors, storage_writer=dcp.HuggingFaceStorageWriter(str(aside), save_distributed=True))
    if is_rank_zero():
        shutil.rmtree(path, ignore_errors=True)
        aside.rename(path)


def read(path: Path, held: dict[str, Tensor] | None = None) -> dict[str, Any]:
    """Return Lightning's checkpoint from a folder; its tensors overwrite those `held`, maybe sharded, or are made."""
    import torch.distributed.checkpoint as dcp

    checkpoint: dict[str, Any] = torch.load(path / REST, map_location="cpu", weights_only=True)
    reader, tensors = dcp.HuggingFaceStorageReader(str(path)), {}
    described: dict[str, Any] = reader.read_metadata().state_dict_metadata
    for name, about in described.items():
        tensors[name] = held[name] if held else torch.empty(about.size, dtype=about.properties.dtype)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")  # each process reads by itself
        dcp.load(tensors, storage_reader=reader, no_dist=True)
    for home, key, name in _places(checkpoint):
        home[key] = tensors.get(name, home[key])
    return checkpoint


class Sharded(ModelParallelStrategy):
    """Lightning's strategy for FSDP2, whose checkpoints are whole or absent and open in any number of processes."""

    lightning_restore_optimizer = True

    def lightning_module_state_dict(self) -> dict[str, Any]:
        """Return the weights, each process its shards."""
        assert self.lightning_module is not None, "no model is trained"
        return self.lightning_module.state_dict()

    def optimizer_state(self, optimizer: Optimizer) -> dict[str, Any]:
        """Return the optimiser's state, each process its shards."""
        saved = getattr(optimizer, "_optimizer", optimizer).state_dict()
        return saved | {"state": {number: dict(state) for number, state in saved["state"].items()}}

    def load_optimizer_state_dict(self, checkpoint: Mapping[str, Any]) -> None:
        """Give the optimiser its state; weights are in place since `load_checkpoint`."""
        self.optimizers[0].load_state_dict(checkpoint["optimizer_states"][0])

    def save_checkpoint(self, checkpoint: dict[str, Any], filepath: str | Path, storage_options: object = None) -> None:
        """Write a checkpoint, each process its shards."""
        write(checkpoint, Path(filepath))

    def load_checkpoint(self, checkpoint_path: str | Path, weights_only: bool | None = True) -> dict[str, Any]:
        """Read a checkpoint of any strategy and of any number of processes; the weights go into the model."""
        held = self.lightning_module_state_dict()
        trained = [parameter for group in self.optimizers[0].param_groups for parameter in group["params"]]
        for number, parameter in enumerate(trained):
            for key in ("exp_avg", "exp_avg_sq"):
                held[f"optimizer.{number}.{key}"] = torch.zeros_like(parameter)
        if Path(checkpoint_path).is_dir():
            return read(Path(checkpoint_path), held)
        checkpoint = self.checkpoint_io.load_checkpoint(checkpoint_path)
        for home, key, name in _places(checkpoint):
            if name in held:
                home[key] = held[name].copy_(shard_like(home[key], held[name]))
        return checkpoint


def devices_of(run: Run) -> dict[str, Any]:
    """Return the arguments of a Trainer that say on how many devices it trains, and how."""
    if run.parallel is None:  # on any cluster
        return {"devices": 1, "plugins": [environments.LightningEnvironment()]}
    fsdp = run.parallel.strategy == "fsdp"  # unused is the norm before a table without a gate
    strategy = Sharded(run.parallel.ranks, 1) if fsdp else "ddp_find_unused_parameters_true"
    number = {"devices": run.parallel.devices, "num_nodes": run.parallel.nodes}
    return number | {"strategy": strategy, "plugins": [environment()]}
