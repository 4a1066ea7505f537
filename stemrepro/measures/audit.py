"""The paper's own arithmetic: what follows from its printed numbers, without a run of ours.

Nothing here is random but the item error, whose discordance is assumed and stated. Sections of the paper: Table 1
(cost), Tables 3 and 4 (accuracies, parameters, ROI), Tables 5 and 6 (long context).
"""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from stemrepro.config.arm import Arm, shaped
from stemrepro.config.catalog import Catalog
from stemrepro.config.paper import Paper
from stemrepro.config.recipe import Recipe
from stemrepro.config.scale import Shape
from stemrepro.measures.base import Measure
from stemrepro.measures.metric import Field, metric
from stemrepro.model.config import layers_of
from stemrepro.model.cost import parameter_counts, table_1_saving

if TYPE_CHECKING:
    import pandas as pd

EIGHT = ("arc_easy", "arc_challenge", "boolq", "piqa", "social_iqa", "hellaswag", "openbookqa", "winogrande")
SHAPE_OF = {"table-3-350m": "mobilellm-350m", "table-3-1b": "llama-3.2-1b"}
PLACEMENT_OF = {"dense": "none", "stem-third": "third", "stem-half": "half", "stem-full": "full"}
HASH_EXPERTS = 16
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


def _rows(catalog: Catalog, recipe: Recipe) -> tuple[str, ...]:
    return tuple(f"{name}/{row}" for name, block in catalog.paper.blocks.items() for row in block.rows)


def _groups(catalog: Catalog, recipe: Recipe) -> set[str]:
    words = [name.split("-") for name, estimate in recipe.estimates.items() if estimate.paper]
    return {"-".join(parts[:count]) for parts in words for count in range(1, len(parts))}


class PaperAudit(Measure):
    """Quantities that follow from the paper's printed numbers and published shapes; a row is "table-3-350m/dense"."""

    fields: ClassVar[dict[str, Field]] = {
        "block": lambda catalog, recipe: tuple(catalog.paper.blocks),
        "row": _rows,
        "without": {f"without {task}": task for task in EIGHT},
        "prefix": ("multihop", "code", ""),
        "group": _groups,
    }

    @property
    def paper(self) -> Paper:
        return self.inputs.catalog.paper

    @property
    def shapes(self) -> dict[str, Shape]:
        return self.inputs.catalog.shapes

    def accuracies(self, row: str) -> np.ndarray:
        """Return the eight accuracies of a row, "table-3-350m/dense", in percent [8]; NaN where the paper has none."""
        return np.array([self.paper.value(f"{row}/{task}") for task in EIGHT])

    def items(self, kind: str = "items") -> np.ndarray:
        """Return the sizes of the eight test sets, or `padded` to a multiple of 128 [8]."""
        return np.array([int(self.paper.value(f"test-sizes/{kind}/{task}")) for task in EIGHT])

    @metric("average:{block}", "largest distance of a printed average from its tasks' mean, in points", exact=True)
    def average_deviation(self, block: str) -> float:
        rows = [f"{block}/{row}" for row in self.paper.blocks[block].rows]
        gaps = [abs(self.accuracies(row).mean() - self.paper.value(f"{row}/average")) for row in rows]
        return float(np.nanmax(gaps))  # over the rows that have all eight

    @metric("roi:{row}", "average accuracy per forward GFLOP relative to dense", exact=True)
    def roi(self, row: str) -> float:
        block = row.split("/")[0]
        numbers, dense = self.paper.row(row), self.paper.row(f"{block}/dense")
        return (numbers["average"] / numbers["gflops"]) / (dense["average"] / dense["gflops"])

    def counts(self, row: str) -> dict[str, int]:
        """Return the parameters of a row's model in closed form, from the published shape."""
        block, _, arm = row.partition("/")
        ffn = "dense" if arm == "dense" else "stem"
        return parameter_counts(shaped(self.shapes[SHAPE_OF[block]], Arm(ffn=ffn, placement=PLACEMENT_OF[arm])))

    @metric("active:{row}", "active parameters in billions, from the shape", exact=True)
    def active(self, row: str) -> float:
        return self.counts(row)["active"] / 1e9

    @metric("gflops:{row}", "forward GFLOPs per token by the paper's rule", exact=True)
    def gflops(self, row: str) -> float:
        return 2 * self.active(row)

    def total(self, row: str, convention: Literal["tensors", "kept"]) -> float:
        """Return the total parameters in billions; by "kept" no up-projection is subtracted."""
        return self.counts(row)[{"tensors": "total", "kept": "paper_total"}[convention]] / 1e9

    @metric("nearer_total:{row}", "total parameters in billions by the nearer of two ways to count", exact=True)
    def nearer_total(self, row: str) -> float:
        ways = [self.total(row, convention) for convention in ("tensors", "kept")]
        return min(ways, key=lambda value: abs(value - self.paper.value(f"{row}/total")))

    def hash_totals(self, row: str) -> dict[int, float]:
        """Return the total parameters in billions of Hash-MoE with 16 experts, by the number of its MoE layers."""
        shape = self.shapes[SHAPE_OF[row.split("/")[0]]]
        expert = 3 * shape.width * shape.ffn_width
        dense = self.counts(row.replace("hash-moe", "dense"))["total"]
        return {layers: (dense + layers * (HASH_EXPERTS - 1) * expert) / 1e9 for layers in range(1, shape.layers + 1)}

    @metric("hash_total:{row}", "total parameters in billions of the nearest number of Hash-MoE layers", exact=True)
    def hash_total(self, row: str) -> float:
        return min(self.hash_totals(row).values(), key=lambda value: abs(value - self.paper.value(f"{row}/total")))

    @metric("table_spread:{block}", "largest less smallest table that printed totals imply, in billions", exact=True)
    def table_spread(self, block: str) -> float:
        layers = self.shapes[SHAPE_OF[block]].layers
        dense = self.paper.value(f"{block}/dense/total")
        rows = [row for row in self.paper.blocks[block].rows if row.startswith("stem-")]
        more = {row: self.paper.value(f"{block}/{row}/total") - dense for row in rows}
        sizes = [total / len(layers_of(PLACEMENT_OF[row], layers)) for row, total in more.items()]
        return max(sizes) - min(sizes)

    @metric("saved:{shape}", "percent of a layer's multiply-adds that Table 1 says is saved", exact=True)
    def saved(self, shape: Shape) -> float:
        return 100 * table_1_saving(shape, 4096)

    @metric("misfits:{row}", "tasks whose accuracy is no whole number of right answers", exact=True)
    def misfits(self, row: str, kind: str = "items") -> int:
        pairs = zip(self.accuracies(row), self.items(kind), strict=True)
        return sum(not math.isnan(value) and not fits(value, size) for value, size in pairs)

    def scorer(self, row: str) -> str:
        """Return which item counts explain a row: "true sizes", "padded sizes" (to 128) or "neither"."""
        sizes = {"true sizes": "items", "padded sizes": "padded"}
        return next((words for words, kind in sizes.items() if not self.misfits(row, kind)), "neither")

    def chance(self, row: str) -> float:
        """Return the chance that numbers from elsewhere would all fit the item counts that explain a row, or NaN."""
        kind = {"true sizes": "items", "padded sizes": "padded"}.get(self.scorer(row))
        if kind is None:
            return math.nan
        pairs = zip(self.accuracies(row), self.items(kind), strict=True)
        return math.prod(chance_of_fit(int(size)) for value, size in pairs if not math.isnan(value))

    @metric("ffn_saved:", "percent of a replaced FFN's multiply-adds that is saved", exact=True)
    def ffn_saved(self) -> float:
        shape = self.shapes["llama-3.2-1b"]
        dense, stem = (shaped(shape, Arm(ffn=f, placement=p)) for f, p in (("dense", "none"), ("stem", "full")))
        matrix = shape.width * shape.ffn_width
        removed = (parameter_counts(dense)["active"] - parameter_counts(stem)["active"]) / len(stem.replaced_layers)
        return 100 * removed / (3 * matrix)

    @metric("flops_saved:{row}", "percent of the model's printed GFLOPs that is saved", exact=True)
    def flops_saved(self, row: str) -> float:
        return 100 * (1 - self.paper.value(f"{row}/gflops") / self.paper.value(f"{row.split('/')[0]}/dense/gflops"))

    @metric("gain:{row}[:{without}]", "average difference to dense in points", exact=True)
    def gain(self, row: str, without: str | None = None) -> float:
        kept = [task != without for task in EIGHT]
        return float((self.accuracies(row) - self.accuracies(f"{row.split('/')[0]}/dense"))[kept].mean())

    @metric("within_items:{block}", "1 where a gain is within what other items might have given", exact=True)
    def within_items(self, block: str) -> int:
        """Return 1 where the mean gain of STEM 1/3 is within the 95% half width of two unrelated models, else 0."""
        first, second = self.accuracies(f"{block}/stem-third"), self.accuracies(f"{block}/dense")
        return int((first - second).mean() <= Z95 * item_error(first, second, self.items(), None))

    @metric("shrinks:{block}:{prefix}", "how often the lead gets smaller with length", exact=True)
    def shrinks(self, block: str, prefix: str) -> int:
        stem, dense = self.paper.row(f"{block}/stem-third"), self.paper.row(f"{block}/dense")
        lead = [stem[column] - dense[column] for column in stem if column.startswith(prefix)]
        return int((np.diff(lead) < 0).sum())

    @metric("below_majority:{block}", "BoolQ cells below the most frequent answer", exact=True)
    def below_majority(self, block: str) -> int:
        value = self.paper.value
        most = 100 * value("test-sizes/most_frequent_answer/boolq") / value("test-sizes/items/boolq")
        return sum(value(f"{block}/{row}/boolq") < most for row in self.paper.blocks[block].rows)

    @metric(
        "deviating:{group}",
        "estimates whose names begin so and that aren't what is printed; a slip of the last digit doesn't count",
        exact=True,
    )
    def deviating(self, group: str) -> int:
        members = [one for name, one in self.inputs.recipe.estimates.items() if name.startswith(f"{group}-")]
        values = {one: self.value(one.metric) for one in members}
        return sum(one.deviates(value) and not one.slips(value) for one, value in values.items())


def granularity(audit: PaperAudit) -> pd.DataFrame:
    """Return every accuracy of Tables 3 and 4, and whether it fits the true and the padded test size, by chance too."""
    import pandas as pd

    rows = []
    for block in ("table-3-350m", "table-3-1b", "table-4"):
        for row in audit.paper.blocks[block].rows:
            cells = zip(EIGHT, audit.accuracies(f"{block}/{row}"), audit.items(), audit.items("padded"), strict=True)
            for task, value, size, padded in cells:
                if not math.isnan(value):
                    rows.append({
                        "block": block, "row": row, "task": task, "value": value, "items": size, "padded": padded,
                        "right_of_items": round(value * size / 100, 4),
                        "right_of_padded": round(value * padded / 100, 4),
                        "fits_items": fits(value, size), "fits_padded": fits(value, padded),
                        "chance_items": chance_of_fit(size), "chance_padded": chance_of_fit(padded),
                    })  # fmt: skip
    return pd.DataFrame(rows)
