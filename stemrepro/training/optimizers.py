"""The optimiser of a run: which group a parameter is in, and what updates each group."""

from itertools import islice
from typing import Any

import torch
from torch import nn

from stemrepro.config.training import RunTraining
from stemrepro.model.ffn.base import is_table
from stemrepro.training.devices import shard_like
from stemrepro.training.rowwise import RowwiseAdamW
from stemrepro.training.touched import TouchedAdamW


class Chain(torch.optim.Optimizer):
    """Several optimisers that step as one.

    They share its groups and its state, so that it is saved and loaded as torch's optimisers are.
    """

    def __init__(self, optimizers: list[torch.optim.Optimizer]) -> None:
        self.optimizers = optimizers
        super().__init__([group for optimizer in optimizers for group in optimizer.param_groups], {})
        self._share()

    def _share(self) -> None:
        groups = iter(self.param_groups)
        for optimizer in self.optimizers:
            optimizer.state = self.state
            optimizer.param_groups = list(islice(groups, len(optimizer.param_groups)))

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Share a loaded state, which torch puts into a new object."""
        super().__setstate__(state)
        self._share()

    def step(self, closure: Any = None) -> Any:
        """Make one update of all groups; the closure, which makes the gradients, comes first."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for optimizer in self.optimizers:
            optimizer.step()
        return loss


def make_optimizer(model: nn.Module, training: RunTraining, compile: bool = False) -> Chain:
    """Make the optimiser of a model's trained parameters, whose groups have the key "name".

    With `compile` the update of touched rows is compiled. Weight decay acts on all parameters, as in the official code.
    """
    trained = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
    embedding = [(name, parameter) for name, parameter in trained if name == "embedding.weight"]
    tables = [(name, parameter) for name, parameter in trained if is_table(name)]
    backbone = [(name, parameter) for name, parameter in trained if name != "embedding.weight" and not is_table(name)]
    lr, decay = training.learning_rate, training.weight_decay
    adam = {"betas": training.betas, "eps": training.eps}
    groups = [
        {
            "name": "embedding",
            "params": embedding,
            **adam,
            "lr": lr * training.embedding_rate_factor,
            "weight_decay": decay * training.embedding_decay_factor,
        },
        {"name": "backbone", "params": backbone, **adam, "lr": lr, "weight_decay": decay},
    ]
    of_tables = {
        "name": "tables",
        "params": tables,
        **adam,
        "lr": lr * training.table_rate_factor,
        "weight_decay": decay * training.table_decay_factor,
    }
    optimizers: list[torch.optim.Optimizer] = []
    if tables and training.table_update == "touched":
        optimizers.append(TouchedAdamW([of_tables], compile=compile))
    elif tables and training.table_update == "rowwise":
        optimizers.append(RowwiseAdamW([of_tables]))
    elif tables:
        groups.append(of_tables)
    # A fused optimiser takes the scale of 16-bit gradients off by itself, too late for clipping.
    return Chain([torch.optim.AdamW(groups, fused=training.precision != "16-mixed"), *optimizers])


def state_by_name(saved: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the state that a saved optimiser has of each parameter, by the parameter's name.

    Args:
        saved: state_dict() of an optimiser that `make_optimizer` gave.
    """
    names = {
        number: name
        for group in saved["param_groups"]
        for number, name in zip(group["params"], group["param_names"], strict=True)
    }
    return {names[number]: state for number, state in saved["state"].items()}


def carry(states: dict[str, dict[str, Any]], optimizer: torch.optim.Optimizer) -> None:
    """Give an optimiser the states of another one, by parameter name; parameters that it lacks are passed over."""
    for group in optimizer.param_groups:
        for name, parameter in zip(group["param_names"], group["params"], strict=True):
            if name in states:
                optimizer.state[parameter] = {
                    key: shard_like(value, parameter).clone() for key, value in states[name].items()
                }
