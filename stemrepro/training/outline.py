"""A sharded model's start: parameters without memory are sharded, then drawn one by one, of which ranks keep shards."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.distributed.tensor import distribute_tensor
from torch.nn.modules.module import register_module_parameter_registration_hook

from stemrepro.model.config import ModelConfig
from stemrepro.model.transformer import Decoder, initialise


def outline(config: ModelConfig) -> Decoder:
    """Return a decoder whose parameters are on the meta device, and whose buffers are as ever."""

    def without_memory(module: nn.Module, name: str, parameter: nn.Parameter | None) -> nn.Parameter | None:
        return None if parameter is None else nn.Parameter(parameter.to("meta"), parameter.requires_grad)

    hook = register_module_parameter_registration_hook(without_memory)
    try:
        return Decoder(config)
    finally:
        hook.remove()


class _Drawing:
    """A model as `initialise` sees it: whole parameters, each there while it is drawn, then sharded as the model's."""

    def __init__(self, model: Decoder) -> None:
        self.model, self.config = model, model.config
        self.shards: dict[str, Tensor] = {}

    def named_modules(self) -> Iterator[tuple[str, nn.Module]]:
        return self.model.named_modules()

    def named_parameters(self) -> Iterator[tuple[str, Tensor]]:
        for name, shard in self.model.named_parameters():
            whole = torch.empty(shard.shape)
            yield name, whole
            mine = distribute_tensor(whole, shard.device_mesh, shard.placements, src_data_rank=None)
            self.shards[name] = mine.clone()  # which may be a view of the whole


def draw(model: Decoder, seed: int) -> None:
    """Set a sharded outline's weights, in place: the same bits as `build` at any number of ranks.

    No rank holds more than its shards and one whole parameter.
    """
    drawing = _Drawing(model)
    initialise(drawing, seed)
    model.load_state_dict(model.state_dict() | drawing.shards, assign=True)  # buffers stay
