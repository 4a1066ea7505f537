"""Texts about other numbers of invented people, for variants of recipes, in the scale's own vocabulary."""

from pathlib import Path

from stemrepro.config.mixes import InventedMix
from stemrepro.data.encoding import write_blocks
from stemrepro.data.integrity import store_corpus
from stemrepro.data.invented import invented_documents


def write_people(mix: InventedMix, sizes: list[int], tokenizer_file: Path, out: Path) -> None:
    """Write `out`/<size>/corpus.parquet and `out`/<size>/blocks for each number of people.

    Raises:
        ValueError: there are fewer names than people.
    """
    out.mkdir(parents=True, exist_ok=True)
    for size in sizes:
        made = invented_documents(mix.names, mix.attributes, mix.values, size, mix.exposures)
        rows = [
            {"source": document.source, "id": document.id, "split": split, "text": document.text}
            for document, split in made
        ]
        folder = out / str(size)
        store_corpus(rows, folder / "corpus.parquet")
        write_blocks(folder / "corpus.parquet", tokenizer_file, folder / "blocks")
