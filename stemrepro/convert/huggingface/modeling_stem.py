"""STEM (arXiv 2601.10639) for transformers: Llama, whose feed-forward networks read a row of a table by token.

Made for transformers 5. Shapes: x [batch, seq, hidden_size], token_ids [batch, seq].
"""

import torch
import torch.nn.functional as F
from torch import nn
from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaForCausalLM, LlamaModel

from .configuration_stem import StemConfig

PARTS = {
    "gate_proj": lambda c: nn.Linear(c.hidden_size, c.intermediate_size, bias=False),
    "up_proj": lambda c: nn.Linear(c.hidden_size, c.intermediate_size, bias=False),
    "down_proj": lambda c: nn.Linear(c.intermediate_size, c.hidden_size, bias=False),
    "table": lambda c: nn.Embedding(c.vocab_size, c.row_width),
    "row_norm": lambda c: nn.RMSNorm(c.intermediate_size, c.rms_norm_eps),
    "widen": lambda c: nn.Linear(c.row_width, c.intermediate_size, bias=False),
    "scale": lambda c: nn.Parameter(torch.ones(c.hidden_size)),
    "mix": lambda c: nn.Parameter(torch.zeros(())),
}
"""The modules that a network can be made of."""


def gated(m, x, up):
    """Return W_d (SiLU(W_g x) * up)."""
    return m.down_proj(F.silu(m.gate_proj(x)) * up)


def dense(m, x):
    """Return W_d (SiLU(W_g x) * W_u x)."""
    return gated(m, x, m.up_proj(x))


EQUATIONS = {
    "dense": (("gate_proj", "up_proj", "down_proj"), lambda m, x, row: dense(m, x)),
    "stem": (("gate_proj", "down_proj", "table"), lambda m, x, row: gated(m, x, row)),
    "stem-interpolated": (("gate_proj", "up_proj", "down_proj", "table"), lambda m, x, row: gated(m, x, row)),
    "stem-normed": (("gate_proj", "down_proj", "table", "row_norm"), lambda m, x, row: gated(m, x, m.row_norm(row))),
    "stem-lowrank": (("gate_proj", "down_proj", "table", "widen"), lambda m, x, row: gated(m, x, m.widen(row))),
    "stem-dagger": (("gate_proj", "up_proj", "down_proj", "table"), lambda m, x, row: gated(m, x, m.up_proj(x) + row)),
    "blend": (
        ("gate_proj", "up_proj", "down_proj", "table", "mix"),
        lambda m, x, row: gated(m, x, m.mix.sigmoid() * m.up_proj(x) + (1 - m.mix.sigmoid()) * row),
    ),
    "gate-replaced": (("up_proj", "down_proj", "table"), lambda m, x, row: m.down_proj(F.silu(row) * m.up_proj(x))),
    "down-replaced": (("table",), lambda m, x, row: row),
    "token-only": (("down_proj", "table"), lambda m, x, row: m.down_proj(row)),
    "up-removed": (("gate_proj", "down_proj"), lambda m, x, row: m.down_proj(F.silu(m.gate_proj(x)))),
    "input-add": (("gate_proj", "up_proj", "down_proj", "table"), lambda m, x, row: dense(m, x) + row),
    "jtok": (
        ("gate_proj", "up_proj", "down_proj", "table", "scale"),
        lambda m, x, row: dense(m, x) * (1 + m.scale * F.normalize(row, dim=-1)),
    ),
}
"""By name: the parts of a network m, and its output from its input x and the token's row."""


class StemMLP(nn.Module):
    """A feed-forward network that reads the token ids."""

    def __init__(self, config: StemConfig, name: str):
        super().__init__()
        self.name = name
        for part in EQUATIONS[name][0]:
            setattr(self, part, PARTS[part](config))

    def forward(self, x, token_ids):
        """Return the network's output for x [batch, seq, hidden_size] and token_ids [batch, seq], in the shape of x."""
        row = self.table(token_ids) if hasattr(self, "table") else None
        return EQUATIONS[self.name][1](self, x, row)


class StemDecoderLayer(LlamaDecoderLayer):
    """Llama's layer with a StemMLP."""

    def __init__(self, config: StemConfig, layer_idx: int):
        super().__init__(config, layer_idx)
        self.mlp = StemMLP(config, config.ffn if layer_idx in config.replaced_layers else "dense")

    def forward(self, hidden_states, token_ids, **kwargs):
        """Add attention and network to the residual stream [batch, seq, hidden_size]."""
        attended, _ = self.self_attn(hidden_states=self.input_layernorm(hidden_states), **kwargs)
        hidden_states = hidden_states + attended
        return hidden_states + self.mlp(self.post_attention_layernorm(hidden_states), token_ids)


class ResizedTables:
    """Tables that get as many rows as the embedding; new rows are drawn as transformers draws the embedding's."""

    def _resize_token_embeddings(self, new_num_tokens, pad_to_multiple_of=None, mean_resizing=True):
        embedding = super()._resize_token_embeddings(new_num_tokens, pad_to_multiple_of, mean_resizing)
        rows = embedding.num_embeddings
        for mlp in [module for module in self.modules() if hasattr(module, "table")]:
            mlp.table = self._get_resized_embeddings(mlp.table, rows, mean_resizing=mean_resizing)
        return embedding


class StemModel(ResizedTables, LlamaModel):
    """Llama's decoder with such layers."""

    config_class = StemConfig
    _no_split_modules = ("StemDecoderLayer",)

    def __init__(self, config: StemConfig):
        super().__init__(config)
        self.layers = nn.ModuleList(StemDecoderLayer(config, layer) for layer in range(config.num_hidden_layers))
        self.post_init()

    def forward(self, input_ids=None, **kwargs):
        """Return Llama's output; token ids [batch, seq] reach every layer; ValueError where there are no token ids."""
        if input_ids is None:
            raise ValueError("a STEM model reads its tables by token: it needs input_ids in place of inputs_embeds")
        return super().forward(input_ids=input_ids, token_ids=input_ids, **kwargs)


class StemForCausalLM(ResizedTables, LlamaForCausalLM):
    """The decoder with its output head."""

    config_class = StemConfig
    _no_split_modules = ("StemDecoderLayer",)

    def __init__(self, config: StemConfig):
        super().__init__(config)
        self.model = StemModel(config)
        self.post_init()
