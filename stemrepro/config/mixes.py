"""Where text may come from, as typed records (recipes/mixes.yaml)."""

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from stemrepro.common.errors import UserError
from stemrepro.common.yaml_records import Fraction, Name, Positive, Strict, later, parse
from stemrepro.config.sources import SOURCES


class ArchiveMix(Strict):
    """Text of the pinned archives."""

    kind: Literal["archives"]
    sources: tuple[str, ...] = Field(min_length=1, description="names of stemrepro/config/sources.py, in reading order")
    near_duplicates: Literal["documents", "passages"] = Field(
        "documents", description="what is compared: documents within a source, or passages across the whole mix"
    )

    @field_validator("sources")
    @classmethod
    def _in_archives(cls, sources: tuple[str, ...]) -> tuple[str, ...]:
        for source in sources:
            if source not in SOURCES:
                raise ValueError(f"there is no source '{source}'; choose one of {', '.join(SOURCES)}")
        if len(set(sources)) < len(sources):
            raise ValueError("a source is named twice; name each once")
        return sources


class SampleMix(Strict):
    """Text vendored with the package."""

    kind: Literal["sample"]
    file: Literal["documents", "mathematics", "code"] = later("documents", description="prose, or text of another kind")


class HubMix(Strict):
    """A dataset of the Hugging Face hub, or a local folder that `datasets.load_dataset` reads."""

    kind: Literal["hub"]
    dataset: str = Field(min_length=1, description="owner/name, or a folder")
    config: str | None = Field(None, description="the dataset's configuration")
    split: str = "train"
    revision: str = Field("main", description="branch, tag or commit; the commit read is recorded")
    streaming: bool = Field(True, description="read only as much as is needed, without downloading the rest")
    text: str = Field("text", description="column that holds a document's text")
    megabytes: Positive = Field(description="text to take, in the dataset's order")
    document: Literal["file", "line"] = later(
        "file", description="what a document is in .txt files; elsewhere a row is one"
    )
    sample: Positive | None = later(
        None, description="kilobytes of it in corpus.parquet; for a text that memory can't hold (stemrepro.data.large)"
    )
    licence: str
    attribution: str

    @model_validator(mode="after")
    def _streamed(self) -> "HubMix":
        if self.sample and not self.streaming:
            raise ValueError("a mix with a sample is read as it streams; leave streaming out")
        return self

    @property
    def local(self) -> bool:
        """Whether it is a folder on this machine."""
        return Path(self.dataset).is_dir()


class ProseMix(Strict):
    """What is made of prose, and where that is from."""

    vendored: bool = Field(False, description="all of the vendored sample; no download")
    sources: tuple[str, ...] = Field(
        (), description="prose, by names of stemrepro/config/sources.py; none with `vendored`"
    )

    @model_validator(mode="after")
    def _has_prose(self) -> Self:
        if self.vendored == bool(self.sources):
            raise ValueError("a mix with prose has either `sources` of it or `vendored: true`")
        if strange := [source for source in self.sources if source not in SOURCES]:
            raise ValueError(f"there is no source '{strange[0]}'; choose one of {', '.join(SOURCES)}")
        return self


class FactsMix(ProseMix):
    """Facts about countries in many wordings, mixed with prose (stemrepro.data.atlas)."""

    kind: Literal["facts"]
    kilobytes: Positive = Field(description="of prose, in an order that has nothing to do with content")
    entities: Positive = Field(description="countries")
    always: tuple[str, ...] = Field((), description="countries that are among them in any case")
    repeats: Positive = Field(description="how often the training split states a fact")
    untold: Fraction = Field(description="share of each relation's facts that it doesn't state")
    whole: Fraction = Field(description="share of the one-word names that are one token; others are several")

    @model_validator(mode="after")
    def _fits(self) -> "FactsMix":
        if len(self.always) > self.entities:
            raise ValueError(f"always names {len(self.always)} countries, entities is {self.entities}")
        return self


MOST_WORDS = (14 * 5) ** 2
"""Words that stemrepro.data.recall can make up."""


class RecallMix(Strict):
    """Keys and values to be recalled in context (stemrepro.data.recall)."""

    kind: Literal["recall"]
    keys: Positive = Field(description="words that are keys")
    values: Positive = Field(description="words that are values")
    pairs: tuple[Positive, ...] = Field(min_length=1, description="numbers of pairs of a document, in turn")
    length: Positive = Field(description="tokens of a document with its end mark: the scale's sequence")
    documents: Positive = Field(description="of the training split")

    @model_validator(mode="after")
    def _fits(self) -> "RecallMix":
        if self.keys + self.values > MOST_WORDS:
            raise ValueError(f"{self.keys} keys and {self.values} values: there are {MOST_WORDS} words")
        if self.length % 2 == 0:
            raise ValueError(f"length {self.length}: pairs and an end mark are an odd number of tokens")
        if max(self.pairs) > min(self.keys, self.length // 4):
            raise ValueError(
                f"pairs {max(self.pairs)}: more than there are keys ({self.keys}) or a quarter of length {self.length}"
            )
        return self


class InventedMix(Strict):
    """People who don't exist, and facts about each (stemrepro.data.invented)."""

    kind: Literal["invented"]
    names: Positive = Field(description="first names, and as many last names")
    attributes: Positive = Field(description="that every person has")
    values: Positive = Field(description="of an attribute")
    people: Positive = Field(description="that the scale's own text tells of; variants take other numbers")
    exposures: Positive = Field(description="how often each is told of")

    @model_validator(mode="after")
    def _fits(self) -> "InventedMix":
        if (count := 2 * self.names + self.attributes * (1 + self.values)) > MOST_WORDS:
            raise ValueError(f"names, attributes and values are {count} words; there are {MOST_WORDS}")
        if self.people > self.names**2:
            raise ValueError(f"people {self.people}: {self.names} first and last names make {self.names**2}")
        return self

    @property
    def length(self) -> int:
        """Tokens of a document: two of the name, two per attribute, and the end mark."""
        return 2 + 2 * self.attributes + 1


class NeedlesMix(ProseMix):
    """Words with values between the clauses of prose (stemrepro.data.needles)."""

    kind: Literal["needles"]
    plain: Positive = Field(description="kilobytes of prose without needles, from which the vocabulary is made")
    kilobytes: Positive = Field(description="of prose with needles between its clauses")
    keys: Positive = Field(description="words that are keys")
    values: Positive = Field(description="words that are values")
    of_document: tuple[Positive, ...] = Field(min_length=1, description="keys of a document, one of these by chance")
    clauses: Positive = Field(description="of a document")
    needles: Positive = Field(description="after a clause, at most; one at least")
    bare: Fraction = Field(description="share of the documents that are keys and values alone")

    @model_validator(mode="after")
    def _fits(self) -> "NeedlesMix":
        if self.keys + self.values > MOST_WORDS:
            raise ValueError(f"{self.keys} keys and {self.values} values: there are {MOST_WORDS} words")
        if max(self.of_document) > self.keys:
            raise ValueError(f"of_document {max(self.of_document)}: more than there are keys ({self.keys})")
        if self.bare == 1:
            raise ValueError("bare 1: without prose there is nothing to hide a needle in; it must be below 1")
        return self


class BlendPart(Strict):
    """Text of another kind, and its share."""

    share: Fraction = Field(description="of the training tokens")
    mix: Annotated[ArchiveMix | SampleMix | HubMix, Field(discriminator="kind")]


class BlendMix(Strict):
    """A scale's own text with text of other kinds, for a later stage of training (stemrepro.data.blend)."""

    kind: Literal["blend"]
    own: Fraction = Field(description="share of the scale's own text, of the training tokens")
    parts: dict[Name, BlendPart] = Field(min_length=1, description="the other texts; their names become their sources'")

    @model_validator(mode="after")
    def _whole(self) -> "BlendMix":
        if taken := {"own", "prose", "all"} & self.parts.keys():
            raise ValueError(f"a part can't be called '{min(taken)}'; results call the own text or means so")
        if abs((total := self.own + sum(part.share for part in self.parts.values())) - 1) > 1e-6:
            raise ValueError(f"the shares of own and parts come to {total:g}; they must come to 1")
        return self


Mix = ArchiveMix | SampleMix | HubMix | FactsMix | RecallMix | InventedMix | NeedlesMix
MIX_KINDS: dict[str, type[Mix | BlendMix]] = {
    "archives": ArchiveMix, "sample": SampleMix, "hub": HubMix, "facts": FactsMix, "recall": RecallMix,
    "invented": InventedMix, "needles": NeedlesMix, "blend": BlendMix,
}  # fmt: skip
MADE = ("facts", "recall", "invented", "needles")
"""Kinds whose text is made for a recipe; they have no benchmark items."""


def in_the_sample(mix: Mix) -> bool:
    """Tell whether all that a mix reads lies in the vendored sample."""
    return mix.kind == "sample" or (mix.kind in ("facts", "needles") and mix.vendored)


def is_large(mix: Mix | BlendMix) -> bool:
    """Tell whether the training text of a mix is never in memory as a whole, and its token blocks are in shards."""
    return isinstance(mix, HubMix) and mix.sample is not None


def parse_mix(value: object, file: Path, name: str) -> Mix | BlendMix:
    """Read one entry of mixes.yaml as a record of its `kind`."""
    kind = value.get("kind") if isinstance(value, dict) else None
    if kind not in MIX_KINDS:
        raise UserError(f"{file}: {name}.kind: choose one of {', '.join(MIX_KINDS)} (got {kind!r})")
    return parse(MIX_KINDS[kind], value, file, name)
