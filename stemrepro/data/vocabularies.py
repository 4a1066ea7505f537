"""The text of a run: the scale's own, or one in another vocabulary, about other numbers of people, or in a blend.

Variants of recipes say which.
"""

from dataclasses import dataclass
from pathlib import Path

from stemrepro.common.errors import UserError
from stemrepro.config.mixes import InventedMix
from stemrepro.data.integrity import read_index, store_corpus, verified_hash


def write_vocabularies(corpus: Path, sizes: list[int], out: Path) -> None:
    """Write `out`/<size>/tokenizer.json and `out`/<size>/blocks for each size; raise what `train_tokenizer` does."""
    from stemrepro.data.encoding import write_blocks
    from stemrepro.data.tokenizer import train_tokenizer

    out.mkdir(parents=True, exist_ok=True)
    for size in sizes:
        train_tokenizer(corpus, size, out / str(size) / "tokenizer.json")
        write_blocks(corpus, out / str(size) / "tokenizer.json", out / str(size) / "blocks")


def write_people(mix: InventedMix, sizes: list[int], tokenizer_file: Path, out: Path) -> None:
    """Write `out`/<size>/corpus.parquet and blocks for each number of people; ValueError: there are fewer names."""
    from stemrepro.data.encoding import write_blocks
    from stemrepro.data.invented import invented_documents

    out.mkdir(parents=True, exist_ok=True)
    for size in sizes:
        made = invented_documents(mix.names, mix.attributes, mix.values, size, mix.exposures)
        rows = [{"source": d.source, "id": d.id, "split": split, "text": d.text} for d, split in made]
        store_corpus(rows, out / str(size) / "corpus.parquet")
        write_blocks(out / str(size) / "corpus.parquet", tokenizer_file, out / str(size) / "blocks")


@dataclass(frozen=True)
class Text:
    """Token blocks in some vocabulary; `ratio`: tokens of a text in it / in the scale's own."""

    blocks: Path
    data_hash: str
    ratio: float = 1.0


def _made(blocks: Path, data: Path) -> Path:
    if not (blocks / "index.json").exists():
        raise UserError(f"{blocks} has no text yet; run 'stemrepro data --scale {data.name}' first")
    return blocks


def mid_text(data: Path) -> Text:
    """Return the blend of a scale with other texts. UserError: blocks are missing or garbled."""
    blocks = _made(data / "mid" / "blocks", data)
    return Text(blocks, verified_hash(blocks))


def own_text(vocab: int, data: Path, people: int = 0) -> Text:
    """Return the text of a scale in a vocabulary of `vocab` tokens, or about so many invented people, if any.

    `data` has `blocks` of the scale itself, others below `vocabularies` and `people`. UserError: they are missing.
    """
    if people:
        blocks = _made(data / "people" / str(people) / "blocks", data)
        return Text(blocks, verified_hash(blocks))
    scale_blocks = _made(data / "blocks", data)
    hashed = verified_hash(scale_blocks)
    if read_index(scale_blocks)["vocab"] == vocab:
        return Text(scale_blocks, hashed)
    blocks = _made(data / "vocabularies" / str(vocab) / "blocks", data)
    # Every vocabulary has the same training documents.
    tokens = [read_index(folder)["splits"]["train"]["tokens"] for folder in (blocks, scale_blocks)]
    return Text(blocks, verified_hash(blocks), tokens[0] / tokens[1])
