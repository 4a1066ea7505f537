"""The text of a run: the scale's own, in another vocabulary, about another number of people, or in a blend, as points of recipes ask for it.
Without torch, as workers' parents need it.
"""

from dataclasses import dataclass
from pathlib import Path

from stemrepro.common.errors import UserError
from stemrepro.data.integrity import read_index, verified_hash


def write_vocabularies(corpus: Path, sizes: list[int], out: Path) -> None:
    """Write `out`/<size>/tokenizer.json and `out`/<size>/blocks for each size; raises as `train_tokenizer` does."""
    from stemrepro.data.encoding import write_blocks
    from stemrepro.data.tokenizer import train_tokenizer

    out.mkdir(parents=True, exist_ok=True)
    for size in sizes:
        train_tokenizer(corpus, size, out / str(size) / "tokenizer.json")
        write_blocks(corpus, out / str(size) / "tokenizer.json", out / str(size) / "blocks")


@dataclass(frozen=True)
class Text:
    """Token blocks in some vocabulary.

    Attributes:
        ratio: tokens of a text in it / in the scale's own.
        data_hash: sha256 of the training split.
    """

    blocks: Path
    data_hash: str
    ratio: float = 1.0


def mid_text(data: Path) -> Text:
    """Return the blend of a scale with other texts.

    Args:
        data: the scale's folder.

    Raises:
        UserError: blocks are missing or garbled.
    """
    blocks = data / "mid" / "blocks"
    if not blocks.exists():
        raise UserError(f"{blocks} is missing; run 'make reproduce' with its SCALE first")
    return Text(blocks, verified_hash(blocks))


def own_text(vocab: int, data: Path, people: int = 0) -> Text:
    """Return the text of a scale in a vocabulary of so many tokens, or about so many invented people.

    Args:
        data: the scale's folder, with `blocks` in the vocabulary of the scale itself, others below `vocabularies`, and those about other
            numbers of people below `people`.
        people: 0 for the scale's own number.

    Raises:
        UserError: blocks are missing or garbled.
    """
    if people:
        own = data / "people" / str(people) / "blocks"
        if not own.exists():
            raise UserError(f"{own} is missing; run 'make reproduce' with its SCALE first")
        return Text(own, verified_hash(own))
    blocks = data / "blocks"
    hashed = verified_hash(blocks)
    if read_index(blocks)["vocab"] == vocab:
        return Text(blocks, hashed)
    own = data / "vocabularies" / str(vocab) / "blocks"
    if not own.exists():
        raise UserError(f"{own} is missing; run 'make reproduce' with its SCALE first")
    # Every vocabulary has the same training documents.
    tokens = [read_index(place)["splits"]["train"]["tokens"] for place in (own, blocks)]
    return Text(own, verified_hash(own), tokens[0] / tokens[1])
