"""What STEM costs and saves, from the closed forms of stemrepro.model.cost: metrics of recipes/cost_model.yaml."""

from dataclasses import replace
from typing import ClassVar

from stemrepro.config.arm import Arm, shaped
from stemrepro.config.scale import Shape
from stemrepro.measures.base import Measure
from stemrepro.measures.metric import WHOLE, Field, metric
from stemrepro.model.config import ModelConfig
from stemrepro.model.cost import expected_distinct, flops_per_token, row_bytes, table_1_decode_saving
from stemrepro.model.traffic import expert_bytes, fsdp_bytes, step_of, width_bytes

PLACEMENTS = ("third", "half", "full")
LENGTH = 4096
"""Tokens of context for every claim. With it Table 1 gives the paper's Qwen2.5 fractions."""
RANKS = (8, 64, 512)
SEQUENCES, MICRO_BATCH = 512, 8
"""Sequences of a step (the paper's), and the most that a rank takes in one pass (chosen)."""
EXPERTS = 16
"""The paper's Hash-MoE has as many in a layer, of which a token uses one."""
STEMS, RIVALS = ("inside-fsdp", "every-token", "distinct"), ("dense", "moe")
"""Models whose traffic is compared: STEM by where its tables are and which rows move, and what it is held against."""


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


def traffic(shape: Shape, model: str, ranks: int, placement: str = "third") -> float:
    """Return the bytes (of bfloat16) that each of so many ranks receives in a training step of one of STEMS or RIVALS.

    The distinct tokens of a pass are those of Zipf's law; text has fewer.
    """
    step = step_of(SEQUENCES, LENGTH, ranks, MICRO_BATCH)
    dense, stem = dense_and_stem(shape, placement)
    if model == "moe":
        return expert_bytes(shaped(shape, Arm(ffn="hash-moe", placement=placement, experts=EXPERTS)), step)
    if model in ("dense", "inside-fsdp"):
        return fsdp_bytes(dense if model == "dense" else stem, step)
    rows = step.tokens if model == "every-token" else expected_distinct(step.tokens, stem.vocab)
    return width_bytes(stem, step, rows)


class Costs(Measure):
    """Closed forms of published shapes; nothing is trained."""

    fields: ClassVar[dict[str, Field]] = {
        "placement": PLACEMENTS, "sequences": WHOLE, "what": ("compute", "rows"), "stem": STEMS, "rival": RIVALS,
        "ranks": {str(ranks): ranks for ranks in RANKS},
    }  # fmt: skip

    @metric("layer_saving:{shape}", "percent of a replaced layer's forward FLOPs that is saved", exact=True)
    def layer_saving(self, shape: Shape) -> float:
        return 100 * layer_saving(shape)

    @metric("model_saving:{shape}:{placement}", "percent of a model's forward FLOPs that is saved", exact=True)
    def model_saving(self, shape: Shape, placement: str) -> float:
        return 100 * model_saving(shape, placement)

    @metric("decode_saving:{shape}:{sequences}", "percent of a layer's reads in decoding so many", exact=True)
    def decode_saving(self, shape: Shape, sequences: int) -> float:
        return 100 * table_1_decode_saving(shape, LENGTH, sequences)

    @metric("doubled:{shape}:{what}", "by what FLOPs or row bytes grow when widths double", exact=True)
    def doubled(self, shape: Shape, what: str) -> float:
        compute, rows = doubled(shape)
        return compute if what == "compute" else rows

    @metric(
        "more_traffic:{shape}:{stem}:{rival}",
        f"how often, on {', '.join(map(str, RANKS))} ranks, each receives more in a step of STEM 1/3 than of the rival",
        exact=True,
    )
    def more_traffic(self, shape: Shape, stem: str, rival: str) -> int:
        return sum(traffic(shape, stem, ranks) > traffic(shape, rival, ranks) for ranks in RANKS)

    @metric(
        "traffic_of_tables:{shape}:{ranks}",
        "percent that each rank receives more with STEM in every layer than in a third; distinct rows, tables by width",
        exact=True,
    )
    def traffic_of_tables(self, shape: Shape, ranks: int) -> float:
        return 100 * (traffic(shape, "distinct", ranks, "full") / traffic(shape, "distinct", ranks) - 1)
