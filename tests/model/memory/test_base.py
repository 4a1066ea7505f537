"""What every memory outside of the feed-forward networks must keep: its counts, its tables, its causality."""

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from stemrepro.common.errors import UserError
from stemrepro.model.config import ModelConfig, layers_of
from stemrepro.model.cost import flops_per_token, parameter_counts, row_elements
from stemrepro.model.ffn.base import table_parameters
from stemrepro.model.memory.base import memories
from stemrepro.model.memory.blocks import MemoryBlock
from stemrepro.model.needs import check
from stemrepro.model.transformer import Decoder, build

SHAPE = {"vocab": 97, "width": 24, "layers": 8, "heads": 4, "kv_heads": 2, "ffn_width": 40}
SHAPE |= {"rank": 6, "slots": 4, "top_k": 2, "memory_rows": 53}


def config(name: str) -> ModelConfig:
    places = layers_of("ends" if name == "value-embeddings" else "third", 8)
    return ModelConfig(**SHAPE, memory=name, memory_layers=places)


@pytest.mark.parametrize("name", memories())
def test_counts_equal_the_tensors_and_torchs_counter(name):
    model = Decoder(config(name))
    counts = parameter_counts(model.config)
    assert counts["total"] == sum(parameter.numel() for parameter in model.parameters())
    assert counts["tables"] == sum(parameter.numel() for parameter in table_parameters(model).values()) > 0
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH), torch.no_grad():
        model(torch.randint(0, 97, (2, 16)))
    assert counter.get_total_flops() == 2 * 16 * flops_per_token(model.config, 16)


@pytest.mark.parametrize("name", memories())
def test_a_token_reads_as_many_elements_as_counted(name):
    model, read = Decoder(config(name)), 0

    def count(_, __, rows):
        nonlocal read
        read += rows.numel()

    for module in model.memory.modules():
        if isinstance(module, torch.nn.Embedding):
            module.register_forward_hook(count)
    model(torch.randint(0, 97, (1, 10)))
    assert read == 10 * row_elements(model.config)


@pytest.mark.parametrize("name", memories())
def test_the_layers_of_a_memory_are_its_places_in_their_order(name):
    shape = config(name)
    parts = {n: block for n, block in enumerate(Decoder(shape).blocks) if isinstance(block, MemoryBlock)}
    assert tuple(parts) == shape.memory_layers
    assert [block.place for block in parts.values()] == [*range(len(shape.memory_layers))]
    assert [block.attention.place for block in parts.values()] == [*range(len(shape.memory_layers))]


@pytest.mark.parametrize("name", memories())
def test_all_that_it_has_is_trained(name):
    model = build(config(name), seed=0)
    for parameter in model.memory.parameters():
        torch.nn.init.normal_(parameter, generator=torch.Generator().manual_seed(1))
    model(torch.randint(0, 97, (4, 30))).square().sum().backward()
    assert [name for name, p in model.memory.named_parameters() if p.grad is None or not p.grad.any()] == []


@pytest.mark.parametrize(
    ("name", "field"), [(name, field) for name, entry in memories().items() for field in entry.needs]
)
def test_a_missing_field_is_named(name, field):
    fields = SHAPE | {"memory": name, "memory_layers": (1,), field: () if field == "memory_layers" else 0}
    with pytest.raises(UserError, match=f"memory '{name}' needs {field}"):
        check(ModelConfig(**fields))
