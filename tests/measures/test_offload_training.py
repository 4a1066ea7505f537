"""A training step with host tables against sums written out for one shape, and against the engine's count of bytes."""

from dataclasses import replace

import pandas as pd
import pytest

from stemrepro.config.scale import Shape
from stemrepro.measures import offload
from stemrepro.measures.costs import dense_and_stem
from stemrepro.measures.offload import STEP
from stemrepro.measures.offload_rates import DEVICES
from stemrepro.measures.offload_training import Rows, from_host
from stemrepro.measures.scores import Scores
from stemrepro.measures.text import text_counts
from stemrepro.model.cost import flops_per_token
from stemrepro.verdicts.effect import Untested

SHAPE = Shape(vocab=97, width=24, layers=6, heads=4, kv_heads=2, ffn_width=40, sequence=16)
DEVICE = replace(DEVICES["h100-pcie-5"], flops=1e6, link=1e3, update=1e2, memory=1e4, latency=0.5, gather=5e2)
ROWS = Rows(distinct=10.0, new=0.6)
ASKED = ("llama-3.2-1b", "third", "h100-pcie-5")


def compute():
    _, stem = dense_and_stem(SHAPE, "third")
    backbone = 28 * (2 * 97 * 24 + 6 * (2 * 24 * 24 + 2 * 24 * 12 + 2 * 24 * 40 + 2 * 24) + 4 * 24 * 40 + 24) / 1e4
    return 3 * 64 * flops_per_token(stem, 8) / 1e6 + backbone


def test_parts_of_a_step_with_two_tables():
    step = from_host(SHAPE, "third", 64, DEVICE, ROWS)
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
    pd.DataFrame([
        {"vocab": 500, "source": "one", "window": window, "length": n, "distinct": count}
        for window in (0, 1) for n, count in ((STEP, 100), (2 * STEP, 150))
    ]).to_csv(tmp_path / "text/distinct.csv", index=False)  # fmt: skip
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
