"""What STEM costs and saves, from the closed forms of stemrepro.model.cost: metrics of recipes/cost_model.yaml."""

from dataclasses import replace
from typing import ClassVar

from stemrepro.common.errors import UserError, unknown
from stemrepro.config.arm import Arm, shaped
from stemrepro.config.scale import Shape
from stemrepro.measures.base import Precondition
from stemrepro.measures.inputs import Inputs
from stemrepro.model.config import ModelConfig
from stemrepro.model.cost import flops_per_token, row_bytes, table_1_decode_saving
from stemrepro.verdicts.contrast import Contrast

LENGTH = 4096
"""Tokens of context for every claim; with it Table 1 gives the paper's Qwen2.5 fractions."""


def dense_and_stem(shape: Shape, placement: str) -> tuple[ModelConfig, ModelConfig]:
    """Return the two models that a cost is compared between."""
    return shaped(shape, Arm(ffn="dense", placement="none")), shaped(shape, Arm(ffn="stem", placement=placement))


def layer_saving(shape: Shape, length: int = LENGTH) -> float:
    """Return share of a replaced layer's forward FLOPs that is saved, with the shape's own grouped-query attention."""
    dense, _ = dense_and_stem(shape, "full")
    layer = (flops_per_token(dense, length) - 2 * dense.width * dense.vocab) / dense.layers
    return 2 * dense.width * dense.ffn_width / layer


def model_saving(shape: Shape, placement: str, length: int = LENGTH) -> float:
    """Return share of a model's forward FLOPs that is saved, output head included."""
    dense, stem = dense_and_stem(shape, placement)
    return 1 - flops_per_token(stem, length) / flops_per_token(dense, length)


def doubled(shape: Shape) -> tuple[float, float]:
    """By what an FFN's forward FLOPs and a token's row bytes grow when width and ffn_width double."""
    _, small = dense_and_stem(shape, "third")
    large = replace(small, width=2 * small.width, ffn_width=2 * small.ffn_width)
    compute = (large.width * large.ffn_width) / (small.width * small.ffn_width)
    return compute, row_bytes(large, 1) / row_bytes(small, 1)


class Costs:
    """Closed forms of published shapes; nothing is trained."""

    metrics: ClassVar[dict[str, str]] = {
        r"layer_saving:[a-z0-9.-]+": "percent of a replaced layer's forward FLOPs that is saved",
        r"model_saving:[a-z0-9.-]+:(third|half|full)": "percent of a model's forward FLOPs that is saved",
        r"decode_saving:[a-z0-9.-]+:\d+": "percent of a replaced layer's memory reads in decoding so many sequences",
        r"doubled:[a-z0-9.-]+:(compute|rows)": "by what FLOPs or row bytes grow when widths double",
    }
    preconditions: ClassVar[dict[str, Precondition]] = {}
    reads_text: ClassVar[bool] = False

    def __init__(self, inputs: Inputs) -> None:
        self.inputs, self.shapes = inputs, inputs.catalog.shapes

    def contrast(self, high: str, low: str, metric: str) -> Contrast:
        """No metric compares arms."""
        raise UserError(f"metric '{metric}' is a number by itself, not a contrast of arms")

    def robustness(self, high: str, low: str, metric: str) -> dict[str, Contrast]:
        """Nothing is trained."""
        return {}

    def value(self, metric: str) -> float:
        """Return the number of an exact claim; UserError for an unknown shape."""
        name, shape, *rest = metric.split(":")
        if shape not in self.shapes:
            raise unknown("shape", shape, self.shapes, "recipes/shapes.yaml")
        if name == "layer_saving":
            return 100 * layer_saving(self.shapes[shape])
        if name == "model_saving":
            return 100 * model_saving(self.shapes[shape], rest[0])
        if name == "decode_saving":
            return 100 * table_1_decode_saving(self.shapes[shape], LENGTH, int(rest[0]))
        return dict(zip(("compute", "rows"), doubled(self.shapes[shape]), strict=True))[rest[0]]

    def untestable(self, metric: str, precondition: str) -> None:
        """Closed forms have no preconditions."""

    def runs(self) -> dict:
        """None."""
        return {}
