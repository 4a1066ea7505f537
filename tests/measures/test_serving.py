"""Times of a published model from made-up tables, against closed forms."""

import pkgutil

import pandas as pd
import pytest
from scipy import stats

from stemrepro.measures.inputs import Inputs
from stemrepro.measures.serving import Serving
from stemrepro.report.style import use_style
from stemrepro.verdicts.contrast import Unmeasured

SECONDS = {
    "dense": 10.0, "third": 9.5, "half": 9.2, "full": 8.5, "warm": 8.6, "warm-ahead": 8.7, "cold": 17.0,
    "cold-ahead": 11.9, "hugging-face": 11.0, "product": 5.0, "bandwidth": 4.0,
}  # fmt: skip
BYTES = {"dense": 1000, "third": 940, "half": 900, "product": 450, "bandwidth": 500, "hugging-face": 0}
ROUNDS = (1.0, 1.1, 1.3, 0.9)
"""How fast the machine is in each, which all arms share."""


def write(folder, disk=300):
    for phase in ("decode", "prefill"):
        for kind in ("float32", "bfloat16"):
            for batch, context in ((1, 128), (16, 128), (1, 2048)):
                rows = [
                    {"round": number, "arm": arm, "seconds": seconds * slow, "disk": disk if "cold" in arm else 0,
                     "bytes": (size := BYTES.get(arm, 800)), "rows": 290, "counted": size + 3 * (arm == "half"),
                     "phase": phase, "kind": kind, "batch": batch, "context": context, "machine": "a processor [avx2]",
                     "date": "2026-11-28T00:00:00Z", "threads": 2, "torch": "2"}
                    for number, slow in enumerate(ROUNDS) for arm, seconds in SECONDS.items()
                ]  # fmt: skip
                folder.mkdir(exist_ok=True)
                pd.DataFrame(rows).sample(frac=1, random_state=0).to_parquet(
                    folder / f"{phase}-{kind}-{batch}-{context}.parquet"
                )


@pytest.fixture
def measure(catalog, tmp_path):
    write(tmp_path / "serving")
    return Serving(Inputs("serving", catalog, "smollm2", tmp_path))


@pytest.mark.parametrize(
    ("arms", "metric", "value"),
    [
        (("third", "dense"), "saves:decode:float32:1:128", 5),
        (("full", "dense"), "through:float32:1:128", 100 * 0.15 / 0.2 - 50),
        (("warm", "full"), "slower:decode:float32:1:128", 100 * 0.1 / 8.5),
        (("cold-ahead", "cold"), "saves:decode:float32:1:128", 30),
        (("dense", "hugging-face"), "slower:prefill:bfloat16:1:2048", -100 / 11),
        (("dense", "bandwidth"), "reaches:float32:1:128", 100 * (1000 / 10) / (500 / 4) - 90),
    ],
)
def test_ratios_are_taken_within_a_round(measure, arms, metric, value):
    contrast = measure.contrast(*arms, metric)
    assert contrast.differences == pytest.approx([value] * len(ROUNDS))
    assert contrast.over == "rounds"


def test_the_interval_is_over_rounds(measure):
    rows = measure.times
    rows.loc[rows["arm"].eq("full") & rows["round"].eq(2), "seconds"] = 9.5 * 1.3
    contrast = measure.contrast("full", "dense", "saves:decode:float32:1:128")
    values = [15, 15, 5, 15]
    assert contrast.differences == pytest.approx(values)
    assert contrast.interval(0.05) == pytest.approx(stats.t.interval(0.95, 3, 12.5, stats.sem(values)))


def test_exact_numbers(measure):
    assert measure.value("uncounted") == 3
    assert measure.value("rate:float32") == pytest.approx((500 / 4 / 1.0 + 500 / 4 / 1.1) / 2 / 1e9)
    assert measure.value("disk:bfloat16") == pytest.approx(100 * 300 / 290)


def test_what_took_no_part_and_a_file_in_memory_are_not_measured(measure, catalog, tmp_path):
    with pytest.raises(Unmeasured, match=r"'llama-cpp' took no part in decode, float32, 1 x 128 tokens"):
        measure.contrast("llama-cpp", "dense", "saves:decode:float32:1:128")
    write(tmp_path / "serving", disk=100)
    warm = Serving(Inputs("serving", catalog, "smollm2", tmp_path))
    with pytest.raises(Unmeasured, match="came from memory"):
        warm.contrast("cold-ahead", "cold", "saves:decode:float32:1:128")


def test_the_figure_names_the_machine(measure, catalog):
    use_style(catalog.arms)
    collect, draw = (pkgutil.resolve_name(f"analysis.serving:{name}") for name in ("collect", "draw"))
    data = collect(measure)

    def value(panel, what, x="1 x 128"):
        return data[(data.panel == panel) & (data.what == what) & (data.x == x)].value.item()

    assert value("decode, float32", "full") == pytest.approx(85)
    assert value("file, decode, bfloat16", "cold", "16 x 128") == pytest.approx(200)
    assert value("bytes, float32", "third") == pytest.approx(94)
    assert value("bound, float32", "product") == pytest.approx(100 * (450 / 5) / (500 / 4))
    assert value("bound, float32", "hugging-face") == pytest.approx(100 * (1000 / 11) / (500 / 4))
    figure = draw(data, measure)
    assert "a processor, 2 threads, 2026-11-28" in figure.get_suptitle()
