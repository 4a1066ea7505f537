"""Bytes and times of host tables against plain sums over layers."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from stemrepro.errors import UserError
from stemrepro.measures.base import Inputs
from stemrepro.measures.costs import dense_and_stem
from stemrepro.measures.offload import (
    HOMES,
    PREFILL,
    Home,
    Offload,
    Pass,
    decode,
    dense_seconds,
    device_bytes,
    model_seconds,
)  # fmt: skip
from stemrepro.measures.offload_rates import DEVICES, HOST_GATHER
from stemrepro.model.cost import decode_bytes, flops_per_token, parameter_counts
from stemrepro.scale import Shape
from tests.conftest import ROOT

SHAPE = Shape(vocab=97, width=24, layers=6, heads=4, kv_heads=2, ffn_width=40, sequence=16)
DEVICE = DEVICES["h100-pcie-5"]
COMPUTES = replace(DEVICE, memory=np.inf)
READS = replace(DEVICE, flops=np.inf)


@pytest.fixture
def offload(tmp_path, book):
    """Two sources: all tokens distinct, and half of them from 64 on; caches that serve 20% and 60% of a chunk's."""
    text = tmp_path / "text"
    text.mkdir()
    lengths = [64, 128, 256]
    pd.DataFrame([
        {"vocab": 500, "source": source, "window": window, "length": n, "distinct": share * n}
        for source, share in (("all", 1), ("half", 0.5)) for window in (0, 1) for n in lengths
    ]).to_csv(text / "distinct.csv", index=False)  # fmt: skip
    pd.DataFrame([
        {"vocab": 500, "source": source, "asked": "distinct in a chunk", "policy": "LFU", "rows": 1, "share": share, "stretch": 0, "hit_rate": rate}
        for source in ("all", "half") for share, rate in ((1 / 32, 0.2), (1 / 10, 0.6))
    ]).to_csv(text / "cache.csv", index=False)  # fmt: skip
    return Offload(Inputs("table_offload", book, "laptop", tmp_path))


def test_rows_that_are_brought(offload):
    assert offload.fetched(PREFILL, HOMES["ahead"]) == 512
    assert offload.fetched(PREFILL, HOMES["ahead, distinct"]) == 512 * 0.75
    assert offload.fetched(PREFILL, HOMES["ahead, distinct, cache of 1/10"]) == pytest.approx(512 * 0.75 * 0.4)
    assert offload.fetched(decode(8), HOMES["ahead, distinct"]) == 8  # the only token of each sequence


def test_dense_time_is_that_of_all_products_or_of_all_bytes():
    work = Pass(2, 8, 16)
    dense, _ = dense_and_stem(SHAPE, "third")
    products = 16 * (flops_per_token(dense, 16) - 2 * 24 * 97) + 2 * 2 * 24 * 97  # logits of the last token alone
    assert dense_seconds(SHAPE, work, COMPUTES) == pytest.approx(products / DEVICE.flops)
    one = decode(3)
    read = decode_bytes(dense, one.context, 3) - 2 * (3 * 24 + 24)  # but embeddings of three tokens and the last norm
    assert dense_seconds(SHAPE, one, READS) == pytest.approx(read / DEVICE.memory)


@pytest.mark.parametrize(("placement", "tables"), [("third", 2), ("full", 5)])
def test_stem_saves_a_product_a_replaced_layer_and_pays_for_rows_when_asked_for(placement, tables):
    work = Pass(2, 8, 16)
    here = model_seconds(SHAPE, placement, work, COMPUTES, Home(host=False), 0)
    assert here == pytest.approx(dense_seconds(SHAPE, work, COMPUTES) - tables * 16 * 2 * 24 * 40 / DEVICE.flops)
    asked = model_seconds(SHAPE, placement, work, COMPUTES, HOMES["when asked for"], 16)
    assert asked - here == pytest.approx(tables * (DEVICE.latency + 16 * 80 / DEVICE.link))


def test_memory_is_parameters_and_what_stands_for_tables():
    _, stem = dense_and_stem(SHAPE, "third")
    counts = parameter_counts(stem)
    assert device_bytes(SHAPE, "third", Home(host=False), 0) == 2 * counts["total"]
    held = 2 * 10 * 40 * 2  # two buffers of ten rows
    assert device_bytes(SHAPE, "third", HOMES["ahead"], 10) == 2 * counts["active"] + held
    cached = device_bytes(SHAPE, "third", HOMES["ahead, distinct, cache of 1/10"], 10)
    assert cached == pytest.approx(2 * counts["active"] + held + 0.1 * 2 * counts["tables"])


def test_metrics(offload):
    assert offload.value("share_grows") == 2  # neither source's share falls
    assert offload.value("more_memory") == 0
    asked = offload.value("prefill_asked:llama-3.2-1b:third:h100-pcie-5")
    assert asked == offload.slowdown("llama-3.2-1b", "third", "h100-pcie-5", PREFILL, HOMES["when asked for"]) > 10
    assert offload.value("prefill:llama-3.2-1b:third:h100-pcie-5") < asked
    slow = offload.value("decode:mobilellm-350m:full:h100-pcie-4:1")
    assert slow == offload.slowdown("mobilellm-350m", "full", "h100-pcie-4", decode(1), HOMES["ahead"]) > 0
    with pytest.raises(UserError, match=r"device 'h100' is unknown"):
        offload.value("prefill:llama-3.2-1b:third:h100")
    with pytest.raises(UserError, match=r"shape 'llama' is unknown"):
        offload.value("prefill:llama:third:h100-pcie-5")


def test_the_hosts_rate_is_the_measured_one():
    table = pd.read_csv(ROOT / "docs/performance.csv")
    found = table[(table.measure == "gather") & (table.what == "rows in bfloat16")].ours.item()
    assert pytest.approx(found, rel=0.005) == HOST_GATHER / 1e9
