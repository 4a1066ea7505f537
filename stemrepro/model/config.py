"""What a model is: its shape, and which FFN each layer has."""

from dataclasses import dataclass
from typing import Annotated

from pydantic import ConfigDict, Field, TypeAdapter, with_config

from stemrepro.errors import UserError, unknown

END_OF_DOCUMENT = 0  # the token that ends every document


def placed_layers(placement: str, layers: int) -> tuple[int, ...]:
    """The layers whose FFN an arm replaces; layer 0 never is (STEM, section 3 and Table 3).

    `third` takes every third layer from layer 1 on, layers // 3 of them: 5 of the paper's 16 and 10 of its 32.
    `half` takes every other layer from layer 1 on, `full` all but layer 0. As many as `third`, elsewhere: `third-shifted` one
    layer deeper, `early` the first ones, `late` the last ones. `single` is one layer in the middle.

    Raises:
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
    }
    if placement not in rules:
        raise unknown("placement", placement, rules, "stemrepro/model/config.py")
    if placement != "none" and not rules[placement]:
        needed = 2 if placement in ("half", "full", "single") else 3
        raise UserError(f"placement '{placement}' needs layers >= {needed}, but the model has layers {layers}")
    return rules[placement]


Later = Annotated[int, Field(exclude_if=lambda value: value == 0)]
LaterStd = Annotated[float | None, Field(exclude_if=lambda value: value is None)]
"""Fields that came after runs were made: where they change nothing, settings are written as they were then."""


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True)
class ModelConfig:
    """Shape of one decoder.

    Attributes:
        vocab: rows of the embeddings and of each token table.
        width: residual width d.
        layers: number of blocks.
        heads, kv_heads: query heads and key/value heads (grouped-query attention).
        ffn_width: d_ff.
        ffn: name of the FFN in the layers of `placed` (stemrepro.model.specs.spec knows it); the others are "dense".
        placed: layers whose FFN is replaced.
        embedding_std, head_std: std of the input embeddings and of the output head at the start; None: 1 / sqrt(width) (official code).
        table_init: "xavier" (std sqrt(2 / (V + d_ff)), the official main branch), "small" (std 0.02) or "normal" (std 1).
        table_shared: one table for all placed layers.
        rank: width of a narrow table (stem-lowrank, ple).
        experts, chosen: experts of a mixture, and how many of them a token uses.
        value_layers: layers whose attention adds a table row to its values.
        rope_base: base of the rotary angles.
        norm_eps: epsilon of RMSNorm.
        document_mask: attention stays inside a document (ends are marked by token 0).
        slots: rows that a token has in a table, where it has several (stem-slots).
        pair_rows: rows of a table of hashed token pairs that is added to the input embedding; 0 for none.
    """

    vocab: int
    width: int
    layers: int
    heads: int
    kv_heads: int
    ffn_width: int
    ffn: str = "dense"
    placed: tuple[int, ...] = ()
    table_init: str = "xavier"
    table_shared: bool = False
    rank: int = 0
    experts: int = 0
    chosen: int = 1
    value_layers: tuple[int, ...] = ()
    rope_base: float = 10000.0
    norm_eps: float = 1e-5
    document_mask: bool = False
    embedding_std: LaterStd = None
    head_std: LaterStd = None
    slots: Later = 0
    pair_rows: Later = 0

    def __post_init__(self) -> None:
        """Raises UserError for shapes that fit no model."""
        if self.width % self.heads:
            raise UserError(f"heads {self.heads} does not divide width {self.width}")
        if self.head_width % 2:
            raise UserError(
                f"width {self.width} / heads {self.heads} = {self.head_width} must be even for rotary positions"
            )
        if self.heads % self.kv_heads:
            raise UserError(f"kv_heads {self.kv_heads} does not divide heads {self.heads}")
        if 0 in self.placed or any(layer >= self.layers for layer in self.placed):
            raise UserError(
                f"placed {list(self.placed)}: layer 0 is never replaced and layers go up to {self.layers - 1}"
            )

    @property
    def settings(self) -> dict:
        """Its fields as JSON has them."""
        return JSON.dump_python(self, mode="json")

    @property
    def head_width(self) -> int:
        """Width of one attention head."""
        return self.width // self.heads

    def ffn_of(self, layer: int) -> str:
        """Name of the FFN in a layer."""
        return self.ffn if layer in self.placed else "dense"


JSON = TypeAdapter(ModelConfig)
