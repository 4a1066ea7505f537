"""Tables in host memory: rows that a prefill pass brings, and modelled delays of passes and steps."""

from contextlib import suppress

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from stemrepro.measures.costs import dense_and_stem
from stemrepro.measures.offload import BYTES, HOMES, PREFILL, fetched, prefill, prefill_asked, training
from stemrepro.measures.scores import Scores
from stemrepro.measures.text import text_counts
from stemrepro.model.cost import row_bytes
from stemrepro.report.results import pick
from stemrepro.report.style import LESS, PLAIN, SMALL, headline, sheet
from stemrepro.verdicts.effect import Untested

MODELS = {"llama-3.2-1b": ("1B", PLAIN), "mobilellm-350m": ("350M", "#bdbdbd")}
LINKS = {"PCIe 4": ("h100-pcie-4", PLAIN), "PCIe 5": ("h100-pcie-5", "#bdbdbd")}
SLOWED = {
    "prefill, STEM 1/3:\nrows come ahead": (prefill, "third"),
    "prefill, STEM 1/3:\nrows come when asked for": (prefill_asked, "third"),
    "prefill, STEM full:\nrows come ahead": (prefill, "full"),
    "training, STEM 1/3:\nrows come a step ahead": (training, "third"),
}
AHEAD, _, FULL, _ = SLOWED
HEADLINE = (
    "Rows that come ahead cost a prefill almost no time with STEM 1/3's tables;\n"
    "with STEM full's {:.0f}% over PCIe 4 (modelled, not timed)"
)


def collect(scores: Scores) -> pd.DataFrame:
    """Return megabytes that a pass of both models brings by home of the tables, and slowdowns of the 1B, in percent."""
    rows, text = [], text_counts(scores)
    for model in MODELS:
        _, stem = dense_and_stem(scores.catalog.shapes[model], "third")
        for name, home in HOMES.items():
            if home.host:
                megabytes = row_bytes(stem, fetched(text, PREFILL, home), BYTES) / 1e6
                rows.append({"panel": "bytes", "what": model, "x": name, "value": megabytes})
    for link, (device, _) in LINKS.items():
        for name, (slower, placement) in SLOWED.items():
            with suppress(Untested):  # a smoke test counts too few rows for a training step
                value = slower(scores, "llama-3.2-1b", placement, device)
                rows.append({"panel": "slower", "what": link, "x": name, "value": value})
    return pd.DataFrame(rows)


def draw_bars(axes: Axes, rows: pd.DataFrame, looks: dict[str, tuple[str, str]], form: str, legend: str) -> None:
    """Draw a bar per name and kind with its number, and the kinds' names in a legend."""
    names = list(dict.fromkeys(rows["x"]))
    for place, what in enumerate(dict.fromkeys(rows["what"])):
        label, colour = looks[what]
        values = pick(rows, what=what).set_index("x").loc[names, "value"]
        bars = axes.barh(np.arange(len(names)) + 0.4 * place - 0.2, values, 0.38, color=colour, label=label)
        axes.bar_label(bars, [form.format(value) for value in values], fontsize=SMALL, padding=2)
    axes.set_yticks(range(len(names)), [name.replace(", cache", ",\ncache") for name in names], fontsize=SMALL)
    axes.invert_yaxis()
    axes.margins(x=0.2)
    axes.legend(loc=legend)


def draw(data: pd.DataFrame, scores: Scores) -> Figure:
    """Draw megabytes of rows that a prefill pass brings, and how much longer passes and steps take."""
    figure, grid = sheet("ab", 3.6, {"a": "What a prefill pass brings", "b": "Time lost over the link, 1B"})
    draw_bars(grid["a"], pick(data, panel="bytes"), MODELS, "{:.3g}", "lower right")
    grid["a"].set_xlabel("MB of rows (STEM 1/3)")
    slower = pick(data, panel="slower")
    draw_bars(
        grid["b"], slower, {link: (link, colour) for link, (_, colour) in LINKS.items()}, "{:.2g}%", "upper right"
    )
    grid["b"].set_xlabel(f"{LESS}, slower than with tables\non the device (%), modelled")
    full = pick(slower, x=FULL, what="PCIe 4")["value"].iloc[0]
    shown = bool((pick(slower, x=AHEAD)["value"] < 1).all() and full > 1)
    headline(figure, HEADLINE.format(full), shown, scores.recipe.title)
    return figure
