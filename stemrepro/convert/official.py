"""Checkpoints of the official code: a folder with params.json, the backbone in consolidated.pth, and tables.

Read off github.com/Infini-AI-Lab/STEM at 074979b (main) and later. Names are those of Meta Lingua, of which that code
is a fork; later commits put "lm_transformer." before them, and one script "model.". A STEM layer has a gate (w1), a
down-projection (w2) and no w3; stem_embeddings.j is the table of the j-th such layer. Tables are in
consolidated_stem.pth, or split along their width in stem_shards/, one file per rank. Lingua rotates neighbouring
entries (2i, 2i + 1) of a head, this decoder rotates i and i + half: rows of query and key projections change places.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from stemrepro.common.errors import UserError
from stemrepro.common.files import read_json, within
from stemrepro.model.config import JSON, ModelConfig
from stemrepro.model.transformer import Decoder

PARAMS, BACKBONE, TABLES, SHARDS = "params.json", "consolidated.pth", "consolidated_stem.pth", "stem_shards"
PREFIX = re.compile(r"^(?:lm_transformer|model)\.")
RANK = re.compile(r"stem_(?:model_)?mp(\d+)\.pt")
TABLE = re.compile(r"stem_embeddings\.(\d+)\.weight")
LAYER = re.compile(r"layers\.(\d+)\.(.+)\.weight")
OUTER = {"tok_embeddings": "embedding", "norm": "norm", "output": "head", "output.tied_module": "head"}
INNER = {
    "attention_norm": "attention_norm", "attention.wq": "attention.query", "attention.wk": "attention.key",
    "attention.wv": "attention.value", "attention.wo": "attention.out", "ffn_norm": "ffn_norm",
    "feed_forward.w1": "ffn.gate", "feed_forward.w2": "ffn.down", "feed_forward.w3": "ffn.up",
}  # fmt: skip
"""Their name of a weight -> ours; inside a layer without "layers.N." and "blocks.N."."""


def to_halves(weight: Tensor, heads: int) -> Tensor:
    """Reorder a projection's rows from pairs (2i, 2i + 1) to halves (i, i + half) of each head.

    The shape is [heads x head width, width].
    """
    return weight.unflatten(0, (heads, -1, 2)).transpose(1, 2).flatten(0, 2)


def joined(shards: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Join tables that the processes of a group hold parts of: split along their width, in the order of the ranks.

    Raises:
        UserError: the parts have other names or numbers of rows.
    """
    tables = {}
    for rank, shard in enumerate(shards):
        if shard.keys() != shards[0].keys():
            raise UserError(f"shard {rank} has the tables {sorted(shard)}, shard 0 has {sorted(shards[0])}")
    for name in shards[0]:
        if len({len(shard[name]) for shard in shards}) > 1:
            raise UserError(f"the shards of {name} have {[len(shard[name]) for shard in shards]} rows; they must agree")
        tables[name] = torch.cat([shard[name] for shard in shards], dim=1)
    return tables


def _weights(folder: Path, path: Path) -> dict[str, Tensor]:
    """Return the weights of a file, a state or {"model": state}; nothing in it is executed.

    Raises:
        UserError: it holds anything else, or is a link that leads out of the folder.
    """
    within(folder, path)
    try:
        held = torch.load(path, map_location="cpu", weights_only=True)
        state = dict(held.get("model", held))
    except Exception as error:
        raise UserError(f"{path} is no checkpoint of weights: {' '.join(str(error).split())[:200]}") from error
    for name, value in state.items():
        if not isinstance(name, str) or not isinstance(value, Tensor) or not value.is_floating_point():
            raise UserError(f"{path}: '{name}' is no weight in floating point; the file must hold those alone")
        if not value.isfinite().all():
            raise UserError(f"{path}: '{name}' holds NaN or infinite numbers")
    return state


def _tables(home: Path, steps: Path) -> dict[str, Tensor]:
    """Return whole tables, by their names; none where the model is dense."""
    if (home / TABLES).exists():
        return _weights(steps, home / TABLES)
    ranks = {}
    for path in (steps / SHARDS).glob("*.pt"):  # in the order of numbers: mp10 comes after mp9
        if match := RANK.fullmatch(path.name):
            rank = int(match[1])
            if rank in ranks:
                raise UserError(f"{path} and {ranks[rank].name} are both of rank {rank}; keep one")
            ranks[rank] = path
    if sorted(ranks) != list(range(len(ranks))):
        raise UserError(f"{steps / SHARDS} has the ranks {sorted(ranks)}; they must be 0, 1, 2, ... without a gap")
    return joined([_weights(steps, ranks[rank]) for rank in sorted(ranks)]) if ranks else {}


def _shape(about: dict, state: Mapping[str, Tensor], path: Path) -> ModelConfig:
    """Return the shape in params.json and the weights.

    Raises:
        UserError: they disagree, or this decoder can't have the shape.
    """
    layers: dict[int, set[str]] = {}
    for name in state:
        if match := LAYER.fullmatch(name):
            layers.setdefault(int(match[1]), set()).add(match[2])
    for name in ("tok_embeddings.weight", "layers.0.feed_forward.w1.weight"):
        if name not in state or state[name].dim() != 2:
            raise UserError(f"no matrix '{name}' in the checkpoint; is it one of the official code, consolidated?")
    if sorted(layers) != list(range(len(layers))):
        raise UserError(f"the checkpoint has the layers {sorted(layers)}; they must be 0, 1, 2, ... without a gap")
    replaced_layers = tuple(layer for layer in sorted(layers) if "feed_forward.w3" not in layers[layer])
    for key in ("rope_scaling", "sliding_window"):
        if about.get(key) is not None:
            raise UserError(f"{path}: {key} is {about[key]!r}; only models without can be read")
    stem_layers = about.get("stem_layers")
    if stem_layers is not None and stem_layers != list(replaced_layers):
        raise UserError(f"{path}: stem_layers is {stem_layers}, but the layers without w3 are {list(replaced_layers)}")
    vocab, width = state["tok_embeddings.weight"].shape
    try:
        heads = int(about.get("n_heads") or width // int(about["head_dim"]))
        config = JSON.validate_python({
            "vocab": vocab, "width": width, "layers": len(layers), "heads": heads,
            "kv_heads": int(about.get("n_kv_heads") or heads),
            "ffn_width": len(state["layers.0.feed_forward.w1.weight"]),
            "ffn": "stem" if replaced_layers else "dense", "replaced_layers": replaced_layers,
            "rope_base": float(about.get("rope_theta", 10000.0)), "norm_eps": float(about.get("norm_eps", 1e-5)),
        })  # fmt: skip
        head_width = int(about.get("head_dim") or config.head_width)
    except (KeyError, TypeError, ValueError, ArithmeticError, AttributeError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"{path}: no shape of a model in 'model' ({type(error).__name__}: {reason})") from error
    if head_width != config.head_width:
        raise UserError(f"{path}: head_dim {head_width} is not dim / n_heads = {config.head_width}")
    return config


def _ours(name: str, replaced_layers: Sequence[int]) -> str | None:
    """Return our name of one of their weights; None where there is none."""
    if match := TABLE.fullmatch(name):
        place = int(match[1])
        return f"blocks.{replaced_layers[place]}.ffn.table.weight" if place < len(replaced_layers) else None
    if match := LAYER.fullmatch(name):
        return f"blocks.{match[1]}.{INNER[match[2]]}.weight" if match[2] in INNER else None
    outer = OUTER.get(name.removesuffix(".weight"))
    return f"{outer}.weight" if outer else None


def from_official(state: Mapping[str, Tensor], config: ModelConfig) -> Decoder:
    """Return a model of weights in the official layout.

    Args:
        state: weights under their names without a prefix, e.g. "layers.0.attention.wq.weight"; tables whole (`joined`).
        config: the model's shape.

    Returns:
        The model in float32, in evaluation.

    Raises:
        UserError: a weight is missing, unknown or of another shape; the message names it.
    """
    with torch.device("meta"):  # memory is taken only for existing weights
        wanted, weights = Decoder(config).state_dict(), {}
    for name, weight in state.items():
        ours = _ours(name, config.replaced_layers)
        if ours is None or ours not in wanted:
            raise UserError(f"'{name}' is no weight of the official layout of {config}")
        if weight.shape != wanted[ours].shape:
            raise UserError(f"'{name}' has the shape {list(weight.shape)}, expected is {list(wanted[ours].shape)}")
        heads = {"query": config.heads, "key": config.kv_heads}.get(ours.split(".")[-2])
        weights[ours] = (to_halves(weight, heads) if heads else weight).float()
    if lost := sorted(wanted.keys() - weights.keys()):
        raise UserError(f"the checkpoint lacks what is '{lost[0]}' here (and {len(lost) - 1} more)")
    model = Decoder(config)
    model.load_state_dict(weights)
    return model.eval()


def read(folder: Path) -> Decoder:
    """Return the model of a checkpoint's folder: that of a step, or the one named `consolidated` in it.

    Raises:
        UserError: a file is missing, damaged or of another model; the message names file and key.
    """
    home = folder / "consolidated" if (folder / "consolidated").is_dir() else folder
    steps = home.parent if home.name == "consolidated" else home
    backbone = {PREFIX.sub("", name): value for name, value in _weights(steps, home / BACKBONE).items()}
    path = home / PARAMS if (home / PARAMS).exists() else steps / PARAMS
    about = read_json(within(steps, path))
    if not isinstance(about, dict) or not isinstance(about.get("model"), dict):
        raise UserError(f"{path} has no 'model'; expected is the params.json of the official code")
    config = _shape(about["model"], backbone, path)
    if about["model"].get("weight_tying"):
        backbone.setdefault("output.weight", backbone["tok_embeddings.weight"])
    tables = {PREFIX.sub("", name): value for name, value in _tables(home, steps).items()}
    if config.replaced_layers and not tables:
        raise UserError(
            f"no tables for the layers {list(config.replaced_layers)}: neither {home / TABLES} nor {steps / SHARDS}"
        )
    try:
        return from_official(backbone | tables, config)
    except UserError as error:
        raise UserError(f"{folder}: {error}") from error
