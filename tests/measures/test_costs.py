"""Numbers of the cost model's claims against models counted on the meta device."""

from pathlib import Path

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from stemrepro.config.scale import Shape
from stemrepro.measures import costs
from stemrepro.measures.costs import RANKS, RIVALS, STEMS, dense_and_stem, saving_of_layer, saving_of_model, traffic
from stemrepro.measures.scores import Scores
from stemrepro.model.cost import expected_distinct
from stemrepro.model.transformer import Decoder

SHAPE = Shape(vocab=97, width=24, layers=6, heads=4, kv_heads=2, ffn_width=40, sequence=16)


def counted(config, length):
    with torch.device("meta"):
        model, tokens = Decoder(config), torch.zeros((1, length), dtype=torch.long)
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH), torch.device("meta"):
        model(tokens)
    return counter.get_total_flops()


@pytest.mark.parametrize("placement", ["third", "half", "full"])
def test_savings_equal_the_counter(placement):
    dense, stem = dense_and_stem(SHAPE, placement)
    before, after = counted(dense, 16), counted(stem, 16)
    assert saving_of_model(SHAPE, placement, 16) == pytest.approx(1 - after / before)
    head = 2 * 16 * 24 * 97
    a_layer = (before - head) / 6
    assert saving_of_layer(SHAPE, 16) == pytest.approx((before - after) / len(stem.replaced_layers) / a_layer)


@pytest.fixture
def scores(catalog):
    return Scores("cost_model", catalog, "laptop", Path("none"))


def test_traffic_of_more_tables(scores, catalog):
    """Ten more layers: rows come, up-projections go."""
    third = traffic(catalog.shapes["llama-3.2-1b"], "distinct", 64)
    rows = 10 * 2 * 8192 * 2 * expected_distinct(32768, 128256)
    gone = 10 * 2048 * 8192 * (2 * 2 + 4)
    expected = 100 * 63 / 64 * (rows - gone) / third
    assert costs.traffic_of_tables(scores, "llama-3.2-1b", 64) == pytest.approx(expected)


def test_metrics(scores, catalog):
    shape = catalog.shapes["llama-3.2-1b"]
    assert costs.layer_saving(scores, "llama-3.2-1b") == pytest.approx(100 * saving_of_layer(shape, 4096))
    assert costs.decode_saving(scores, "llama-3.2-1b", 1) == pytest.approx(20.0)
    caches = 2 * 4096 * shape.width  # of each sequence; weights are read once for all
    weights = 4 * shape.width**2 + 3 * shape.width * shape.ffn_width
    saved = shape.width * shape.ffn_width / (weights + 8 * caches)
    assert costs.decode_saving(scores, "llama-3.2-1b", 8) == pytest.approx(100 * saved)
    assert costs.model_saving(scores, "llama-3.2-1b", "third") == pytest.approx(5.6, abs=0.1)
    assert [costs.doubled(scores, "llama-3.2-1b", what) for what in ("compute", "rows")] == [4, 2]
    moved = {name: [traffic(shape, name, ranks) for ranks in RANKS] for name in (*STEMS, *RIVALS)}
    for name in STEMS:
        for rival in RIVALS:
            more = sum(a > b for a, b in zip(moved[name], moved[rival], strict=True))
            assert costs.more_traffic(scores, "llama-3.2-1b", name, rival) == more
    assert moved["dense"][1] < moved["distinct"][1] < moved["every-token"][1] < moved["inside-fsdp"][1]
    weights = 16 * (4 * 2048 * (2048 + 512) // 2 + 3 * 2048 * 8192 + 2 * 2048), (2 * 128256 + 1) * 2048
    assert moved["dense"][0] == 7 / 8 * (8 * (2 * 2 * weights[0] + 2 * weights[1]) + 4 * sum(weights))
