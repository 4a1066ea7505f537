"""Bytes and times of host tables against plain sums over layers, and over the parts of a training step."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from stemrepro.config.scale import Shape
from stemrepro.measures import offload
from stemrepro.measures.costs import dense_and_stem
from stemrepro.measures.offload import (
    DEVICES,
    HOMES,
    PREFILL,
    PROMPT,
    STEP,
    Home,
    Pass,
    Rows,
    decoding,
    device_bytes,
    fetched,
    from_host,
    layer_seconds,
    model_seconds,
    stretches,
)
from stemrepro.measures.scores import Scores
from stemrepro.measures.text import TextCounts, text_counts
from stemrepro.model.cost import decode_bytes, flops_per_token, parameter_counts
from stemrepro.verdicts.effect import Untested
from tests.made_up import grid

SHAPE = Shape(vocab=97, width=24, layers=6, heads=4, kv_heads=2, ffn_width=40, sequence=16)
DEVICE = DEVICES["h100-pcie-5"]
COMPUTES = replace(DEVICE, memory=np.inf)
READS = replace(DEVICE, flops=np.inf)


@pytest.fixture
def counts(tmp_path):
    """Two sources: all tokens distinct, and half of them from 64 on; caches that serve 20% and 60% of a chunk's."""
    text = tmp_path / "text"
    text.mkdir()
    rows = grid(source=("all", "half"), window=(0, 1), length=(64, 128, 256)).assign(vocab=500)
    rows["distinct"] = rows["length"] * rows["source"].map({"all": 1, "half": 0.5})
    rows.to_csv(text / "distinct.csv", index=False)
    rows = grid(source=("all", "half"), share=(1 / 32, 1 / 10)).assign(vocab=500, policy="LFU", rows=1, stretch=0)
    rows = rows.assign(asked="distinct in a chunk", hit_rate=[0.2, 0.6] * 2)
    rows.to_csv(text / "cache.csv", index=False)
    return TextCounts(text)


def test_rows_that_are_brought(counts):
    assert fetched(counts, PREFILL, HOMES["ahead"]) == 512
    assert fetched(counts, PREFILL, HOMES["ahead, distinct"]) == 512 * 0.75
    assert fetched(counts, PREFILL, HOMES["ahead, distinct, cache of 1/10"]) == pytest.approx(512 * 0.75 * 0.4)
    assert fetched(counts, decoding(8), HOMES["ahead, distinct"]) == 8  # the only token of each sequence


def dense_seconds(shape, works, device):
    dense, _ = dense_and_stem(shape, "third")
    return sum(stretches(dense, (), tuple(works), device.flops, device.memory))


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


SLOW = replace(DEVICES["h100-pcie-5"], flops=1e6, link=1e3, update=1e2, memory=1e4, latency=0.5, gather=5e2)
ROWS = Rows(distinct=10.0, new=0.6)
ASKED = ("llama-3.2-1b", "third", "h100-pcie-5")


def compute():
    _, stem = dense_and_stem(SHAPE, "third")
    backbone = 28 * (2 * 97 * 24 + 6 * (2 * 24 * 24 + 2 * 24 * 12 + 2 * 24 * 40 + 2 * 24) + 4 * 24 * 40 + 24) / 1e4
    return 3 * 64 * flops_per_token(stem, 8) / 1e6 + backbone


def test_parts_of_a_step_with_two_tables():
    step = from_host(SHAPE, "third", 64, SLOW, ROWS)
    size = 2 * 10 * 40 * 4  # two tables, ten rows of forty float32 each
    assert step.compute == pytest.approx(compute())
    assert step.early == pytest.approx(0.6 * size * (1 / 1e3 + 1 / 5e2) + 0.5)
    assert step.back == pytest.approx(size / 1e3 + 0.5)
    assert step.update == pytest.approx(2 * 10 * 40 / 1e2)
    assert step.late == pytest.approx(0.4 * size * (1 / 1e3 + 1 / 5e2) + 0.5)


@pytest.fixture
def scores(tmp_path, catalog):
    """One source: 100 distinct tokens in a step, 150 in two."""
    (tmp_path / "text").mkdir()
    rows = grid(window=(0, 1), length=(STEP, 2 * STEP)).assign(vocab=500, source="one", distinct=[100, 150] * 2)
    rows.to_csv(tmp_path / "text/distinct.csv", index=False)
    return Scores("table_offload", catalog, "laptop", tmp_path)


def test_a_text_that_is_not_counted_far_enough_tests_no_step(scores, tmp_path, catalog):
    """Up to one step's tokens; the figure takes the longest that are counted with those after them."""
    assert offload.steps(text_counts(scores)) == [STEP]
    assert 0 < offload.training(scores, *ASKED) < offload.training_asked(scores, *ASKED)
    path = tmp_path / "text/distinct.csv"
    rows = pd.read_csv(path)
    pd.concat([rows[rows.length == STEP], rows.assign(length=rows.length // 64)]).to_csv(path, index=False)
    short = Scores("table_offload", catalog, "laptop", tmp_path)
    assert offload.steps(text_counts(short)) == [STEP // 64]
    assert offload.prefill_asked(short, *ASKED) > 0
    with pytest.raises(Untested, match="isn't counted up to 32,768 tokens, two steps' of 16,384"):
        offload.training(short, *ASKED)
