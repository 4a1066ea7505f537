"""What STEM costs and saves, from the closed forms of stemrepro.model.cost: metrics of recipes/cost_model.yaml."""

from dataclasses import replace
from typing import ClassVar

from stemrepro.config.arm import Arm, shaped
from stemrepro.config.scale import Shape
from stemrepro.measures.base import Measure
from stemrepro.measures.metric import WHOLE, Field, metric
from stemrepro.model.config import ModelConfig
from stemrepro.model.cost import flops_per_token, row_bytes, table_1_decode_saving

PLACEMENTS = ("third", "half", "full")
LENGTH = 4096
"""Tokens of context for every claim. With it Table 1 gives the paper's Qwen2.5 fractions."""


def dense_and_stem(shape: Shape, placement: str) -> tuple[ModelConfig, ModelConfig]:
    """Return the two models that a cost is compared between."""
    return shaped(shape, Arm(ffn="dense", placement="none")), shaped(shape, Arm(ffn="stem", placement=placement))


def layer_saving(shape: Shape, length: int = LENGTH) -> float:
    """Return the share of a replaced layer's forward FLOPs that is saved, with the shape's grouped-query attention."""
    dense, _ = dense_and_stem(shape, "full")
    layer = (flops_per_token(dense, length) - 2 * dense.width * dense.vocab) / dense.layers
    return 2 * dense.width * dense.ffn_width / layer


def model_saving(shape: Shape, placement: str, length: int = LENGTH) -> float:
    """Return the share of a model's forward FLOPs that is saved, output head included."""
    dense, stem = dense_and_stem(shape, placement)
    return 1 - flops_per_token(stem, length) / flops_per_token(dense, length)


def doubled(shape: Shape) -> tuple[float, float]:
    """Return how many times an FFN's forward FLOPs and a token's row bytes grow when width and ffn_width double."""
    _, small = dense_and_stem(shape, "third")
    large = replace(small, width=2 * small.width, ffn_width=2 * small.ffn_width)
    compute = (large.width * large.ffn_width) / (small.width * small.ffn_width)
    return compute, row_bytes(large, 1) / row_bytes(small, 1)


class Costs(Measure):
    """Closed forms of published shapes; nothing is trained."""

    fields: ClassVar[dict[str, Field]] = {"placement": PLACEMENTS, "sequences": WHOLE, "what": ("compute", "rows")}

    @metric("layer_saving:{shape}", "percent of a replaced layer's forward FLOPs that is saved", exact=True)
    def layer_saving(self, shape: Shape) -> float:
        """Return the percentage at LENGTH tokens of context."""
        return 100 * layer_saving(shape)

    @metric("model_saving:{shape}:{placement}", "percent of a model's forward FLOPs that is saved", exact=True)
    def model_saving(self, shape: Shape, placement: str) -> float:
        """Return the percentage at LENGTH tokens of context."""
        return 100 * model_saving(shape, placement)

    @metric(
        "decode_saving:{shape}:{sequences}",
        "percent of a replaced layer's memory reads in decoding so many sequences",
        exact=True,
    )
    def decode_saving(self, shape: Shape, sequences: int) -> float:
        """Return the percentage at LENGTH tokens of context."""
        return 100 * table_1_decode_saving(shape, LENGTH, sequences)

    @metric("doubled:{shape}:{what}", "by what FLOPs or row bytes grow when widths double", exact=True)
    def doubled(self, shape: Shape, what: str) -> float:
        """Return the factor."""
        compute, rows = doubled(shape)
        return compute if what == "compute" else rows
