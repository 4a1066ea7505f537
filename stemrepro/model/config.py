"""What a model is: its shape, and the FFN of each layer."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, TypeAdapter, with_config

from stemrepro.common.errors import UserError, unknown

END_OF_DOCUMENT = 0  # the token that ends every document


def layers_of(placement: str, layers: int) -> tuple[int, ...]:
    """Return the layers whose FFN an arm replaces; layer 0 never is (STEM, section 3 and Table 3).

    `third` takes every third layer from layer 1 on, layers // 3 of them: 5 of the paper's 16 and 10 of its 32.
    `half` takes every other layer from layer 1 on, `full` all but layer 0.
    As many layers as `third` have `third-shifted`, one layer deeper, `early`, the first, and `late`, the last.
    `single` is one layer in the middle. `ends` are a quarter of the layers, rounded up, at either end. It has layer 0,
    so it is for memories outside of the FFNs.

    UserError: unknown placement, or too few layers to replace even one.
    """
    count = layers // 3
    rules = {
        "none": (),
        "third": tuple(range(1, layers, 3))[:count],
        "third-shifted": tuple(range(2, layers, 3))[:count],
        "early": tuple(range(1, 1 + count)),
        "late": tuple(range(layers - count, layers)),
        "half": tuple(range(1, layers, 2))[: layers // 2],
        "full": tuple(range(1, layers)),
        "single": (layers // 2,) if layers > 1 else (),
        "ends": (*range(-(-layers // 4)), *range(layers - -(-layers // 4), layers)),
    }
    if placement not in rules:
        raise unknown("placement", placement, rules, "stemrepro/model/config.py")
    if placement != "none" and not rules[placement]:
        needed = 2 if placement in ("half", "full", "single") else 3
        raise UserError(f"placement '{placement}' needs layers >= {needed}, but the model has layers {layers}")
    return rules[placement]


TableInit = Literal["xavier", "small", "normal"]
MOST_LAYERS = 4096
MOST = 2**31
Layers = Annotated[int, Field(gt=0, le=MOST_LAYERS)]
Size = Annotated[int, Field(gt=0, le=MOST)]
Count = Annotated[int, Field(ge=0, le=MOST)]
"""Bounds of settings that are read from a file; a loop goes over the layers."""
Places = Annotated[tuple[int, ...], Field(max_length=MOST_LAYERS)]
Real = Annotated[float, Field(gt=0)]
Later = Annotated[Count, Field(exclude_if=lambda value: value == 0)]
LaterName = Annotated[str, Field(exclude_if=lambda value: value == "")]
LaterPlaces = Annotated[Places, Field(exclude_if=lambda value: not value)]
LaterStd = Annotated[Real | None, Field(exclude_if=lambda value: value is None)]
"""Fields that were added after runs had been made: left out at their defaults, so that old settings stay equal."""


@with_config(ConfigDict(extra="forbid", allow_inf_nan=False))
@dataclass(frozen=True)
class ModelConfig:
    """Shape of one decoder.

    Attributes:
        vocab: rows of the embeddings and of each token table.
        width: residual width d.
        layers: number of blocks.
        heads, kv_heads: query heads and key/value heads (grouped-query attention).
        ffn_width: d_ff.
        ffn: name of the FFN in `replaced_layers` (see stemrepro/model/ffn); the others are "dense".
        replaced_layers: layers whose FFN is replaced.
        embedding_std, head_std: std of the input embeddings and of the output head at initialisation;
            None: 1 / sqrt(width) (official code).
        table_init: "xavier" (std sqrt(2 / (V + d_ff)), the official main branch), "small" (std 0.02) or "normal" (1).
        table_shared: one table for all replaced layers.
        rank: width of a narrow table (stem-lowrank, per-layer-embeddings), or of a head's rows (engram).
        experts, top_k: experts of a mixture, and how many of them a token uses; or how many of its `slots` rows.
        value_layers: layers whose attention adds a table row to its values.
        rope_base: base of the rotary angles.
        norm_eps: epsilon of RMSNorm.
        document_mask: attention stays inside a document (ends are marked by token 0).
        slots: rows per token in a table that has several (stem-slots, joint-token-mixture, mome).
        pair_rows: rows of a table of hashed token pairs that is added to the input embedding; 0 for none.
        memory: name of the memory outside of the FFNs (see stemrepro/model/memory); "" for none.
        memory_layers: layers in which it adds something.
        memory_rows: rows of its hashed tables; of engram, of the smallest head's at least.
    """

    vocab: Size
    width: Size
    layers: Layers
    heads: Size
    kv_heads: Size
    ffn_width: Size
    ffn: str = "dense"
    replaced_layers: Places = ()
    table_init: TableInit = "xavier"
    table_shared: bool = False
    rank: Count = 0
    experts: Count = 0
    top_k: Size = 1
    value_layers: Places = ()
    rope_base: Real = 10000.0
    norm_eps: Real = 1e-5
    document_mask: bool = False
    embedding_std: LaterStd = None
    head_std: LaterStd = None
    slots: Later = 0
    pair_rows: Later = 0
    memory: LaterName = ""
    memory_layers: LaterPlaces = ()
    memory_rows: Later = 0

    def __post_init__(self) -> None:
        """Raise UserError for shapes that fit no model."""
        if self.width % self.heads:
            raise UserError(f"heads {self.heads} does not divide width {self.width}")
        if self.head_width % 2:
            raise UserError(f"width {self.width} / heads {self.heads} = {self.head_width} must be even to rotate")
        if self.heads % self.kv_heads:
            raise UserError(f"kv_heads {self.kv_heads} does not divide heads {self.heads}")
        if not all(0 < layer < self.layers for layer in self.replaced_layers):
            raise UserError(
                f"replaced_layers {list(self.replaced_layers)}: layer 0 is never replaced "
                f"and layers go up to {self.layers - 1}"
            )
        for field, placed in (("value_layers", self.value_layers), ("memory_layers", self.memory_layers)):
            if not all(0 <= layer < self.layers for layer in placed):
                raise UserError(f"{field} {list(placed)}: layers go from 0 up to {self.layers - 1}")
        if self.table_shared and not self.replaced_layers:
            raise UserError("table_shared: no layer is replaced that could share a table")

    @property
    def settings(self) -> dict[str, Any]:
        """Its fields as JSON has them."""
        return JSON.dump_python(self, mode="json")

    @property
    def head_width(self) -> int:
        """Width of one attention head."""
        return self.width // self.heads

    def ffn_of(self, layer: int) -> str:
        """Return the name of the FFN in a layer."""
        return self.ffn if layer in self.replaced_layers else "dense"


JSON = TypeAdapter(ModelConfig)
