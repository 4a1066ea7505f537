"""What STEM costs and saves, from the closed forms of stemrepro.model.cost: metrics of recipes/cost_model.yaml."""

from dataclasses import replace
from typing import Annotated, Literal

from stemrepro.config.arm import Arm, shaped
from stemrepro.config.scale import Shape
from stemrepro.measures.metric import ShapeName
from stemrepro.measures.scores import Scores
from stemrepro.model.config import ModelConfig
from stemrepro.model.cost import expected_distinct, flops_per_token, row_bytes, table_1_decode_saving
from stemrepro.model.traffic import expert_bytes, fsdp_bytes, step_of, width_bytes

PLACEMENTS = ("third", "half", "full")
Placement = Annotated[str, PLACEMENTS]
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


def saving_of_layer(shape: Shape, length: int = LENGTH) -> float:
    """Return the share of a replaced layer's forward FLOPs that is saved, with the shape's grouped-query attention."""
    dense, _ = dense_and_stem(shape, "full")
    layer = (flops_per_token(dense, length) - 2 * dense.width * dense.vocab) / dense.layers
    return 2 * dense.width * dense.ffn_width / layer


def saving_of_model(shape: Shape, placement: str, length: int = LENGTH) -> float:
    """Return the share of a model's forward FLOPs that is saved, output head included."""
    dense, stem = dense_and_stem(shape, placement)
    return 1 - flops_per_token(stem, length) / flops_per_token(dense, length)


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


def layer_saving(scores: Scores, shape: ShapeName) -> float:
    """Percent of a replaced layer's forward FLOPs that is saved."""
    return 100 * saving_of_layer(scores.catalog.shapes[shape])


def model_saving(scores: Scores, shape: ShapeName, placement: Placement) -> float:
    """Percent of a model's forward FLOPs that is saved."""
    return 100 * saving_of_model(scores.catalog.shapes[shape], placement)


def decode_saving(scores: Scores, shape: ShapeName, sequences: int) -> float:
    """Percent of a layer's reads in decoding so many sequences."""
    return 100 * table_1_decode_saving(dense_and_stem(scores.catalog.shapes[shape], "full")[0], LENGTH, sequences)


def doubled(scores: Scores, shape: ShapeName, what: Literal["compute", "rows"]) -> float:
    """By what FLOPs or row bytes grow when widths double."""
    _, small = dense_and_stem(scores.catalog.shapes[shape], "third")
    large = replace(small, width=2 * small.width, ffn_width=2 * small.ffn_width)
    if what == "compute":  # of an FFN
        return (large.width * large.ffn_width) / (small.width * small.ffn_width)
    return row_bytes(large, 1) / row_bytes(small, 1)


def more_traffic(scores: Scores, shape: ShapeName, stem: Annotated[str, STEMS], rival: Annotated[str, RIVALS]) -> int:
    """How often, on 8, 64 and 512 ranks, each receives more in a step of STEM 1/3 than of the rival."""
    of = scores.catalog.shapes[shape]
    return sum(traffic(of, stem, ranks) > traffic(of, rival, ranks) for ranks in RANKS)


def traffic_of_tables(scores: Scores, shape: ShapeName, ranks: Annotated[int, RANKS]) -> float:
    """Percent that each rank receives more with STEM in every layer than in a third; distinct rows, tables by width."""
    of = scores.catalog.shapes[shape]
    return 100 * (traffic(of, "distinct", ranks, "full") / traffic(of, "distinct", ranks) - 1)
