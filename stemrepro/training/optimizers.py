"""The optimiser of a run: which group a parameter is in, and what updates each group."""

import torch
from torch import nn

from stemrepro.config.training import RunTraining
from stemrepro.model.ffn.base import is_table
from stemrepro.training.devices import shard_like
from stemrepro.training.rowwise import RowwiseAdamW
from stemrepro.training.touched import TouchedAdamW

TABLES = {"dense": torch.optim.AdamW, "touched": TouchedAdamW, "rowwise": RowwiseAdamW}
"""What updates tables, by RunTraining.table_update."""


class Chain(torch.optim.Optimizer):
    """Several optimisers that step as one.

    They share its groups and its state, so that it is saved and loaded as torch's optimisers are.
    """

    def __init__(self, optimizers: list[torch.optim.Optimizer]) -> None:
        self.optimizers = optimizers
        super().__init__([group for optimizer in optimizers for group in optimizer.param_groups], {})
        self._share()

    def _share(self) -> None:
        first = 0
        for optimizer in self.optimizers:
            last = first + len(optimizer.param_groups)
            optimizer.state, optimizer.param_groups = self.state, self.param_groups[first:last]
            first = last

    def __setstate__(self, state: dict) -> None:
        """Share a loaded state, which torch puts into a new object."""
        super().__setstate__(state)
        self._share()

    def step(self, closure: object = None) -> object:
        """Make one update of all groups; the closure, which makes the gradients, comes first."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for optimizer in self.optimizers:
            optimizer.step()
        return loss


def group_of(name: str) -> str:
    """Name a parameter's group: "embedding" of the input, "tables" or "backbone"."""
    return "tables" if is_table(name) else "embedding" if name == "embedding.weight" else "backbone"


def make_optimizer(model: nn.Module, training: RunTraining, compile: bool = False) -> Chain:
    """Make the optimiser of a model's trained parameters, whose groups have the key "name".

    With `compile` the update of touched rows is compiled. Weight decay acts on all parameters, as in the official code.
    """
    members: dict[str, list[tuple[str, nn.Parameter]]] = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            members.setdefault(group_of(name), []).append((name, parameter))
    factors = {
        "embedding": (training.embedding_rate_factor, training.embedding_decay_factor),
        "tables": (training.table_rate_factor, training.table_decay_factor),
    }
    # A fused optimiser takes the scale of 16-bit gradients off by itself, too late for clipping.
    adamw = {"betas": training.betas, "eps": training.eps, "fused": training.precision != "16-mixed"}
    rows = {"compile": compile} if training.table_update == "touched" else {}
    optimizers = []
    for group, parameters in members.items():
        rate, decay = factors.get(group, (1.0, 1.0))
        settings = {"lr": training.learning_rate * rate, "weight_decay": training.weight_decay * decay}
        of_group = [{"name": group, "params": parameters} | settings]
        if group == "tables":
            optimizers.append(TABLES[training.table_update](of_group, **adamw, **rows))
        else:
            optimizers.append(torch.optim.AdamW(of_group, **adamw))
    return Chain(optimizers)


def state_by_name(saved: dict) -> dict[str, dict]:
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


def carry(states: dict[str, dict], optimizer: torch.optim.Optimizer) -> None:
    """Give an optimiser the states of another one, by parameter name; parameters that it lacks are passed over."""
    for group in optimizer.param_groups:
        for name, parameter in zip(group["param_names"], group["params"], strict=True):
            if name in states:
                optimizer.state[parameter] = {
                    key: shard_like(value, parameter).clone() for key, value in states[name].items()
                }
