"""Times of a published model from made-up tables, against closed forms."""

import pkgutil

import numpy as np
import pytest
from scipy import stats

from stemrepro.measures import serving
from stemrepro.measures.base import call
from stemrepro.measures.scores import Scores
from stemrepro.report.style import use_style
from stemrepro.verdicts.effect import Unmeasured
from tests.made_up import grid

SECONDS = {"dense": 10.0, "third": 9.5, "half": 9.2, "full": 8.5, "hugging-face": 11.0, "product": 5.0}
SECONDS |= {"warm": 8.6, "warm-ahead": 8.7, "cold": 17.0, "cold-ahead": 11.9, "bandwidth": 4.0}
BYTES = {"dense": 1000, "third": 940, "half": 900, "product": 450, "bandwidth": 500, "hugging-face": 0}
ROUNDS = (1.0, 1.1, 1.3, 0.9)
"""How fast the machine is in each, which all arms share."""


def write(folder, disk=300, full=SECONDS["full"]):
    """Write times; `full` are those of this arm in the third round, on a machine as fast as in the first."""
    axes = {"phase": ("decode", "prefill"), "kind": ("float32", "bfloat16"), "batch": (1, 16), "context": (128, 2048)}
    rows = grid(**axes, round=range(len(ROUNDS)), arm=SECONDS).assign(rows=290, threads=2, torch="2")
    rows = rows.assign(machine="a processor [avx2]", date="2026-11-28T00:00:00Z")
    arm, seconds, size = rows["arm"], rows["arm"].map(SECONDS), rows["arm"].map(BYTES).fillna(800)
    seconds[(arm == "full") & (rows["round"] == 2)] = full
    rows = rows.assign(seconds=seconds * np.take(ROUNDS, rows["round"]), disk=disk * arm.str.contains("cold"))
    rows = rows.assign(bytes=size, counted=size + 3 * (arm == "half"))[(rows["batch"] == 1) | (rows["context"] == 128)]
    folder.mkdir(parents=True)
    rows.sample(frac=1, random_state=0).to_parquet(folder / "times.parquet")
    return folder.parent


@pytest.fixture
def scores(catalog, tmp_path):
    return Scores("serving", catalog, "smollm2", write(tmp_path / "serving"))


@pytest.mark.parametrize(
    ("arms", "metric", "value"),
    [
        (("third", "dense"), {"saves": "decode", "kind": "float32"}, 5),
        (("full", "dense"), {"through": "float32"}, 100 * 0.15 / 0.2 - 50),
        (("warm", "full"), {"slower": "decode", "kind": "float32"}, 100 * 0.1 / 8.5),
        (("cold-ahead", "cold"), {"saves": "decode", "kind": "float32"}, 30),
        (("dense", "hugging-face"), {"slower": "prefill", "kind": "bfloat16", "context": 2048}, -100 / 11),
        (("dense", "bandwidth"), {"reaches": "float32"}, 100 * (1000 / 10) / (500 / 4) - 90),
    ],
)
def test_ratios_are_taken_within_a_round(scores, catalog, arms, metric, value):
    effect = call({"batch": 1, "context": 128} | metric, catalog, scores.recipe).effect(scores, *arms)
    assert effect.differences == pytest.approx([value] * len(ROUNDS))
    assert effect.over == "rounds"


FIRST = ("decode", "float32", 1, 128)


def test_the_interval_is_over_rounds(catalog, tmp_path):
    other = Scores("serving", catalog, "smollm2", write(tmp_path / "serving", full=9.5))
    effect = serving.saves(other, "full", "dense", *FIRST)
    values = [15, 15, 5, 15]
    assert effect.differences == pytest.approx(values)
    assert effect.interval(0.05) == pytest.approx(stats.t.interval(0.95, 3, 12.5, stats.sem(values)))


def test_exact_numbers(scores):
    assert serving.uncounted(scores) == 3
    assert serving.rate(scores, "float32") == pytest.approx((500 / 4 / 1.0 + 500 / 4 / 1.1) / 2 / 1e9)
    assert serving.disk(scores, "bfloat16") == pytest.approx(100 * 300 / 290)


def test_what_took_no_part_and_a_file_in_memory_are_not_measured(scores, catalog, tmp_path):
    with pytest.raises(Unmeasured, match="arm 'llama-cpp'"):
        serving.saves(scores, "llama-cpp", "dense", *FIRST)
    warm = Scores("serving", catalog, "smollm2", write(tmp_path / "warm/serving", disk=100))
    with pytest.raises(Unmeasured, match="came from memory"):
        serving.saves(warm, "cold-ahead", "cold", *FIRST)


def test_the_figure_names_the_machine(scores, catalog):
    use_style(catalog.arms)
    collect, draw = (pkgutil.resolve_name(f"analysis.serving:{name}") for name in ("collect", "draw"))
    data = collect(scores)

    def value(panel, what, x="1 x 128"):
        return data[(data.panel == panel) & (data.what == what) & (data.x == x)].value.item()

    assert value("decode, float32", "full") == pytest.approx(85)
    assert value("file, decode, bfloat16", "cold", "16 x 128") == pytest.approx(200)
    assert value("bytes, float32", "third") == pytest.approx(94)
    figure = draw(data, scores)
    assert "a processor, 2 threads, 2026-11-28" in figure.axes[0].get_xlabel()
