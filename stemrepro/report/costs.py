"""Quantities of the cost model that exact claims ask for; all from the closed forms of stemrepro.model.cost."""

from dataclasses import replace

from stemrepro.errors import UserError
from stemrepro.model.config import ModelConfig
from stemrepro.model.cost import flops_per_token, row_bytes, table_1_decode_saving
from stemrepro.recipe import Arm, Claim, shaped
from stemrepro.scale import Shape

LENGTH = 4096
"""Tokens of context for every claim; with it Table 1 gives the paper's Qwen2.5 fractions."""
Shapes = dict[str, Shape]


def dense_and_stem(shape: Shape, placement: str) -> tuple[ModelConfig, ModelConfig]:
    """The two models that a cost is compared between."""
    return shaped(shape, Arm(ffn="dense", placement="none")), shaped(shape, Arm(ffn="stem", placement=placement))


def layer_saving(shape: Shape, length: int = LENGTH) -> float:
    """Share of a replaced layer's forward FLOPs that is saved, with the shape's own grouped-query attention."""
    dense, _ = dense_and_stem(shape, "full")
    layer = (flops_per_token(dense, length) - 2 * dense.width * dense.vocab) / dense.layers
    return 2 * dense.width * dense.ffn_width / layer


def model_saving(shape: Shape, placement: str, length: int = LENGTH) -> float:
    """Share of a model's forward FLOPs that is saved, output head included."""
    dense, stem = dense_and_stem(shape, placement)
    return 1 - flops_per_token(stem, length) / flops_per_token(dense, length)


def doubled(shape: Shape) -> tuple[float, float]:
    """By what an FFN's forward FLOPs and a token's row bytes grow when width and ffn_width double."""
    _, small = dense_and_stem(shape, "third")
    large = replace(small, width=2 * small.width, ffn_width=2 * small.ffn_width)
    compute = (large.width * large.ffn_width) / (small.width * small.ffn_width)
    return compute, row_bytes(large, 1) / row_bytes(small, 1)


def value(shapes: Shapes, metric: str) -> float:
    """The number of an exact claim.

    Raises:
        UserError: no such metric.
    """
    name, *rest = metric.split(":")
    if name == "layer_saving":
        return 100 * layer_saving(shapes[rest[0]])
    if name == "model_saving":
        return 100 * model_saving(shapes[rest[0]], rest[1])
    if name == "decode_saving":
        return 100 * table_1_decode_saving(shapes[rest[0]], LENGTH, int(rest[1]))
    if name == "doubled":
        return dict(zip(("compute", "rows"), doubled(shapes[rest[0]]), strict=True))[rest[1]]
    raise UserError(f"metric '{metric}' is unknown; there are layer_saving, model_saving, decode_saving, doubled")


def failed_precondition(claim: Claim, shapes: Shapes) -> None:
    """Closed forms have no preconditions."""
