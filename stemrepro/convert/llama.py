"""A dense model from a folder of Hugging Face's Llama: config.json and safetensors, in one file or several."""

import json
import re
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from stemrepro.common.errors import UserError
from stemrepro.common.files import read_json, within
from stemrepro.convert.weights import NAMES
from stemrepro.model.config import JSON, ModelConfig
from stemrepro.model.transformer import Decoder

LAYER = re.compile(r"model\.layers\.(\d+)\.(.+)")
DERIVED = re.compile(r"(?:model\.)?(?:layers\.\d+\.self_attn\.)?rotary_emb\.inv_freq")
"""What older folders store although it follows from the settings."""
ONLY = {"model_type": "llama", "hidden_act": "silu", "attention_bias": False, "mlp_bias": False}
"""Settings of which this decoder has one value; it is also theirs where they are left out."""


def _shape(path: Path) -> tuple[ModelConfig, bool]:
    """Return the shape in config.json, and whether the head is the input embedding."""
    about = read_json(path)
    if not isinstance(about, dict) or "model_type" not in about:
        raise UserError(f"{path} names no model_type; expected is the config.json of a Llama")
    for key, value in ONLY.items():
        if about.get(key, value) != value:
            raise UserError(f"{path}: {key} is {about[key]!r}; only {value!r} can be loaded")
    rope = about.get("rope_parameters") or about.get("rope_scaling") or {}
    if not isinstance(rope, dict) or about.get("quantization_config"):
        raise UserError(f"{path}: quantised weights, or rotary positions that are no table, can't be loaded")
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind != "default":
        raise UserError(f"{path}: rotary positions of type '{kind}'; only 'default', without scaling, can be loaded")
    try:
        heads, width = int(about["num_attention_heads"]), int(about["hidden_size"])
        config = JSON.validate_python(
            {
                "vocab": int(about["vocab_size"]),
                "width": width,
                "layers": int(about["num_hidden_layers"]),
                "heads": heads,
                "kv_heads": int(about.get("num_key_value_heads") or heads),
                "ffn_width": int(about["intermediate_size"]),
                "norm_eps": float(about.get("rms_norm_eps", 1e-6)),
                "rope_base": float((about | rope).get("rope_theta", 10000.0)),
            }
        )
    except (KeyError, TypeError, ValueError, ArithmeticError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"{path} has no shape of a Llama ({type(error).__name__}: {reason})") from error
    head = about.get("head_dim") or config.head_width
    if head != config.head_width:
        raise UserError(f"{path}: head_dim {head} is not hidden_size / num_attention_heads = {config.head_width}")
    return config, bool(about.get("tie_word_embeddings", False))


def _weights(folder: Path) -> dict[str, Tensor]:
    index = folder / "model.safetensors.index.json"
    names = ["model.safetensors"]
    if index.exists():
        try:
            names = sorted({str(name) for name in json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()})
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise UserError(f"{index} is damaged ({error}); fetch the folder again") from error
    state: dict[str, Tensor] = {}
    for name in names:
        try:
            state |= load_file(within(folder, folder / name))
        except (OSError, SafetensorError) as error:
            raise UserError(f"{folder / name} can't be read: {' '.join(str(error).split())}") from error
    return state


def _ours(name: str) -> str | None:
    """Return our name of one of their weights; None where there is none."""
    match = LAYER.fullmatch(name)
    before, part = (f"blocks.{match[1]}.", match[2]) if match else ("", name)
    ours = {theirs: ours for ours, theirs in NAMES.items()}.get(part.removesuffix(".weight"))
    return f"{before}{ours}.weight" if ours else None


def load_llama(folder: Path) -> Decoder:
    """Return the dense model of a folder, in float32, in evaluation; its logits are those of transformers.

    UserError names file and key: no Llama that this decoder can be, or a weight is missing, or of another shape.
    """
    config, tied = _shape(within(folder, folder / "config.json"))
    with torch.device("meta"):  # memory is taken only for existing weights
        wanted, state = Decoder(config).state_dict(), {}
    for name, weight in _weights(folder).items():
        if DERIVED.fullmatch(name):
            continue
        ours = _ours(name)
        if ours is None or ours not in wanted:
            raise UserError(f"{folder}: weight '{name}' belongs to no Llama of {config}")
        if weight.shape != wanted[ours].shape:
            shapes = f"{list(weight.shape)}, by config.json it is {list(wanted[ours].shape)}"
            raise UserError(f"{folder}: weight '{name}' has the shape {shapes}")
        if not weight.is_floating_point():
            raise UserError(f"{folder}: weight '{name}' is of {weight.dtype}; only floating point can be loaded")
        if not weight.isfinite().all():
            raise UserError(f"{folder}: weight '{name}' holds NaN or infinite numbers")
        state[ours] = weight.float()
    if tied:  # a folder that stores both has two
        for ours, other in (("head.weight", "embedding.weight"), ("embedding.weight", "head.weight")):
            if other in state:
                state.setdefault(ours, state[other])
    if lost := sorted(wanted.keys() - state.keys()):
        raise UserError(f"{folder} lacks the weights of '{lost[0]}' (and {len(lost) - 1} more)")
    model = Decoder(config)
    model.load_state_dict(state)
    return model.eval()
