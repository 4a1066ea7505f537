"""Checkpoints of a sharded run: a folder to which each rank writes its shards, by torch's distributed checkpoints.

Tensors lie in safetensors files, all else in meta.pt. So reading executes no code here either. The folder is written
aside and renamed. A list of its files' hashes follows it.
"""

import secrets
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import Tensor
from torch.distributed.tensor import DTensor, distribute_tensor

from stemrepro.common.files import atomic_write, sha256
from stemrepro.training import ranks

REST = "meta.pt"
"""File of what is no tensor with dimensions."""
OPTIMIZER = "optimizer"


def _tensors(checkpoint: dict) -> Iterator[tuple[dict, str, str, Tensor]]:
    """Yield (its dictionary, its key there, its name in the folder, tensor) of each tensor that has dimensions."""
    for name, tensor in checkpoint["state_dict"].items():
        yield checkpoint["state_dict"], name, name, tensor
    for number, state in checkpoint["optimizer_states"][0]["state"].items():
        for key, value in state.items():
            if isinstance(value, Tensor) and value.dim():
                yield state, key, f"{OPTIMIZER}.{number}.{key}", value


def listed(files: dict[str, str]) -> str:
    """Return a folder's list of hashes, by file, as sha256sum writes it."""
    return "".join(f"{files[name]}  {name}\n" for name in sorted(files))


def write(checkpoint: dict, path: Path) -> None:
    """Write Lightning's checkpoint, whose tensors may be sharded, to a folder `path`; every rank calls it."""
    aside = ranks.from_first(lambda: path.with_name(f".{path.name}.{secrets.token_hex(4)}"))
    tensors = {name: tensor.detach() for _, _, name, tensor in _tensors(checkpoint)}
    optimizer = checkpoint["optimizer_states"][0]
    state = {
        number: {key: value for key, value in values.items() if f"{OPTIMIZER}.{number}.{key}" not in tensors}
        for number, values in optimizer["state"].items()
    }
    rest = checkpoint | {"state_dict": dict.fromkeys(checkpoint["state_dict"])}
    rest |= {"optimizer_states": [optimizer | {"state": state}]}
    if ranks.rank() == 0:
        aside.mkdir(parents=True)
        torch.save(rest, aside / REST)
    ranks.barrier()
    dcp.save(tensors, storage_writer=dcp.HuggingFaceStorageWriter(str(aside), save_distributed=True))
    mine = [file for number, file in enumerate(sorted(aside.iterdir())) if number % ranks.world() == ranks.rank()]
    hashes: list = [None] * ranks.world()
    dist.all_gather_object(hashes, {file.name: sha256(file) for file in mine})

    def put() -> None:
        files = {name: line for some in hashes for name, line in some.items()}
        if path.is_dir():
            shutil.rmtree(path)
        path.unlink(missing_ok=True)
        aside.rename(path)
        atomic_write(f"{path}.sha256", listed(files))

    ranks.from_first(put)


def read(path: Path, weights: dict[str, Tensor] | None = None, parameters: list[Tensor] | None = None) -> dict:
    """Return Lightning's checkpoint from a folder, which any number of ranks has written.

    Args:
        weights: the model's, which are overwritten; None: whole tensors are made.
        parameters: the optimiser's by number, as which its state is sharded.
    """
    checkpoint = torch.load(path / REST, map_location="cpu", weights_only=True)
    stored = dcp.HuggingFaceStorageReader(str(path)).read_metadata().state_dict_metadata
    targets = {}
    for name, about in stored.items():
        like: Any = None
        if name in checkpoint["state_dict"]:
            like = weights and weights[name].detach()
        elif parameters is not None:
            parameter = parameters[int(name.split(".")[1])]
            like = torch.zeros_like(parameter) if parameter.shape == about.size else None
        targets[name] = torch.empty(about.size, dtype=about.properties.dtype) if like is None else like
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")  # each rank reads by itself
        dcp.load(targets, storage_reader=dcp.HuggingFaceStorageReader(str(path)), no_dist=True)
    for name, tensor in targets.items():
        if name in checkpoint["state_dict"]:
            checkpoint["state_dict"][name] = tensor
        else:
            _, number, key = name.split(".")
            checkpoint["optimizer_states"][0]["state"][int(number)][key] = tensor
    return checkpoint


def shard_like(tensor: Tensor, like: Tensor) -> Tensor:
    """Return a whole tensor that every rank has as the shards that a tensor of its shape has."""
    if not isinstance(like, DTensor) or like.shape != tensor.shape:
        return tensor
    return distribute_tensor(tensor.to(like.device), like.device_mesh, like.placements, src_data_rank=None)


def as_sharded(checkpoint: dict, weights: dict[str, Tensor], parameters: list[Tensor]) -> dict:
    """Return Lightning's checkpoint of one process for a sharded run; arguments are those of `read`."""
    with torch.no_grad():
        for home, key, name, tensor in _tensors(checkpoint):
            if home is checkpoint["state_dict"]:
                weights[name].copy_(shard_like(tensor, weights[name]))
            else:
                home[key] = shard_like(tensor, parameters[int(name.split(".")[1])])
    return checkpoint
