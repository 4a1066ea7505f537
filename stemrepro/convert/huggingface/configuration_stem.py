"""The shape of a STEM model: Llama's, and which layers read a table by token."""

from transformers import LlamaConfig


class StemConfig(LlamaConfig):
    """Llama's settings and these.

    Attributes:
        ffn: the feed-forward network in `replaced_layers`, a name of modeling_stem.EQUATIONS; the others are "dense".
        replaced_layers: layers whose feed-forward network is replaced.
        row_width: width of the row that a token has in a table; 0 where there is none.
    """

    model_type = "stem"
    ffn: str = "dense"
    replaced_layers: list[int] | tuple[int, ...] = ()
    row_width: int = 0
