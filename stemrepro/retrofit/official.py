"""The consolidated checkpoints of the official code: its names and order of weights, both ways.

That code is a fork of Meta Lingua, from whose public source names and rotary positions are: Lingua turns neighbouring entries (2i, 2i + 1)
of a head, this decoder turns i and i + half, so rows of the query and key projections change places. A STEM layer has a gate (w1), a
down-projection (w2) and a table, and no w3. How the table is called isn't known from any source that this project cites: reading
takes what stands in w3's place, writing asks for a name.
"""

import io
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from stemrepro.errors import UserError
from stemrepro.files import atomic_write
from stemrepro.model.config import ModelConfig
from stemrepro.model.transformer import Decoder

OUTER = {"tok_embeddings": "embedding", "norm": "norm", "output": "head"}
INNER = {
    "attention_norm": "attention_norm", "attention.wq": "attention.query", "attention.wk": "attention.key",
    "attention.wv": "attention.value", "attention.wo": "attention.out", "ffn_norm": "ffn_norm",
    "feed_forward.w1": "ffn.gate", "feed_forward.w2": "ffn.down", "feed_forward.w3": "ffn.up",
}  # fmt: skip
"""Their name of a weight -> ours; inside a layer without "layers.N." and "blocks.N."."""
LAYER = re.compile(r"layers\.(\d+)\.(.+)\.weight")
IN_TABLES_PLACE = re.compile(r"feed_forward\.(.+)")
TURNED = ("attention.wq", "attention.wk")


def to_halves(weight: Tensor, heads: int) -> Tensor:
    """Rows of a projection from pairs (2i, 2i + 1) to halves (i, i + half) of each head: [heads x head width, width]."""
    return weight.unflatten(0, (heads, -1, 2)).transpose(1, 2).flatten(0, 2)


def to_pairs(weight: Tensor, heads: int) -> Tensor:
    """The way back."""
    return weight.unflatten(0, (heads, 2, -1)).transpose(1, 2).flatten(0, 2)


def joined(shards: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Tables from the parts that processes of a group hold of them: split along their width, in the order of the ranks.

    Raises:
        UserError: the parts have other names or numbers of rows.
    """
    if not shards:
        raise UserError("there are no shards of tables; give those of all ranks in their order")
    for rank, shard in enumerate(shards):
        if shard.keys() != shards[0].keys():
            raise UserError(f"shard {rank} has the tables {sorted(shard)}, shard 0 has {sorted(shards[0])}")
    made = {}
    for name in shards[0]:
        if len({len(shard[name]) for shard in shards}) > 1:
            raise UserError(f"the shards of {name} have {[len(shard[name]) for shard in shards]} rows; they must agree")
        made[name] = torch.cat([shard[name] for shard in shards], dim=1)
    return made


def _shape(state: Mapping[str, Tensor], heads: int, kv_heads: int, rope_base: float, norm_eps: float) -> ModelConfig:
    """The shape that weights tell of, with what they don't."""
    layers: dict[int, set[str]] = {}
    for name in state:
        if found := LAYER.fullmatch(name):
            layers.setdefault(int(found[1]), set()).add(found[2])
    for name in ("tok_embeddings.weight", "layers.0.feed_forward.w1.weight"):
        if name not in state or state[name].dim() != 2:
            raise UserError(f"no matrix '{name}' in the checkpoint; is it one of the official code, consolidated?")
    if sorted(layers) != list(range(len(layers))):
        raise UserError(f"the checkpoint has the layers {sorted(layers)}; they must be 0, 1, 2, ... without a gap")
    vocab, width = state["tok_embeddings.weight"].shape
    placed = tuple(layer for layer in sorted(layers) if "feed_forward.w3" not in layers[layer])
    ffn_width = len(state["layers.0.feed_forward.w1.weight"])
    return ModelConfig(
        vocab, width, len(layers), heads, kv_heads, ffn_width, "stem" if placed else "dense", placed,
        rope_base=rope_base, norm_eps=norm_eps,
    )  # fmt: skip


def _ours(name: str, placed: Sequence[int]) -> str | None:
    """Our name of one of their weights; None where there is none."""
    if not (found := LAYER.fullmatch(name)):
        known = OUTER.get(name.removesuffix(".weight"))
        return f"{known}.weight" if known else None
    layer, part = int(found[1]), found[2]
    if part not in INNER and layer in placed and IN_TABLES_PLACE.fullmatch(part):
        return f"blocks.{layer}.ffn.table.weight"
    return f"blocks.{layer}.{INNER[part]}.weight" if part in INNER else None


def from_official(
    state: Mapping[str, Tensor], heads: int, kv_heads: int, rope_base: float, norm_eps: float = 1e-5
) -> Decoder:
    """A model from a consolidated state, dense or with tables.

    Args:
        state: weights by their names, e.g. "layers.0.attention.wq.weight"; tables whole (see `joined`).
        heads, kv_heads, rope_base, norm_eps: what weights don't tell.

    Returns:
        The model in float32, in evaluation.

    Raises:
        UserError: a weight is missing, unknown, double or of another shape; names it.
    """
    config = _shape(state, heads, kv_heads, rope_base, norm_eps)
    model = Decoder(config)
    wanted, found, origin = model.state_dict(), {}, {}
    for name, weight in state.items():
        ours = _ours(name, config.placed)
        if ours is None or ours not in wanted:
            raise UserError(f"'{name}' is no weight of the official layout of {config}; remove it, or name what it is")
        if ours in origin:
            raise UserError(f"'{origin[ours]}' and '{name}' both stand in the table's place; a layer has one table")
        if weight.shape != wanted[ours].shape:
            raise UserError(f"'{name}' has the shape {list(weight.shape)}, expected is {list(wanted[ours].shape)}")
        turned = name.removesuffix(".weight").endswith(TURNED)
        count = heads if ours.endswith("query.weight") else kv_heads
        origin[ours], found[ours] = name, to_halves(weight, count) if turned else weight
    if lost := sorted(wanted.keys() - found.keys()):
        raise UserError(f"the checkpoint lacks {_theirs(lost[0], 'TABLE')} (and {len(lost) - 1} more)")
    model.load_state_dict({name: weight.float() for name, weight in found.items()})
    return model.eval()


def _theirs(name: str, table: str) -> str:
    """Their name of one of our weights."""
    part = name.removesuffix(".weight")
    if not part.startswith("blocks."):
        return {ours: theirs for theirs, ours in OUTER.items()}[part] + ".weight"
    _, layer, part = part.split(".", 2)
    names = {ours: theirs for theirs, ours in INNER.items()} | {"ffn.table": f"feed_forward.{table}"}
    return f"layers.{layer}.{names[part]}.weight"


def to_official(model: Decoder, table: str = "") -> dict[str, Tensor]:
    """The state of a dense or STEM model under their names and in their order of rows; tables whole.

    Args:
        table: what a table is called inside feed_forward; needed where there is one.

    Raises:
        UserError: the model has something that the layout doesn't, or no name is given for its tables.
    """
    config, state = model.config, {}
    if (config.placed and config.ffn != "stem") or config.table_shared or config.value_layers or config.pair_rows:
        raise UserError(f"the official layout has dense and STEM layers alone, not {config}")
    if config.placed and (not table or f"feed_forward.{table}" in INNER):
        raise UserError(
            f"table '{table}' is no name for a table inside feed_forward; give the one that its reader expects"
        )
    for name, weight in model.state_dict().items():
        theirs = _theirs(name, table)
        heads = {"attention.query": config.heads, "attention.key": config.kv_heads}.get(name.split(".", 2)[-1][:-7])
        state[theirs] = (to_pairs(weight, heads) if heads else weight).detach().clone().contiguous()
    return state


def read(path: Path, heads: int, kv_heads: int, rope_base: float, norm_eps: float = 1e-5) -> Decoder:
    """A model from a consolidated file, a state or {"model": state}; nothing in it is executed. As `from_official`.

    Raises:
        UserError: the file can't be read, or see `from_official`.
    """
    try:
        held = torch.load(path, map_location="cpu", weights_only=True)
        state = dict(held.get("model", held))
    except Exception as error:
        raise UserError(f"{path} is no checkpoint of weights: {' '.join(str(error).split())[:200]}") from error
    if strange := [name for name, value in state.items() if not isinstance(value, Tensor)]:
        raise UserError(f"{path}: '{strange[0]}' is no weight; a consolidated file holds those alone")
    try:
        return from_official(state, heads, kv_heads, rope_base, norm_eps)
    except UserError as error:
        raise UserError(f"{path}: {error}") from error


def write(model: Decoder, path: Path, table: str = "") -> None:
    """Writes {"model": state} whole or not at all; raises as `to_official`."""
    buffer = io.BytesIO()
    torch.save({"model": to_official(model, table)}, buffer)
    atomic_write(path, buffer.getvalue())
