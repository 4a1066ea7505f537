"""The same text in other vocabularies, for the points of recipes that ask for them. Without torch, as workers' parents need it."""

import json
from pathlib import Path

from stemrepro.data.integrity import verified_hash
from stemrepro.errors import UserError
from stemrepro.scale import Scale, same_text


def write_vocabularies(corpus: Path, sizes: list[int], out: Path) -> None:
    """Writes `out`/<size>/tokenizer.json and `out`/<size>/blocks for each size; raises as `train_tokenizer` does."""
    from stemrepro.data.blocks import write_blocks
    from stemrepro.data.tokenizer import train_tokenizer

    out.mkdir(parents=True, exist_ok=True)
    for size in sizes:
        train_tokenizer(corpus, size, out / str(size) / "tokenizer.json")
        write_blocks(corpus, out / str(size) / "tokenizer.json", out / str(size) / "blocks")


def training_tokens(blocks: Path) -> int:
    """Tokens of the training split, of which every vocabulary has the same documents."""
    return json.loads((blocks / "index.json").read_text())["splits"]["train"]["tokens"]


def own_text(scale: Scale, data: Path) -> tuple[Scale, Path, str]:
    """The scale with as many tokens as the same text has in its vocabulary, that text's blocks, and the hash of their training split.

    Args:
        data: the scale's folder, with `blocks` in the vocabulary of the scale itself and others below `vocabularies`.

    Raises:
        UserError: blocks are missing or garbled.
    """
    blocks = data / "blocks"
    found = verified_hash(blocks)
    if json.loads((blocks / "index.json").read_text())["vocab"] == scale.model.vocab:
        return scale, blocks, found
    own = data / "vocabularies" / str(scale.model.vocab) / "blocks"
    if not own.exists():
        raise UserError(f"{own} is missing; run 'dvc repro vocabularies' first")
    found = verified_hash(own)
    return same_text(scale, training_tokens(own) / training_tokens(blocks)), own, found
