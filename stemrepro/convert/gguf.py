"""A dense model and its tokenizer from a GGUF file of a Llama with a byte-level BPE, its weights dequantised."""

from pathlib import Path
from typing import Any

import torch
from gguf import GGUFReader, dequantize
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor

from stemrepro.common.errors import UserError
from stemrepro.model.config import JSON, ModelConfig
from stemrepro.model.transformer import Decoder

NAMES = {
    "attn_norm": "attention_norm",
    "attn_q": "attention.query",
    "attn_k": "attention.key",
    "attn_v": "attention.value",
    "attn_output": "attention.out",
    "ffn_norm": "ffn_norm",
    "ffn_gate": "ffn.gate",
    "ffn_up": "ffn.up",
    "ffn_down": "ffn.down",
}
"""Our names of a layer's weights, by the format's."""
DIGITS_APART = {"smollm": True, "gpt-2": False, "default": False}
"""Whether a word's digits are tokens of their own, by the format's name of how text is cut into words."""


def _fields(reader: GGUFReader, path: Path) -> dict[str, Any]:
    try:
        about = {name: field.contents() for name, field in reader.fields.items()}
    except (ValueError, IndexError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is damaged ({error}); fetch it again") from error
    if (kind := about.get("general.architecture")) != "llama":
        raise UserError(f"{path} holds a model of architecture {kind!r}; only 'llama' can be loaded")
    return about


def _shape(about: dict[str, Any]) -> ModelConfig:
    """Return the shape that the file names."""
    heads = int(about["llama.attention.head_count"])
    return JSON.validate_python(
        {
            "vocab": len(about["tokenizer.ggml.tokens"]),
            "width": int(about["llama.embedding_length"]),
            "layers": int(about["llama.block_count"]),
            "heads": heads,
            "kv_heads": int(about.get("llama.attention.head_count_kv", heads)),
            "ffn_width": int(about["llama.feed_forward_length"]),
            "norm_eps": float(about["llama.attention.layer_norm_rms_epsilon"]),
            "rope_base": float(about.get("llama.rope.freq_base", 10000.0)),
        }
    )


def _halves(weight: Tensor, heads: int) -> Tensor:
    """Return rows of queries or keys [heads x E, D] in our order, in which rotary pairs are E / 2 apart.

    In the file the two rows of a pair stand next to each other.
    """
    return weight.unflatten(0, (heads, -1, 2)).transpose(1, 2).flatten(0, 2)


def _tokenizer(about: dict[str, Any], path: Path) -> Tokenizer:
    kind, cut = about.get("tokenizer.ggml.model"), about.get("tokenizer.ggml.pre", "default")
    if kind != "gpt2" or cut not in DIGITS_APART:
        raise UserError(
            f"{path} has a tokenizer '{kind}' that cuts words as '{cut}'; known are gpt2's {[*DIGITS_APART]}"
        )
    entries = about["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ")) for merge in about["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE(vocab={entry: number for number, entry in enumerate(entries)}, merges=merges))
    steps = [pre_tokenizers.Digits(individual_digits=True)] if DIGITS_APART[cut] else []
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*steps, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    tokenizer.decoder = decoders.ByteLevel()
    control = [
        entry for entry, of_kind in zip(entries, about["tokenizer.ggml.token_type"], strict=True) if of_kind == 3
    ]
    tokenizer.add_special_tokens(control)
    return tokenizer


def load_gguf(path: Path) -> tuple[Decoder, Tokenizer]:
    """Return a file's dense model, in float32, in evaluation, and tokenizer; logits are those of transformers.

    UserError: the file is missing or damaged, or holds no Llama that this decoder can be.
    """
    try:
        reader = GGUFReader(path)
    except (OSError, ValueError) as error:
        raise UserError(f"{path} can't be read as GGUF: {error}") from error
    about = _fields(reader, path)
    try:
        config, tokenizer = _shape(about), _tokenizer(about, path)
        found = {one.name: torch.from_numpy(dequantize(one.data, one.tensor_type).copy()) for one in reader.tensors}
        state = {"embedding.weight": found["token_embd.weight"], "norm.weight": found["output_norm.weight"]}
        state["head.weight"] = found.get("output.weight", state["embedding.weight"])  # tied where there is none
        for layer in range(config.layers):
            for theirs, ours in NAMES.items():
                weight = found[f"blk.{layer}.{theirs}.weight"]
                if theirs in ("attn_q", "attn_k"):
                    weight = _halves(weight, config.heads if theirs == "attn_q" else config.kv_heads)
                state[f"blocks.{layer}.{ours}.weight"] = weight.float()
        with torch.device("meta"):
            model = Decoder(config)
        model.load_state_dict(state, assign=True)
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise UserError(f"{path} is no whole Llama: {' '.join(str(error).split())[:300]}") from error
    return model.eval(), tokenizer
