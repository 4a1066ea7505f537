"""How far a dense model of STEM full's size, its tables counted, is below STEM full, by the tokens of the training."""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from stemrepro.config.address import MAIN, Address
from stemrepro.config.arm import run_settings
from stemrepro.measures.losses import arm_losses, contrast
from stemrepro.measures.scores import Scores
from stemrepro.model.cost import flops_per_token, parameter_counts
from stemrepro.report.results import mean_row, pick
from stemrepro.report.style import ARM_COLOUR, BETTER, LESS, PLAIN, draw_means, headline, look, note, sheet
from stemrepro.verdicts.effect import Effect

ARMS = ("stem-full", "dense-equal-size")
NAMES = dict(zip(ARMS, ("STEM full", "dense of its size"), strict=True))
HEADLINE = (
    "A dense model as large as STEM full, its tables counted, ends with a lower loss,\n"
    "for {:.1f} times the FLOPs (after {} tokens per parameter of plain dense)"
)


def collect(scores: Scores) -> pd.DataFrame:
    """Return the losses on prose of both arms and how far dense is below STEM, against tokens a parameter of dense."""
    rows, recipe = [], scores.recipe
    dense, _ = run_settings(
        Address(MAIN, "dense"), scores.catalog.arms["dense"], scores.catalog.variant(MAIN), scores.scale
    )
    for variant in dict.fromkeys([*recipe.variants, recipe.compare_at]):
        tokens = scores.catalog.variant(variant).at(scores.scale).training.tokens
        x, losses = tokens / parameter_counts(dense)["total"], [arm_losses(scores, arm, variant) for arm in ARMS]
        for arm, one in zip(ARMS, losses, strict=True):
            rows.append(mean_row("loss", arm, x, Effect(one.loss("prose").to_numpy())))
        below = contrast(*losses, "prose")
        rows.append(mean_row("below", ARMS[1], x, below))
        rows += [{"panel": "seeds", "what": ARMS[1], "x": x, "value": value} for value in below.differences]
    models = [
        run_settings(Address(MAIN, arm), scores.catalog.arms[arm], scores.catalog.variant(MAIN), scores.scale)[0]
        for arm in ARMS
    ]
    stem, larger = (flops_per_token(model, scores.scale.model.sequence) for model in models)
    rows.append({"panel": "FLOPs over STEM full's", "what": ARMS[1], "value": larger / stem})
    return pd.DataFrame(rows)


def places(rows: pd.DataFrame) -> pd.Series:
    """Return where rows stand on the axis of budgets, which are one step apart."""
    return rows["x"].astype(float).rank(method="dense") - 1


def draw_losses(axes: Axes, data: pd.DataFrame) -> None:
    """Draw the mean losses of both arms by budget, with their names and numbers at the first."""
    for arm, above in zip(ARMS, (-17, 17), strict=True):
        rows = pick(data, panel="loss", what=arm)
        draw_means(axes, places(rows), rows, sideways=True, **look(arm, joined=False))
        words = f"{NAMES[arm]}\n{rows['value'].iloc[0]:.2f}"
        note(axes, words, (rows["value"].iloc[0], 0), (0, above), ha="center", color=ARM_COLOUR[arm])
    axes.set_xlabel(f"{LESS}, loss on prose (nats/token)")
    axes.margins(x=0.25)


def draw_below(axes: Axes, data: pd.DataFrame) -> None:
    """Draw how far dense is below STEM: each pair of runs, and their mean with its number."""
    seeds, means = (pick(data, panel=panel) for panel in ("seeds", "below"))
    axes.plot(seeds["value"], places(seeds) + 0.22, ls="none", marker=".", ms=4, color=PLAIN)
    draw_means(axes, places(means), means, sideways=True, **look(ARMS[1], joined=False))
    for place, row in zip(places(means), means.itertuples(), strict=True):
        words = f"{row.value:.3f} ({row.ci_low:.3f} to {row.ci_high:.3f})"
        note(axes, words, (row.value, place), (-24, 12), weight="bold")
    axes.axvline(0, color="black", lw=0.6)
    axes.margins(x=0.15)
    axes.locator_params(axis="x", nbins=5)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel(f"loss below STEM full's (nats/token), {BETTER}\n(dots: single pairs of runs)")


def draw(data: pd.DataFrame, scores: Scores) -> Figure:
    """Draw the losses, and their difference, a row for each budget."""
    below = pick(data, panel="below")
    budgets = sorted(below["x"].astype(float))
    titles = {"a": "Losses", "b": "Dense of STEM full's size, its lead"}
    figure, grid = sheet("ab", 1.6 + 0.7 * len(budgets), titles, sharey=True, width_ratios=(1, 1.2))
    draw_losses(grid["a"], data)
    draw_below(grid["b"], data)
    grid["a"].set_yticks(range(len(budgets)), [f"{budget:.0f} tokens per\nparameter of dense" for budget in budgets])
    grid["a"].set_ylim(len(budgets) - 0.5, -0.6)
    (flops,) = pick(data, panel="FLOPs over STEM full's")["value"]
    message = HEADLINE.format(flops, " and ".join(f"{budget:.0f}" for budget in budgets))
    headline(figure, message, bool((below["ci_low"] > 0).all()), scores.recipe.title)
    return figure
