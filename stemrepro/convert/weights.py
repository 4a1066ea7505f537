"""Settings and weights of a decoder under the names that transformers has for Llama."""

from typing import Any, cast

from torch import Tensor, nn

from stemrepro.common.errors import UserError
from stemrepro.model.config import END_OF_DOCUMENT, ModelConfig
from stemrepro.model.ffn.base import ffn_class
from stemrepro.model.names import OWN_FILE
from stemrepro.model.transformer import Decoder

NAMES = {
    "embedding": "model.embed_tokens",
    "norm": "model.norm",
    "head": "lm_head",
    "attention_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attention.query": "self_attn.q_proj",
    "attention.key": "self_attn.k_proj",
    "attention.value": "self_attn.v_proj",
    "attention.out": "self_attn.o_proj",
    **{f"ffn.{name}": f"mlp.{name}_proj" for name in ("gate", "up", "down")},
    **{f"ffn.{name}": f"mlp.{name}" for name in ("table", "row_norm", "widen", "scale", "mix")},
}
BY_PAIRS = "its rows are read by pairs of tokens, and the cache of transformers keeps no tokens"


def _reason(config: ModelConfig) -> str:
    """Return why modeling_stem.py doesn't have a network, or ""."""
    if OWN_FILE.fullmatch(config.ffn):
        return "modeling_stem.py has no network of a file of your own"
    network = ffn_class(config.ffn)
    if "experts" in network.needs:
        return "its experts are whole networks, and nothing is read from a table"
    if network.reads_embedding:
        return "its networks read the input embedding in place of the residual stream"
    return {"pair": BY_PAIRS, "router": "a router chooses among several rows of a token"}.get(network.row_address, "")


def check(config: ModelConfig) -> None:
    """Raise UserError with the reason where a model can't be exported."""
    what, reason = f"ffn '{config.ffn}'", _reason(config)
    if config.value_layers:
        what, reason = f"value_layers {list(config.value_layers)}", "only tables of feed-forward networks are"
    elif config.pair_rows:
        what, reason = f"pair_rows {config.pair_rows}", BY_PAIRS
    elif config.memory:
        what, reason = f"memory '{config.memory}'", "only tables of feed-forward networks are"
    if reason:
        raise UserError(f"a model with {what} can't be exported: {reason}")


def settings(model: Decoder, context: int) -> dict[str, Any]:
    """Return config.json: that of plain Llama where all layers are dense."""
    config = model.config
    llama = {
        "vocab_size": config.vocab,
        "hidden_size": config.width,
        "intermediate_size": config.ffn_width,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads,
        "hidden_act": "silu",
        "max_position_embeddings": context,
        "rms_norm_eps": config.norm_eps,
        "rope_theta": config.rope_base,
        "rope_parameters": {"rope_type": "default", "rope_theta": config.rope_base},
        "tie_word_embeddings": False,
        "attention_bias": False,
        "mlp_bias": False,
        "bos_token_id": END_OF_DOCUMENT,
        "eos_token_id": END_OF_DOCUMENT,
        "dtype": str(model.head.weight.dtype).removeprefix("torch."),
    }
    if not config.replaced_layers:
        return llama | {"model_type": "llama", "architectures": ["LlamaForCausalLM"]}
    table = getattr(model.blocks[config.replaced_layers[0]].ffn, "table", None)
    return llama | {
        "model_type": "stem",
        "architectures": ["StemForCausalLM"],
        "auto_map": {
            "AutoConfig": "configuration_stem.StemConfig",
            "AutoModelForCausalLM": "modeling_stem.StemForCausalLM",
        },
        "ffn": "stem" if ffn_class(config.ffn).row_address == "order" else config.ffn,  # shuffled rows are in order
        "replaced_layers": list(config.replaced_layers),
        "row_width": table.embedding_dim if table is not None else 0,
    }


def _name(ours: str) -> str:
    """Return their name of one of our weights: blocks.1.ffn.table.weight -> model.layers.1.mlp.table.weight."""
    layer, part = "", ours
    if ours.startswith("blocks."):
        _, number, part = ours.split(".", 2)
        layer = f"model.layers.{number}."
    stem = part.removesuffix(".weight")
    return layer + NAMES[stem] + part[len(stem) :]


def weights(model: Decoder) -> dict[str, Tensor]:
    """Return the tensors of model.safetensors.

    A table that layers share is written for each layer, and shuffled rows in the order in which tokens read them.
    """
    config, state = model.config, dict(model.state_dict())
    for layer in config.replaced_layers:
        name = f"blocks.{layer}.ffn."
        if config.table_shared:
            state[f"{name}table.weight"] = cast(nn.Embedding, cast(nn.Module, model.blocks[layer].ffn).table).weight
        if (order := state.pop(f"{name}order", None)) is not None:
            state[f"{name}table.weight"] = state[f"{name}table.weight"][order]
    return {_name(name): value.detach().clone().contiguous() for name, value in state.items()}
