"""The table of speeds: of known times, of a quick run, and the committed one."""

import math

import numpy as np
import pandas as pd
import pytest
import torch

from benchmarks import peers, runs
from stemrepro.model.config import ModelConfig, layers_of
from stemrepro.model.cost import flops_per_token
from tests.conftest import ROOT

FAST, SLOW = np.full(20, 0.5), np.full(20, 1.5)


def test_a_ratio_lies_in_its_interval_and_a_slower_machine_changes_none():
    assert peers.quotient(SLOW, FAST) == pytest.approx({"ratio": 3, "low": 3, "high": 3})
    load = np.linspace(1, 5, 21)
    assert peers.quotient(2 * load, load) == pytest.approx({"ratio": 2, "low": 2, "high": 2})
    found = peers.quotient(np.random.default_rng(0).uniform(0.5, 1.5, 20), FAST)
    assert found["low"] < found["ratio"] < found["high"]


def test_every_round_takes_each_turn_once_on_the_same_tokens():
    taken = []
    turns = {name: (lambda batch, name=name: taken.append((name, batch))) for name in "abc"}
    seconds = runs.interleaved(turns, (2, 5), 11, 8)
    rounds = [taken[first : first + 3] for first in range(0, len(taken), 3)]
    assert len(rounds) == runs.WARM_UP + 8
    assert all({name for name, _ in each} == set("abc") for each in rounds)
    assert all(torch.equal(batch, each[0][1]) for each in rounds for _, batch in each)
    assert len({tuple(name for name, _ in each) for each in rounds}) > 1
    assert all(len(times) == 8 and (times > 0).all() for times in seconds.values())


@pytest.mark.slow
def test_a_run_has_every_row_and_the_ratio_of_flops(catalog, sample, monkeypatch):
    """By hand: a token's products in a layer of width d, and what STEM leaves out; litgpt isn't installed."""
    monkeypatch.setattr(peers, "find_spec", lambda name: name == "transformers")
    d, layers, f, length, vocab = 32, 3, 48, 32, 512
    own = {"vocab": vocab, "width": d, "layers": layers, "heads": 2, "kv_heads": 1, "ffn_width": f}
    scale = catalog.scale("laptop")
    scale = scale.model_copy(update={"model": scale.model.model_copy(update=own)})
    rows = peers.compared(scale, (2, length), False, 6, sample / "blocks")
    assert [row["peer"].split()[0] for row in rows] == ["transformers"] + 4 * ["dense"]
    layer = 2 * (2 * d * d + 2 * d * d // 2) + 4 * length * d + 6 * d * f
    dense = layers * layer + 2 * d * vocab
    for row, replaced in zip(rows[1:], (1, 1, 2, 2), strict=True):
        assert row["flop_ratio"] == pytest.approx((dense - replaced * 2 * d * f) / dense)
        assert row["ours"] / row["theirs"] == pytest.approx(row["ratio"])


@pytest.fixture(scope="module")
def committed():
    return pd.read_csv(ROOT / peers.OUT)


def test_the_committed_table_follows_from_its_columns(committed):
    measured = committed[committed.ratio.notna()]
    np.testing.assert_allclose(measured.ours / measured.theirs, measured.ratio, rtol=1e-4)
    assert ((measured.low <= measured.ratio) & (measured.ratio <= measured.high)).all()
    assert committed[["machine", "commit", "date", "versions"]].nunique().tolist() == [1] * 4
    assert "+changes" not in committed.commit[0]


def test_its_flop_ratios_are_those_of_the_cost_model(committed, catalog):
    steps = committed[committed.measure == "STEM's step"]
    assert len(steps) == 11
    for row in steps.itertuples():
        arm, width, _ = row.what.split(", ")
        scale = catalog.scale("laptop" if width == "width 32" else "gpu")
        length = int(row.note.split(" x ")[1].split()[0])
        base = scale.model.model_dump(exclude={"sequence"}) | (peers.WIDE if width == "width 256" else {})
        replaced_layers = layers_of(catalog.arms[arm].placement, base["layers"])
        flops = [
            flops_per_token(c, length)
            for c in (ModelConfig(**base, ffn="stem", replaced_layers=replaced_layers), ModelConfig(**base))
        ]
        assert math.isclose(row.flop_ratio, flops[0] / flops[1], rel_tol=1e-5)
