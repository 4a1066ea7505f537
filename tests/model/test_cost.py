"""Closed forms against the tensors, against torch's counter, and against the paper's own counts."""

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from stemrepro.model.config import ModelConfig, placed_layers
from stemrepro.model.cost import flops_per_token, paper_gflops, parameter_counts, table_bytes_per_token
from stemrepro.model.ffn import table_parameters
from stemrepro.model.transformer import Decoder


def config(ffn: str = "dense", placement: str = "none", **shape: int) -> ModelConfig:
    shape = {"vocab": 97, "width": 24, "layers": 6, "heads": 4, "kv_heads": 2, "ffn_width": 40} | shape
    return ModelConfig(**shape, ffn=ffn, placed=placed_layers(placement, shape["layers"]))


ARMS = [("dense", "none"), ("stem", "third"), ("stem", "half"), ("stem", "full"), ("token-only", "full")]


@pytest.mark.parametrize(("ffn", "placement"), ARMS)
def test_parameters_equal_numel(ffn, placement):
    model = Decoder(config(ffn, placement))
    counts = parameter_counts(model.config)
    tables = sum(parameter.numel() for parameter in table_parameters(model).values())
    assert counts["total"] == sum(parameter.numel() for parameter in model.parameters())
    assert counts["tables"] == tables
    assert counts["active"] == counts["total"] - tables
    dense = sum(parameter.numel() for parameter in Decoder(config()).parameters())
    assert counts["paper_total"] == dense + tables


@pytest.mark.parametrize(("ffn", "placement"), ARMS)
def test_flops_equal_the_counter(ffn, placement):
    model, tokens = Decoder(config(ffn, placement)), torch.randint(0, 97, (2, 16))
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        model(tokens)
    assert counter.get_total_flops() == 2 * 16 * flops_per_token(model.config, 16)


def test_a_training_step_costs_three_forward_passes():
    """But for the first layer's input, whose gradient no one asks for where it comes from an embedding: none is left out."""
    model, tokens = Decoder(config("stem", "full")), torch.randint(0, 97, (2, 16))
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        model(tokens).sum().backward()
    assert counter.get_total_flops() == 3 * 2 * 16 * flops_per_token(model.config, 16)


def test_table_bytes():
    assert table_bytes_per_token(config("stem", "third"), 2) == 2 * 40 * 2
    assert table_bytes_per_token(config()) == 0


LLAMA_1B = {"vocab": 128256, "width": 2048, "layers": 16, "heads": 32, "kv_heads": 8, "ffn_width": 8192}
MOBILE_350M = {"vocab": 32000, "width": 960, "layers": 32, "heads": 15, "kv_heads": 5, "ffn_width": 2560}


@pytest.mark.parametrize(
    ("shape", "placement", "active", "gflops"),
    [(LLAMA_1B, "none", 1.50, 3.00), (LLAMA_1B, "third", 1.41, 2.83), (MOBILE_350M, "third", 0.35, 0.70),
     (MOBILE_350M, "half", 0.34, 0.67), (MOBILE_350M, "full", 0.30, 0.60)],
)  # fmt: skip
def test_the_papers_active_counts(shape, placement, active, gflops):
    """Table 3's active billions and GFLOPs, from tensors on the meta device."""
    shape_config = config("stem" if placement != "none" else "dense", placement, **shape)
    with torch.device("meta"):
        model = Decoder(shape_config)
    tables = {id(parameter) for parameter in table_parameters(model).values()}
    counted = sum(p.numel() for p in model.parameters() if id(p) not in tables)
    assert counted == parameter_counts(shape_config)["active"]
    assert counted / 1e9 == pytest.approx(active, abs=0.005)
    assert paper_gflops(shape_config) == pytest.approx(gflops, abs=0.005)


def test_the_papers_total_of_1b_leaves_the_removed_projections_in():
    counts = parameter_counts(config("stem", "third", **LLAMA_1B))
    assert counts["paper_total"] / 1e9 == pytest.approx(6.75, abs=0.005)
    assert counts["total"] / 1e9 == pytest.approx(6.668, abs=0.005)
