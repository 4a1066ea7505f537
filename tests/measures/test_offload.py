"""Bytes and times of host tables against plain sums over layers."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from stemrepro.config.scale import Shape
from stemrepro.measures.costs import dense_and_stem
from stemrepro.measures.offload import (
    HOMES,
    PREFILL,
    PROMPT,
    Home,
    Pass,
    decoding,
    dense_seconds,
    device_bytes,
    fetched,
    layer_seconds,
    model_seconds,
)
from stemrepro.measures.offload_rates import DEVICES
from stemrepro.measures.text import TextCounts
from stemrepro.model.cost import decode_bytes, flops_per_token, parameter_counts

SHAPE = Shape(vocab=97, width=24, layers=6, heads=4, kv_heads=2, ffn_width=40, sequence=16)
DEVICE = DEVICES["h100-pcie-5"]
COMPUTES = replace(DEVICE, memory=np.inf)
READS = replace(DEVICE, flops=np.inf)


@pytest.fixture
def counts(tmp_path):
    """Two sources: all tokens distinct, and half of them from 64 on; caches that serve 20% and 60% of a chunk's."""
    text = tmp_path / "text"
    text.mkdir()
    lengths = [64, 128, 256]
    pd.DataFrame([
        {"vocab": 500, "source": source, "window": window, "length": n, "distinct": share * n}
        for source, share in (("all", 1), ("half", 0.5)) for window in (0, 1) for n in lengths
    ]).to_csv(text / "distinct.csv", index=False)  # fmt: skip
    pd.DataFrame([
        {"vocab": 500, "source": source, "asked": "distinct in a chunk", "policy": "LFU", "rows": 1, "share": share,
         "stretch": 0, "hit_rate": rate}
        for source in ("all", "half") for share, rate in ((1 / 32, 0.2), (1 / 10, 0.6))
    ]).to_csv(text / "cache.csv", index=False)  # fmt: skip
    return TextCounts(text)


def test_rows_that_are_brought(counts):
    assert fetched(counts, PREFILL, HOMES["ahead"]) == 512
    assert fetched(counts, PREFILL, HOMES["ahead, distinct"]) == 512 * 0.75
    assert fetched(counts, PREFILL, HOMES["ahead, distinct, cache of 1/10"]) == pytest.approx(512 * 0.75 * 0.4)
    assert fetched(counts, decoding(8), HOMES["ahead, distinct"]) == 8  # the only token of each sequence


def test_dense_time_is_that_of_all_products_or_of_all_bytes():
    work = Pass(2, 8, 16)
    dense, _ = dense_and_stem(SHAPE, "third")
    products = 16 * (flops_per_token(dense, 16) - 2 * 24 * 97) + 2 * 2 * 24 * 97  # logits of the last token alone
    assert dense_seconds(SHAPE, [work], COMPUTES) == pytest.approx(products / DEVICE.flops)
    one = decoding(3)
    read = decode_bytes(dense, one.context, 3) - 2 * (3 * 24 + 24)  # but embeddings of three tokens and the last norm
    assert dense_seconds(SHAPE, [one], READS) == pytest.approx(read / DEVICE.memory)


@pytest.mark.parametrize(("placement", "tables"), [("third", 2), ("full", 5)])
def test_stem_saves_a_product_per_replaced_layer_and_pays_for_requested_rows(placement, tables):
    works = [Pass(2, 8, 16)]
    resident = model_seconds(SHAPE, placement, works, COMPUTES, Home(host=False), 0)
    assert resident == pytest.approx(dense_seconds(SHAPE, works, COMPUTES) - tables * 16 * 2 * 24 * 40 / DEVICE.flops)
    slow = replace(COMPUTES, busy=3e-6, gather=1e9)
    requested = model_seconds(SHAPE, placement, works, slow, HOMES["when asked for"], 16)
    rows = DEVICE.latency + 3e-6 + 16 * 80 / DEVICE.link + 16 * 80 / 1e9
    assert requested - resident == pytest.approx(tables * rows)


def test_a_prompt_is_its_chunks_with_one_set_of_logits():
    """63 chunks of ever longer contexts; on the device nothing passes from one to the next."""
    assert [work.context for work in PROMPT[:2]] == [64, 192]
    assert sum(work.tokens for work in PROMPT) == 63 * 128 <= 8065
    parts = sum(dense_seconds(SHAPE, [work], COMPUTES) for work in PROMPT)
    logits = 2 * PROMPT[0].sequences * 24 * 97 / DEVICE.flops
    assert dense_seconds(SHAPE, PROMPT, COMPUTES) == pytest.approx(parts - 62 * logits)


def test_rows_of_a_chunk_come_while_the_one_before_is_computed():
    """Two chunks whose tables' rows take longer than the first layer and less than a chunk.

    Alone each waits, together only the first.
    """
    works = [Pass(2, 8, 16)] * 2
    layer = layer_seconds(dense_and_stem(SHAPE, "third")[0], False, works[0], COMPUTES.flops, COMPUTES.memory)
    link = 80 * 16 / (1.5 * layer)  # the rows of a table take one and a half layers
    device = replace(COMPUTES, link=link, latency=0.0)
    resident = model_seconds(SHAPE, "third", works, device, Home(host=False), 16)
    assert model_seconds(SHAPE, "third", works, device, HOMES["ahead"], 16) - resident == pytest.approx(0.5 * layer)
    alone = [model_seconds(SHAPE, "third", works[:1], device, home, 16) for home in (HOMES["ahead"], Home(host=False))]
    assert 2 * (alone[0] - alone[1]) == pytest.approx(layer)


def test_memory_is_parameters_and_what_stands_for_tables():
    _, stem = dense_and_stem(SHAPE, "third")
    counts = parameter_counts(stem)
    assert device_bytes(SHAPE, "third", Home(host=False), 0) == 2 * counts["total"]
    held = 2 * 10 * 40 * 2  # two buffers of ten rows
    assert device_bytes(SHAPE, "third", HOMES["ahead"], 10) == 2 * counts["active"] + held
    cached = device_bytes(SHAPE, "third", HOMES["ahead, distinct, cache of 1/10"], 10)
    assert cached == pytest.approx(2 * counts["active"] + held + 0.1 * 2 * counts["tables"])
