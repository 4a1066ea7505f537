"""The table of speeds: of known times, of a quick run, and the committed one."""

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from benchmarks import peers
from benchmarks.interleaved import compared, interleaved, quotient
from benchmarks.peer_embedding import WHATS
from benchmarks.peer_host_tables import TARGETS, homes
from benchmarks.peer_scoring import ARMS
from benchmarks.peer_training import PEERS, Steps, stems
from benchmarks.peer_vocabulary import PART_NAMES, UPDATES
from stemrepro.model.config import ModelConfig, layers_of
from stemrepro.model.cost import flops_per_token
from tests.conftest import ROOT

FAST, SLOW = np.full(20, 0.5), np.full(20, 1.5)


def test_a_rate_is_ours_over_theirs_and_a_time_too():
    rate = compared("m", "w", "p", "requests/s", FAST, SLOW, 3.0, "at least", 2.9)
    assert (rate.ours, rate.theirs, rate.ratio, rate.met) == (6.0, 2.0, 3.0, "yes")
    time = compared("m", "w", "p", "ms a step", SLOW, FAST, bound="at most", target=3.1)
    assert (time.ours, time.theirs, time.ratio, time.met) == (1500.0, 500.0, 3.0, "yes")
    assert compared("m", "w", "p", "requests/s", FAST, SLOW, 3.0, "at least", 3.1).met == "no"
    assert compared("m", "w", "p", "ms a step", SLOW, FAST, bound="at most", target=2.9).met == "no"
    assert compared("m", "w", "p", "ms a step", SLOW, FAST).met == ""


def test_a_target_within_the_interval_is_not_met():
    draw = np.random.default_rng(0)
    wide = draw.uniform(0.5, 1.5, 20)
    ratio, low, high = quotient(wide, FAST)
    assert low < ratio < high
    assert compared("m", "w", "p", "ms a step", wide, FAST, bound="at most", target=(ratio + high) / 2).met == "no"
    assert compared("m", "w", "p", "ms a step", wide, FAST, bound="at most", target=1.01 * high).met == "yes"


def test_a_machine_that_slows_down_for_both_changes_no_ratio():
    load = np.linspace(1, 5, 21)
    assert quotient(2 * load, load) == pytest.approx((2, 2, 2))


def test_every_round_takes_each_turn_once_on_the_same_number():
    taken, ticks = [], []
    turns = {name: (lambda number, name=name: taken.append((number, name))) for name in "abc"}
    seconds = interleaved(turns, 8, lambda: ticks.append(1), warm_up=2)
    rounds = [taken[first : first + 3] for first in range(0, len(taken), 3)]
    assert [{number for number, _ in each} for each in rounds] == [{number} for number in range(10)]
    assert all({name for _, name in each} == set("abc") for each in rounds)
    assert len({tuple(name for _, name in each) for each in rounds}) > 1
    assert len(ticks) == 8
    assert all(len(times) == 8 and (times > 0).all() for times in seconds.values())


@pytest.fixture(scope="module")
def quick(catalog):
    """The rows of --quick."""
    with peers.prepared() as home:
        rows = peers.measured(peers.on_cpu(catalog, home, quick=True))
    return peers.written(rows, peers.origin())


def expected(*widths: int) -> set[tuple[str, str]]:
    """The (measure, what, peer) of every row of a table but those of tables' rows."""
    kinds = [f"width {width}, eager" for width in widths] + [f"width {widths[0]}, compiled"]
    wanted = [("training step", f"dense, {kind}", peer) for kind in kinds for peer in PEERS]
    wanted += [("STEM's step", f"{arm}, {kind}", "dense") for kind in kinds for arm in stems("compiled" in kind)]
    wanted += [("products in a step", f"dense, width {width}, eager", "all of its operations") for width in widths]
    wanted += [("scoring", f"{arm}, width 32", "lm-eval's HFLM") for arm in ARMS]
    wanted += [("rows looked up", what, "fbgemm-gpu-cpu") for what in WHATS]
    wanted += [("rows moved", "rows in float32", "torch's fused AdamW")]
    wanted += [("tables in host memory", f"{what}, {home}", "on the device") for what in TARGETS for home in homes(512)]
    return {*wanted, *(("gather", f"rows in {kind}", "copy_ of as many bytes") for kind in ("bfloat16", "float32"))}


def complete(table: pd.DataFrame, *widths: int) -> None:
    """Every row exists, and once."""
    keys = list(zip(table.measure, table.what, table.peer.str.replace(r" [\d.]+$", "", regex=True), strict=True))
    assert len(keys) == len(set(keys))
    rest = {key for key in keys if key[0] not in ("rows of the tables", "parts of that step")}
    assert rest == expected(*widths)
    sizes = table[table.measure == "rows of the tables"].what.str.extract(r"^(.*), ([\d,]+) rows$")
    assert sizes.groupby(0)[1].apply(list).map(len).to_dict() == dict.fromkeys(UPDATES, 4)
    parts = table[table.measure == "parts of that step"].what.str.extract(r"^(.*), [\d,]+ rows: (.*)$")
    assert set(map(tuple, parts.to_numpy())) == {(update, part) for update in UPDATES for part in PART_NAMES}


def recomputed(table: pd.DataFrame) -> None:
    """Ratio, interval and `met` follow from the other columns; a row without a ratio says why."""
    measured = table[table.ratio.notna()]
    assert len(measured)
    np.testing.assert_allclose(measured.ours / measured.theirs, measured.ratio, rtol=1e-4)
    assert ((measured.low <= measured.ratio) & (measured.ratio <= measured.high)).all()
    assert table[table.ratio.isna()].note.str.len().gt(0).all()
    for row in measured.itertuples():
        keeps = {"at least": row.low >= row.target, "at most": row.high <= row.target}
        assert row.met == ("yes" if keeps[row.bound] else "no") if isinstance(row.bound, str) and row.bound else True


@pytest.mark.slow
def test_a_quick_run_has_every_row(quick):
    complete(quick, 32, 64)
    recomputed(quick)
    compiled = quick[quick.what.str.endswith("compiled")]
    assert set(compiled.note) == {"--quick compiles nothing"}


@pytest.mark.slow
def test_steps_have_the_ratio_of_flops(quick, catalog):
    """By hand: a token's products in a layer of width d, and what STEM leaves out."""
    ratios = quick.set_index("what").flop_ratio
    for width in (32, 64):
        d, layers, f, length, vocab = width, 3, 48, 32, 512
        layer = 2 * (2 * d * d + 2 * d * d // 2) + 4 * length * d + 6 * d * f
        dense = layers * layer + 2 * d * vocab
        for arm, replaced in (("stem-third", 1), ("stem-half", 1), ("stem-full", 2), ("stem-touched", 2)):
            assert ratios[f"{arm}, width {width}, eager"] == pytest.approx((dense - replaced * 2 * d * f) / dense)


def test_a_peer_that_is_not_installed_has_a_row(catalog, monkeypatch, tmp_path):
    monkeypatch.setattr(Steps, "run", lambda self, arm: type("Run", (), {"model": None}))

    def missing(*_: object) -> None:
        raise ImportError

    monkeypatch.setattr("benchmarks.peer_training.PEERS", {"litgpt": missing})
    steps = Steps(catalog, catalog.scale("laptop"), "width 32", tmp_path, 2, 8)
    seconds = steps.seconds(("litgpt",), False, 6, lambda: None)
    row = steps._row("litgpt", seconds, compile=False)
    assert (row.note, row.ratio, row.met) == ("not installed", None, "")


@pytest.fixture(scope="module")
def committed():
    return pd.read_csv(ROOT / peers.OUT)


def test_the_committed_table_is_whole(committed):
    complete(committed, 32, 256)
    recomputed(committed)
    assert committed[["command", "machine", "commit", "date", "versions"]].nunique().tolist() == [1] * 5
    assert committed.command[0].startswith("python -m benchmarks.peers")
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
        assert math.isclose(row.target, 1.05 * flops[0] / flops[1], rel_tol=1e-5)


def test_the_page_names_the_table():
    """That its numbers are the table's is a test of its template."""
    text = (ROOT / "docs/src/performance.md.j2").read_text()
    assert text.count('"docs/performance.csv"') > 5
    assert Path(peers.OUT).name in text
