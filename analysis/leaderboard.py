"""Which memory is ahead, on each track: leads with intervals and ranks, and against the parameters that they cost."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from stemrepro.measures.leaderboard import Leaderboard
from stemrepro.report.forest import draw_forest, name_rows
from stemrepro.report.results import mean_row
from stemrepro.report.style import ARM_COLOUR, ARM_LABEL, ARM_MARKER, SMALLEST, error_bars, sheet

LEAD = "loss below dense's (% of its bits), better →"


def collect(measure: Leaderboard) -> pd.DataFrame:
    """Return lead, rank and chance of each arm on each track, with its parameters, FLOPs and table bytes a token."""
    rows = []
    for variant, track in measure.tracks().items():
        for place in measure.standings(variant):
            summary, dense = (measure.losses(arm, variant).summary for arm in (place.arm, "dense"))
            rows.append(mean_row(f"lead, {track}", place.arm, "", place.lead))
            numbers = {
                "rank": place.rank, "best rank": place.best, "worst rank": place.worst,
                "ahead of the next": place.ahead,
                "parameters": summary["parameters"]["total"] / dense["parameters"]["total"],
                "tables": summary["parameters"]["tables"] / dense["parameters"]["total"],
                "FLOPs": summary["forward_flops_per_token"] / dense["forward_flops_per_token"],
            }  # fmt: skip
            rows += [
                {"panel": f"{what}, {track}", "what": place.arm, "value": value}
                for what, value in numbers.items() if not np.isnan(value)
            ]  # fmt: skip
    return pd.DataFrame(rows)


def draw_sizes(axes: Axes, leads: pd.DataFrame, sizes: pd.Series) -> None:
    """Draw leads against all parameters; each arm has its own marker, and its name next to it."""
    for _, row in leads.iterrows():
        arm = row["what"]
        axes.errorbar(
            sizes[arm], row["value"], yerr=error_bars(row)[:, None], color=ARM_COLOUR[arm], marker=ARM_MARKER[arm]
        )
        axes.annotate(
            ARM_LABEL[arm].removeprefix("STEM, ").removesuffix(" (control)"), (sizes[arm], row["value"]), (5, 4),
            textcoords="offset points", fontsize=SMALLEST, color=ARM_COLOUR[arm],
        )  # fmt: skip
    axes.axhline(0, color="black", lw=0.6)
    axes.set_xscale("log", base=2)
    ticks = [1, 2, 4, 8]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.set(xlabel="all parameters / dense's", ylabel=LEAD)


def draw(data: pd.DataFrame, measure: Leaderboard) -> Figure:
    """Draw the leads at equal FLOPs with the ranks that they leave, and against parameters."""
    track = measure.tracks()[None]
    leads = data[data["panel"] == f"lead, {track}"].sort_values("value", ascending=False)
    values = data.set_index(["panel", "what"])["value"]
    order = list(leads["what"])
    figure, grid = sheet("ab", 5.6, {"a": "Lead at equal FLOPs", "b": "By size"})
    draw_forest(grid["a"], leads, order, LEAD)
    name_rows(grid["a"], order)
    for place, arm in enumerate(order):
        best, worst = (int(values[f"{which} rank, {track}", arm]) for which in ("best", "worst"))
        grid["a"].annotate(
            f"{best}" if best == worst else f"{best}-{worst}", (1.0, place), (4, 0), xycoords=("axes fraction", "data"),
            textcoords="offset points", va="center", fontsize=SMALLEST,
        )  # fmt: skip
    above = {"xycoords": "axes fraction", "textcoords": "offset points", "fontsize": SMALLEST}
    grid["a"].annotate("rank", (1.0, 1.0), (4, 2), **above)
    draw_sizes(grid["b"], leads, values[f"parameters, {track}"])
    return figure
