"""The optimiser of a run: which group a parameter is in, and what updates each group."""

from itertools import islice
from typing import Any

import torch
from torch import nn

from stemrepro.config.training import RunTraining
from stemrepro.model.ffn.base import is_table
from stemrepro.training.devices import shard_like
from stemrepro.training.table_adamw import RowwiseAdamW, TouchedAdamW


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
    factors = {
        "embedding": (training.embedding_rate_factor, training.embedding_decay_factor),
        "backbone": (1.0, 1.0),
        "tables": (training.table_rate_factor, training.table_decay_factor),
    }
    groups: dict[str, dict[str, Any]] = {}
    for name, (rate, decay) in factors.items():
        groups[name] = {"name": name, "params": [], "betas": training.betas, "eps": training.eps}
        groups[name] |= {"lr": training.learning_rate * rate, "weight_decay": training.weight_decay * decay}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            kind = "tables" if is_table(name) else "embedding" if name == "embedding.weight" else "backbone"
            groups[kind]["params"].append((name, parameter))
    tables = groups.pop("tables")
    optimizers: list[torch.optim.Optimizer] = []
    if tables["params"] and training.table_update == "touched":
        optimizers.append(TouchedAdamW([tables], compile=compile))
    elif tables["params"] and training.table_update == "rowwise":
        optimizers.append(RowwiseAdamW([tables]))
    elif tables["params"]:
        groups["tables"] = tables
    # A fused optimiser takes the scale of 16-bit gradients off by itself, too late for clipping.
    return Chain([torch.optim.AdamW([*groups.values()], fused=training.precision != "16-mixed"), *optimizers])


def state_by_name(saved: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the state that `make_optimizer`'s optimiser saved of each parameter, by the parameter's name."""
    names: dict[int, str] = {}
    for group in saved["param_groups"]:
        names |= zip(group["params"], group["param_names"], strict=True)
    return {names[number]: state for number, state in saved["state"].items()}


def carry(states: dict[str, dict[str, Any]], optimizer: torch.optim.Optimizer) -> None:
    """Give an optimiser the states of another one, by parameter name; parameters that it lacks are passed over."""
    for group in optimizer.param_groups:
        for name, parameter in zip(group["param_names"], group["params"], strict=True):
            if name in states:
                state = states[name].items()
                optimizer.state[parameter] = {key: shard_like(value, parameter).clone() for key, value in state}
