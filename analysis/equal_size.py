"""How far a dense model of STEM full's size, its tables counted, is below STEM full, by the tokens of the training."""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from stemrepro.config.address import MAIN, Address
from stemrepro.config.arm import run_settings
from stemrepro.measures.losses import arm_losses, contrast
from stemrepro.measures.scores import Scores
from stemrepro.model.cost import parameter_counts
from stemrepro.report.results import mean_row, pick
from stemrepro.report.style import ARM_LABEL, BETTER, PLAIN, SMALLEST, draw_means, look, sheet
from stemrepro.verdicts.effect import Effect

ARMS = ("stem-full", "dense-equal-size")


def collect(scores: Scores) -> pd.DataFrame:
    """Return the losses on prose of both arms and how far dense is below STEM, against tokens a parameter of dense."""
    rows, recipe = [], scores.recipe
    dense, _ = run_settings(
        Address(MAIN, "dense"), scores.catalog.arms["dense"], scores.catalog.variant(MAIN), scores.scale
    )
    for variant in recipe.variants:
        tokens = scores.catalog.variant(variant).at(scores.scale).training.tokens
        x, losses = tokens / parameter_counts(dense)["total"], [arm_losses(scores, arm, variant) for arm in ARMS]
        for arm, one in zip(ARMS, losses, strict=True):
            rows.append(mean_row("loss", arm, x, Effect(one.loss("prose").to_numpy())))
        below = contrast(*losses, "prose")
        rows.append(mean_row("below", ARMS[1], x, below))
        rows += [{"panel": "seeds", "what": ARMS[1], "x": x, "value": value} for value in below.differences]
    return pd.DataFrame(rows)


def places(rows: pd.DataFrame) -> pd.Series:
    """Return where rows stand on the axis of budgets, which are one step apart."""
    return rows["x"].rank(method="dense") - 1


def draw_losses(axes: Axes, data: pd.DataFrame) -> None:
    """Draw the mean loss of both arms against the tokens."""
    for arm in ARMS:
        rows = pick(data, panel="loss", what=arm)
        draw_means(axes, places(rows), rows, **look(arm), label=ARM_LABEL[arm])
    axes.set(ylabel="loss on prose\n(nats per token)")
    axes.legend(fontsize=SMALLEST)


def draw_below(axes: Axes, data: pd.DataFrame) -> None:
    """Draw how far dense is below STEM: each pair of runs, and their mean."""
    seeds, means = (pick(data, panel=panel) for panel in ("seeds", "below"))
    axes.plot(places(seeds), seeds["value"], ls="none", marker=".", ms=3, color=PLAIN, label="a pair of runs")
    draw_means(axes, places(means) + 0.1, means, **look(ARMS[1]), label="mean, 95% interval")
    axes.axhline(0, color="black", lw=0.6)
    axes.set(ylabel=f"loss below STEM full's\n(nats per token), {BETTER}")
    axes.legend(fontsize=SMALLEST, loc="upper left")


def draw(data: pd.DataFrame, scores: Scores) -> Figure:
    """Draw the losses, and their difference."""
    figure, grid = sheet("ab", 2.8, {"a": "Losses", "b": "Dense below STEM full"})
    draw_losses(grid["a"], data)
    draw_below(grid["b"], data)
    budgets = sorted(set(pick(data, panel="below")["x"]))
    for axes in grid.values():
        axes.set_xticks(range(len(budgets)), [f"{budget:.0f}" for budget in budgets])
        axes.set_xlim(-0.5, len(budgets) - 0.5)
        axes.set_xlabel("tokens per parameter of dense")
    return figure
