"""What figures of sweeps show, read off their lines."""

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex

from stemrepro.report.style import plt, use_style
from stemrepro.sweeps.best import best_settings, edges, importances
from stemrepro.sweeps.figures import AT_END, importances_figure, parallel_figure, rate_figure, slices_figure
from stemrepro.sweeps.results import figures
from stemrepro.sweeps.spec import Range, Sweep

SPACE = {
    "arm": ("dense", "stem"),
    "learning_rate": (0.01, 0.02, 0.04),
    "table_rate_factor": (0.5, 2.0),
    "table_decay_factor": (0.0, 1.0),
    "seed": (0, 1),
}


@pytest.fixture(autouse=True)
def style(catalog):
    use_style(catalog.arms)
    yield
    plt.close("all")


@pytest.fixture
def table():
    """Two fields and the learning rate. The best of STEM is inside the grid's rates, dense's at an end."""
    rows = []
    for seed, rate in ((s, r) for s in (0, 1) for r in SPACE["learning_rate"]):
        rows.append(("dense", rate, 1.0, 1.0, seed, 5 - rate + seed / 100))
        for factor, decay in ((f, d) for f in (0.5, 2.0) for d in (0.0, 1.0)):
            rows.append(
                ("stem", rate, factor, decay, seed, 4 + abs(rate - 0.02) + factor / 10 + decay / 7 + seed / 100)
            )
    columns = ["arm", "learning_rate", "table_rate_factor", "table_decay_factor", "seed", "prose"]
    return pd.DataFrame(rows, columns=columns).assign(state="complete")


def lines(axes):
    return [line for line in axes.lines if line.get_linestyle() == "-" and len(line.get_xdata()) > 1]


def rings(axes):
    return [line for line in axes.lines if line.get_markerfacecolor() == "none" and line.get_markersize() == 7]


def test_a_best_is_a_corner_of_one_of_its_arms_lines(table):
    """Also where more than one field besides the learning rate was varied."""
    figure = rate_figure(table, edges(table, SPACE))
    shown = {axes.get_title(loc="left"): axes for axes in figure.axes if axes.get_visible()}
    best = best_settings(table).set_index("arm")
    assert len(lines(shown["stem"])) == 1 + 4  # dense, and a line a setting
    for arm, axes in shown.items():
        (ring,) = rings(axes)
        place = ring.get_xdata()[0], ring.get_ydata()[0]
        assert place == pytest.approx(tuple(best.loc[arm, ["learning_rate", "prose"]]))
        corners = [
            corner for line in lines(axes)[1:] for corner in zip(line.get_xdata(), line.get_ydata(), strict=True)
        ]
        assert any(corner == pytest.approx(place) for corner in corners)


def test_a_best_at_an_end_is_orange_and_the_footer_says_so(table):
    figure = rate_figure(table[["arm", "learning_rate", "seed", "prose", "state"]], edges(table, SPACE))
    colours = {
        axes.get_title(loc="left"): to_hex(rings(axes)[0].get_markeredgecolor())
        for axes in figure.axes
        if axes.get_visible()
    }
    assert colours["dense"] == AT_END
    assert "orange: best at an end of the grid" in [text.get_text() for text in figure.texts][-1]
    inside = table[table["table_rate_factor"] < 2].query("table_decay_factor < 1")
    figure = rate_figure(inside, edges(inside, SPACE))
    assert not any("orange" in text.get_text() for text in figure.texts)
    assert {to_hex(rings(axes)[0].get_markeredgecolor()) for axes in figure.axes if axes.get_visible()} == {"#000000"}


def test_an_open_searchs_best_at_an_end_is_orange_in_that_field_alone():
    rows = [("dense", 0.01 + n / 100, n / 10, 100, 5 - n / 10) for n in range(10)]
    table = pd.DataFrame(rows, columns=["arm", "learning_rate", "warmup", "seed", "prose"]).assign(state="complete")
    space = {"learning_rate": Range(low=0.001, high=1), "warmup": Range(low=0, high=0.9)}
    figure = slices_figure(table, list(space), edges(table, space))
    assert [to_hex(rings(axes)[0].get_markeredgecolor()) for axes in figure.axes] == ["#000000", AT_END]


def test_parallel_coordinates_lead_each_setting_to_its_loss(table):
    """STEM's lines cross at the places of their values; dense has one field and no panel."""
    figure = parallel_figure(table, SPACE)
    (axes,) = figure.axes
    assert axes.get_title(loc="left") == "stem"
    assert [tick.get_text() for tick in axes.get_xticklabels()][-1] == "loss"
    drawn = [line for line in axes.lines if len(line.get_xdata()) == 4]
    assert len(drawn) == 3 * 2 * 2
    (best,) = [line for line in drawn if to_hex(line.get_color()) == AT_END]
    assert best.get_ydata() == pytest.approx(
        [0.5, 0.0, 0.0, 0.0]
    )  # rate 0.02 of three, lower factor, lower decay, lowest loss
    heights = np.array([line.get_ydata() for line in drawn])
    losses = table[table["arm"] == "stem"].groupby(list(SPACE)[1:4])["prose"].mean()
    expected = (losses - losses.min()) / (losses.max() - losses.min())
    assert sorted(heights[:, -1]) == pytest.approx(sorted(expected))


def test_importances_are_written_into_their_cells(table):
    shares = importances(table, SPACE)
    written = [float(text.get_text()) for text in importances_figure(shares).axes[0].texts]
    assert written == pytest.approx(shares["importance"].to_list(), abs=0.006)


def test_a_grid_of_one_field_has_one_figure_and_of_more_all_three(table):
    sweep = Sweep(title="t", sampler="grid", space=SPACE)
    assert set(figures(sweep, table)) == {"figure", "parallel", "importances"}
    assert set(figures(sweep, table[table["arm"] == "dense"])) == {"figure"}
