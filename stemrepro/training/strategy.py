"""Lightning's strategies for several ranks."""

from pathlib import Path
from typing import Any

import torch
from lightning.fabric.plugins.environments import LightningEnvironment, TorchElasticEnvironment
from lightning.pytorch.strategies import DDPStrategy, ModelParallelStrategy
from torch.optim import Optimizer

from stemrepro.model.transformer import Decoder
from stemrepro.training import ranks
from stemrepro.training.checkpoint import AtomicCheckpointIO
from stemrepro.training.run import Run
from stemrepro.training.sharded import as_sharded, read, write


class Sharded(ModelParallelStrategy):
    """Lightning's strategy for FSDP2 with our checkpoints: written aside and renamed, hashed, read at any number."""

    def __init__(self, number: int) -> None:
        super().__init__(data_parallel_size=number, tensor_parallel_size=1)

    @property
    def lightning_restore_optimizer(self) -> bool:
        """Let Lightning hand the optimiser what `load_checkpoint` has read."""
        return True

    def lightning_module_state_dict(self) -> dict[str, Any]:
        """Return the weights, each rank its shards."""
        return self.lightning_module.state_dict()

    def optimizer_state(self, optimizer: Optimizer) -> dict[str, Any]:
        """Return the optimiser's state, each rank its shards."""
        return getattr(optimizer, "_optimizer", optimizer).state_dict()

    def load_optimizer_state_dict(self, checkpoint: dict) -> None:
        """Give the optimiser its state; weights are in place since `load_checkpoint`."""
        (optimizer,), (state,) = self.optimizers, checkpoint["optimizer_states"]
        optimizer.load_state_dict(state)

    def save_checkpoint(self, checkpoint: dict, filepath: str | Path, storage_options: object = None) -> None:
        """Write a checkpoint, each rank its shards."""
        write(checkpoint, Path(filepath))

    def load_checkpoint(self, checkpoint_path: str | Path, weights_only: bool | None = True) -> dict:
        """Read a checkpoint of any strategy and of any number of ranks; the weights go into the model."""
        path, (optimizer,) = Path(checkpoint_path), self.optimizers
        weights, parameters = (
            self.lightning_module.state_dict(),
            [parameter for group in optimizer.param_groups for parameter in group["params"]],
        )
        if path.is_dir():
            return read(path, weights, parameters)
        return as_sharded(AtomicCheckpointIO().load_checkpoint(path), weights, parameters)


def leaves_any_unread(model: Decoder) -> bool:
    """Tell whether a pass leaves trained parameters unread, as the norm before a table without a gate."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    logits = model(torch.ones(1, 2, dtype=torch.long, device=trained[0].device))
    return any(gradient is None for gradient in torch.autograd.grad(logits.sum(), trained, allow_unused=True))


def devices_of(run: Run, model: Decoder) -> dict[str, Any]:
    """Return the arguments of a Trainer that say on how many devices it trains, and how."""
    if ranks.world() == 1:  # on any cluster
        return {"devices": 1, "plugins": [AtomicCheckpointIO(), LightningEnvironment()]}
    number = {"devices": run.parallel.devices, "num_nodes": run.parallel.nodes}
    if run.parallel.sharded:
        return number | {"strategy": Sharded(ranks.world()), "plugins": [TorchElasticEnvironment()]}
    return number | {
        "strategy": DDPStrategy(find_unused_parameters=leaves_any_unread(model)),
        "plugins": [TorchElasticEnvironment(), AtomicCheckpointIO()],
    }
