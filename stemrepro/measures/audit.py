"""The paper's own arithmetic: what follows from its printed numbers, without a run of ours.

A row is "table-3-350m/dense". Nothing here is random but the item error, whose discordance is assumed and stated.
Sections of the paper: Table 1 (cost), Tables 3 and 4 (accuracies, parameters, ROI), Tables 5 and 6 (long context).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np

from stemrepro.config.arm import Arm, shaped
from stemrepro.config.catalog import Catalog
from stemrepro.config.paper import Paper
from stemrepro.config.recipe import Recipe
from stemrepro.measures.base import call
from stemrepro.measures.costs import EXPERTS, dense_and_stem
from stemrepro.measures.metric import ShapeName
from stemrepro.measures.scores import Scores
from stemrepro.model.config import layers_of
from stemrepro.model.cost import parameter_counts, table_1_saving

if TYPE_CHECKING:
    import pandas as pd

EIGHT = ("arc_easy", "arc_challenge", "boolq", "piqa", "social_iqa", "hellaswag", "openbookqa", "winogrande")
SHAPE_OF = {"table-3-350m": "mobilellm-350m", "table-3-1b": "llama-3.2-1b"}
PLACEMENT_OF = {"dense": "none", "stem-third": "third", "stem-half": "half", "stem-full": "full"}
Z95 = 1.959964  # of the normal distribution


def fits(value: float, items: int, digits: int = 2) -> bool:
    """Return whether `value` percent, printed with so many digits, can be k right answers out of `items`."""
    nearest = round(value * items / 100)
    half = 0.5 * 10**-digits + 1e-9
    return any(abs(100 * k / items - value) <= half for k in (nearest - 1, nearest, nearest + 1) if 0 <= k <= items)


@cache
def chance_of_fit(items: int, digits: int = 2) -> float:
    """Return the share of all printable percentages that fit `items`: how often a number would fit by accident."""
    return len({round(100 * k / items, digits) for k in range(items + 1)}) / (100 * 10**digits + 1)


def item_error(first: np.ndarray, second: np.ndarray, items: np.ndarray, discordance: float | None) -> float:
    """Return the standard error between items, in points, of the mean difference of two models over tasks.

    A task's difference d of two right-or-wrong scores has variance (q - d^2) / N, where q is the share of items on
    which just one of the two models is right (McNemar's setting).

    Args:
        first, second: accuracies in percent [tasks].
        items: test sizes [tasks].
        discordance: q, the same for every task; None for independent models, q = p (1 - r) + r (1 - p).
    """
    p, r = first / 100, second / 100
    q = p * (1 - r) + r * (1 - p) if discordance is None else np.maximum(discordance, np.abs(p - r))
    return float(100 * np.sqrt(((q - (p - r) ** 2) / items).sum()) / len(items))


def _blocks(catalog: Catalog, recipe: Recipe) -> tuple[str, ...]:
    return tuple(catalog.paper.blocks)


def _rows(catalog: Catalog, recipe: Recipe) -> tuple[str, ...]:
    return tuple(f"{name}/{row}" for name, block in catalog.paper.blocks.items() for row in block.rows)


def _groups(catalog: Catalog, recipe: Recipe) -> set[str]:
    words = [name.split("-") for name, estimate in recipe.estimates.items() if estimate.paper]
    return {"-".join(parts[:count]) for parts in words for count in range(1, len(parts))}


Block = Annotated[str, _blocks]
Row = Annotated[str, _rows]


def _dense(row: str) -> str:
    return f"{row.partition('/')[0]}/dense"


def accuracies(paper: Paper, row: str) -> np.ndarray:
    """Return the eight accuracies of a row in percent [8]; NaN where the paper has none."""
    return np.array([paper.value(f"{row}/{task}") for task in EIGHT])


def items_of(paper: Paper, kind: str = "items") -> np.ndarray:
    """Return the sizes of the eight test sets, or `padded` to a multiple of 128 [8]."""
    return np.array([int(paper.value(f"test-sizes/{kind}/{task}")) for task in EIGHT])


def counts(catalog: Catalog, row: str) -> dict[str, int]:
    """Return the parameters of a row's model in closed form, from the published shape."""
    block, _, arm = row.partition("/")
    ffn = "dense" if arm == "dense" else "stem"
    return parameter_counts(shaped(catalog.shapes[SHAPE_OF[block]], Arm(ffn=ffn, placement=PLACEMENT_OF[arm])))


def total(catalog: Catalog, row: str, convention: Literal["tensors", "kept"]) -> float:
    """Return the total parameters in billions; by "kept" no up-projection is subtracted."""
    return counts(catalog, row)[{"tensors": "total", "kept": "paper_total"}[convention]] / 1e9


def average(scores: Scores, block: Block) -> float:
    """Largest distance of a printed average from its tasks' mean, in points."""
    paper = scores.catalog.paper
    rows = [f"{block}/{row}" for row in paper.blocks[block].rows]
    gaps = [abs(accuracies(paper, row).mean() - paper.value(f"{row}/average")) for row in rows]
    return float(np.nanmax(gaps))  # over the rows that have all eight


def roi(scores: Scores, row: Row) -> float:
    """Average accuracy per forward GFLOP relative to dense."""
    numbers, dense = scores.catalog.paper.row(row), scores.catalog.paper.row(_dense(row))
    return (numbers["average"] / numbers["gflops"]) / (dense["average"] / dense["gflops"])


def active(scores: Scores, row: Row) -> float:
    """Active parameters in billions, from the shape."""
    return counts(scores.catalog, row)["active"] / 1e9


def gflops(scores: Scores, row: Row) -> float:
    """Forward GFLOPs per token by the paper's rule."""
    return 2 * active(scores, row)


def _nearest(scores: Scores, row: str, totals: Iterable[float]) -> float:
    printed = scores.catalog.paper.value(f"{row}/total")
    return min(totals, key=lambda value: abs(value - printed))


def nearer_total(scores: Scores, row: Row) -> float:
    """Total parameters in billions by the nearer of two ways to count."""
    return _nearest(scores, row, [total(scores.catalog, row, convention) for convention in ("tensors", "kept")])


def hash_total(scores: Scores, row: Row) -> float:
    """Total parameters in billions of the nearest number of Hash-MoE layers."""
    shape = scores.catalog.shapes[SHAPE_OF[row.partition("/")[0]]]
    dense = counts(scores.catalog, _dense(row))["total"]
    layer = (EXPERTS - 1) * 3 * shape.width * shape.ffn_width
    return _nearest(scores, row, [(dense + layers * layer) / 1e9 for layers in range(1, shape.layers + 1)])


def table_spread(scores: Scores, block: Block) -> float:
    """Largest less smallest table that printed totals imply, in billions."""
    paper, layers = scores.catalog.paper, scores.catalog.shapes[SHAPE_OF[block]].layers
    dense = paper.value(f"{block}/dense/total")
    rows = [row for row in paper.blocks[block].rows if row.startswith("stem-")]
    sizes = [(paper.value(f"{block}/{row}/total") - dense) / len(layers_of(PLACEMENT_OF[row], layers)) for row in rows]
    return max(sizes) - min(sizes)


def saved(scores: Scores, shape: ShapeName) -> float:
    """Percent of a layer's multiply-adds that Table 1 says is saved."""
    return 100 * table_1_saving(dense_and_stem(scores.catalog.shapes[shape], "full")[0], 4096)


def _printed(paper: Paper, row: str, kind: str) -> list[tuple[float, int]]:
    """Return a row's accuracies, as far as the paper has them, with the sizes of their test sets."""
    pairs = zip(accuracies(paper, row).tolist(), items_of(paper, kind).tolist(), strict=True)
    return [(value, size) for value, size in pairs if not math.isnan(value)]


def _misfits(paper: Paper, row: str, kind: str) -> int:
    return sum(not fits(value, size) for value, size in _printed(paper, row, kind))


def misfits(scores: Scores, row: Row) -> int:
    """Tasks whose accuracy is no whole number of right answers."""
    return _misfits(scores.catalog.paper, row, "items")


SIZES = {"true sizes": "items", "padded sizes": "padded"}


def scorer(paper: Paper, row: str) -> str:
    """Return which item counts explain a row: "true sizes", "padded sizes" (to 128) or "neither"."""
    return next((words for words, kind in SIZES.items() if not _misfits(paper, row, kind)), "neither")


def chance(paper: Paper, row: str) -> float:
    """Return the chance that numbers from elsewhere would all fit the item counts that explain a row, or NaN."""
    kind = SIZES.get(scorer(paper, row))
    if kind is None:
        return math.nan
    return math.prod(chance_of_fit(size) for _, size in _printed(paper, row, kind))


def ffn_saved(scores: Scores) -> float:
    """Percent of a replaced FFN's multiply-adds that is saved."""
    shape = scores.catalog.shapes["llama-3.2-1b"]
    dense, stem = dense_and_stem(shape, "full")
    removed = (parameter_counts(dense)["active"] - parameter_counts(stem)["active"]) / len(stem.replaced_layers)
    return 100 * removed / (3 * shape.width * shape.ffn_width)


def flops_saved(scores: Scores, row: Row) -> float:
    """Percent of the model's printed GFLOPs that is saved."""
    printed, dense = (scores.catalog.paper.value(f"{of}/gflops") for of in (row, _dense(row)))
    return 100 * (1 - printed / dense)


def gain(scores: Scores, row: Row, without: Annotated[str, EIGHT] | None = None) -> float:
    """Average difference to dense in points.

    It is over the tasks but `without`.
    """
    kept, paper = [task != without for task in EIGHT], scores.catalog.paper
    return float((accuracies(paper, row) - accuracies(paper, _dense(row)))[kept].mean())


def task_gain(scores: Scores, row: Row, task: Annotated[str, EIGHT]) -> float:
    """Difference to dense in one task, in points."""
    paper = scores.catalog.paper
    return paper.value(f"{row}/{task}") - paper.value(f"{_dense(row)}/{task}")


def large_gains_scored_alike(scores: Scores, block: Block) -> int:
    """Gains of nine points or more in a task, of rows that the same test sizes explain as dense's.

    Nine is the least that notes on the paper give for tasks of knowledge.
    """
    paper = scores.catalog.paper
    rows = [f"{block}/{row}" for row in paper.blocks[block].rows]
    alike = [row for row in rows if scorer(paper, row) == scorer(paper, _dense(row))]
    least = paper.value("headlines/knowledge_task_gain/low")
    return int((np.array([accuracies(paper, row) - accuracies(paper, _dense(row)) for row in alike]) >= least).sum())


def within_items(scores: Scores, block: Block) -> int:
    """1 where a gain is within what other items might have given.

    It is the mean gain of STEM 1/3, and the 95% half width of two unrelated models.
    """
    paper = scores.catalog.paper
    first, second = accuracies(paper, f"{block}/stem-third"), accuracies(paper, f"{block}/dense")
    return int(gain(scores, f"{block}/stem-third") <= Z95 * item_error(first, second, items_of(paper), None))


def shrinks(scores: Scores, block: Block, prefix: Literal["multihop", "code", ""] = "") -> int:
    """How often the lead gets smaller with length."""
    stem, dense = (scores.catalog.paper.row(f"{block}/{arm}") for arm in ("stem-third", "dense"))
    lead = [stem[column] - dense[column] for column in stem if column.startswith(prefix)]
    return int((np.diff(lead) < 0).sum())


def below_majority(scores: Scores, block: Block) -> int:
    """BoolQ cells below the most frequent answer."""
    paper, value = scores.catalog.paper, scores.catalog.paper.value
    most = 100 * value("test-sizes/most_frequent_answer/boolq") / value("test-sizes/items/boolq")
    return sum(value(f"{block}/{row}/boolq") < most for row in paper.blocks[block].rows)


def deviating(scores: Scores, group: Annotated[str, _groups]) -> int:
    """Estimates whose names begin so and that aren't what is printed; a slip of the last digit doesn't count."""
    members = [one for name, one in scores.recipe.estimates.items() if name.startswith(f"{group}-")]
    values = [call(one.metric, scores.catalog, scores.recipe).value(scores) for one in members]
    return sum(one.deviates(value) and not one.slips(value) for one, value in zip(members, values, strict=True))


def granularity(paper: Paper) -> pd.DataFrame:
    """Return every accuracy of Tables 3 and 4, and whether it fits the true and the padded test size, by chance too."""
    import pandas as pd

    rows, sizes = [], [items_of(paper, kind) for kind in SIZES.values()]
    for block in ("table-3-350m", "table-3-1b", "table-4"):
        for row in paper.blocks[block].rows:
            for task, value, size, padded in zip(EIGHT, accuracies(paper, f"{block}/{row}"), *sizes, strict=True):
                if math.isnan(value):
                    continue
                both = {"items": size, "padded": padded}
                cell = {"block": block, "row": row, "task": task, "value": value} | both
                cell |= {f"right_of_{name}": round(value * count / 100, 4) for name, count in both.items()}
                cell |= {f"fits_{name}": fits(value, count) for name, count in both.items()}
                rows.append(cell | {f"chance_{name}": chance_of_fit(count) for name, count in both.items()})
    return pd.DataFrame(rows)
