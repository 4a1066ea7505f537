"""Closed forms against the tensors, against torch's counter, and against the paper's own counts."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from stemrepro.model.config import ModelConfig, layers_of
from stemrepro.model.cost import (
    break_even_bandwidth,
    cache_bytes,
    decode_bytes,
    expected_distinct,
    flops_per_token,
    nearest,
    parameter_counts,
    row_bytes,
    table_1_decode_saving,
    table_1_saving,
    table_bytes_per_token,
)
from stemrepro.model.ffn.base import ffns, table_parameters
from stemrepro.model.transformer import Decoder


def config(ffn: str = "dense", placement: str = "none", **fields: object) -> ModelConfig:
    slots = 3 if ffn in ("stem-slots", "joint-token-mixture") else 0
    shape = {"vocab": 97, "width": 24, "layers": 6, "heads": 4, "kv_heads": 2, "ffn_width": 40, "rank": 5}
    fields = shape | {"experts": 4, "slots": slots} | fields
    return ModelConfig(**fields, ffn=ffn, replaced_layers=layers_of(placement, fields["layers"]))


ARMS = [("stem", placement) for placement in ("third", "third-shifted", "early", "late", "half", "full", "single")]
ARMS += [(ffn, "none" if ffn == "dense" else "full") for ffn in ffns() if ffn != "stem"]


@pytest.mark.parametrize(("ffn", "placement"), ARMS)
def test_flops_equal_the_counter(ffn, placement):
    model, tokens = Decoder(config(ffn, placement)), torch.randint(0, 97, (2, 16))
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        model(tokens)
    assert counter.get_total_flops() == 2 * 16 * flops_per_token(model.config, 16)


@pytest.mark.parametrize(("ffn", "top_k"), [("topk-moe", 3), ("sparse-experts", 2), ("sparse-experts", 3)])
def test_a_mixture_costs_what_its_chosen_experts_cost(ffn, top_k):
    model, tokens = Decoder(config(ffn, "third", top_k=top_k)), torch.randint(0, 97, (2, 16))
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        model(tokens)
    assert counter.get_total_flops() == 2 * 16 * flops_per_token(model.config, 16)


def test_flops_of_value_embeddings_pairs_and_shared_tables():
    for fields in (
        {"value_layers": (1, 3)},
        {"pair_rows": 50},
        {"pair_rows": 50, "ffn": "stem", "placement": "half"},
        {"ffn": "stem", "placement": "full", "table_shared": True},
    ):
        model = Decoder(config(**fields))
        tokens = torch.randint(0, 97, (2, 16))
        with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
            model(tokens)
        assert counter.get_total_flops() == 2 * 16 * flops_per_token(model.config, 16)
    assert table_bytes_per_token(config(value_layers=(1, 3)), 2) == 2 * 2 * 12
    assert table_bytes_per_token(config(pair_rows=50), 2) == 2 * 24


def total(model):
    return parameter_counts(model)["total"]


@pytest.mark.parametrize(
    ("ffn", "placement", "size", "field"),
    [
        ("dense", "none", total, "ffn_width"),
        ("dense", "none", lambda model: flops_per_token(model, 64), "ffn_width"),
        ("topk-moe", "third", total, "experts"),
        ("sparse-experts", "third", total, "ffn_width"),
    ],
)
def test_no_other_number_comes_nearer(ffn, placement, size, field):
    shape, aim = config(ffn, placement, vocab=1000), size(config("stem", "full", vocab=1000))

    def of(value):
        return replace(shape, **{field: value})

    assert nearest(of, size, aim) == of(min(range(1, 1200), key=lambda value: abs(size(of(value)) - aim)))
    assert nearest(of, size, size(of(3)) - 1, low=3) == of(3)


def test_a_training_step_costs_three_forward_passes():
    """All products count but the gradient of the first layer's input, which an embedding doesn't need."""
    model, tokens = Decoder(config("stem", "full")), torch.randint(0, 97, (2, 16))
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        model(tokens).sum().backward()
    assert counter.get_total_flops() == 3 * 2 * 16 * flops_per_token(model.config, 16)


LLAMA_1B = {"vocab": 128256, "width": 2048, "layers": 16, "heads": 32, "kv_heads": 8, "ffn_width": 8192}
MOBILE_350M = {"vocab": 32000, "width": 960, "layers": 32, "heads": 15, "kv_heads": 5, "ffn_width": 2560}


@pytest.mark.parametrize(
    ("shape", "placement", "active", "gflops"),
    [
        (LLAMA_1B, "none", 1.50, 3.00),
        (LLAMA_1B, "third", 1.41, 2.83),
        (MOBILE_350M, "third", 0.35, 0.70),
        (MOBILE_350M, "half", 0.34, 0.67),
        (MOBILE_350M, "full", 0.30, 0.60),
    ],
)
def test_the_papers_active_counts(shape, placement, active, gflops):
    """Table 3's active billions and GFLOPs, from tensors on the meta device."""
    shape_config = config("stem" if placement != "none" else "dense", placement, **shape)
    with torch.device("meta"):
        model = Decoder(shape_config)
    tables = {id(parameter) for parameter in table_parameters(model).values()}
    counted = sum(p.numel() for p in model.parameters() if id(p) not in tables)
    assert counted == parameter_counts(shape_config)["active"]
    assert counted / 1e9 == pytest.approx(active, abs=0.005)
    assert 2 * counted / 1e9 == pytest.approx(gflops, abs=0.005)


def test_the_papers_total_of_1b_leaves_the_removed_projections_in():
    counts = parameter_counts(config("stem", "third", **LLAMA_1B))
    assert counts["paper_total"] / 1e9 == pytest.approx(6.75, abs=0.005)
    assert counts["total"] / 1e9 == pytest.approx(6.668, abs=0.005)


def test_table_1_as_printed():
    """The multiply-adds of the paper's Table 1, summed by hand for one shape."""
    d, f, length = 2048, 8192, 4096
    dense = 4 * length * d**2 + 2 * length**2 * d + 3 * length * d * f
    stem = 4 * length * d**2 + 2 * length**2 * d + 2 * length * d * f
    shape = config(**LLAMA_1B)
    assert table_1_saving(shape, length) == pytest.approx(1 - stem / dense)
    reads = [4 * d**2 + 8 * 2 * length * d + matrices * d * f for matrices in (3, 2)]  # weights once, eight caches
    assert table_1_decode_saving(shape, length, 8) == pytest.approx(1 - reads[1] / reads[0])
    assert table_1_decode_saving(shape, length, 1) == pytest.approx(table_1_saving(shape, length))


def test_sizes_of_the_papers_tables():
    """1B, five layers: 5.25B parameters, 10.5 GB, 40,960 parameters per token; 350M, ten: 0.82B, 1.64 GB, 25,600."""
    for shape, parameters, gigabytes, a_token in ((LLAMA_1B, 5.25e9, 10.5, 40960), (MOBILE_350M, 0.82e9, 1.64, 25600)):
        stem = config("stem", "third", **shape)
        assert parameter_counts(stem)["tables"] == pytest.approx(parameters, rel=0.002)
        assert 2 * parameter_counts(stem)["tables"] / 1e9 == pytest.approx(gigabytes, abs=0.01)
        assert row_bytes(stem, 1, 1) == a_token
        assert row_bytes(stem, 1000, 2) == 2000 * a_token


def test_decode_reads_every_weight_once_and_every_cache():
    """All tensors but the embedding and the tables, of which a step reads one row per sequence."""
    model = Decoder(config("stem", "half"))
    whole = sum(p.numel() for name, p in model.named_parameters() if "embedding" not in name and "table" not in name)
    rows = 3 * (24 + 3 * 40)
    keys_and_values = 3 * 6 * 2 * 2 * 6 * 100
    assert cache_bytes(model.config, 100, 3, 2) == 2 * keys_and_values
    assert decode_bytes(model.config, 100, 3, 2) == 2 * (whole + rows + keys_and_values)


def test_expected_distinct_equals_drawing():
    rng, chance = np.random.default_rng(0), 1 / (np.arange(1, 501) + 2.7)
    counts = [len(np.unique(rng.choice(500, 300, p=chance / chance.sum()))) for _ in range(300)]
    assert expected_distinct(300, 500) == pytest.approx(np.mean(counts), rel=0.01)
    assert expected_distinct(1, 500) == pytest.approx(1)
    assert expected_distinct(10**9, 500) == pytest.approx(500)


def test_at_the_break_even_bandwidth_rows_take_as_long_as_compute():
    stem = config("stem", "third", **LLAMA_1B)
    seconds = 8192 * flops_per_token(stem, 4096) / 4e14
    bandwidth = break_even_bandwidth(stem, 4096, 3000, 8192, 4e14)
    assert row_bytes(stem, 3000) / bandwidth == pytest.approx(seconds)
    training = break_even_bandwidth(stem, 4096, 3000, 8192, 4e14, training=True)
    assert training == pytest.approx(bandwidth * 2 / 3)
