"""Where text may come from, as typed records (recipes/mixes.yaml)."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from stemrepro.common.errors import UserError
from stemrepro.common.yaml_records import Fraction, Name, Positive, added_later, parse
from stemrepro.config.sources import SOURCES

Some = Annotated[tuple[Positive, ...], Field(min_length=1)]
Text = Annotated[str, Field(min_length=1)]


def _in_archives(sources: tuple[str, ...]) -> tuple[str, ...]:
    if strange := [source for source in sources if source not in SOURCES]:
        raise ValueError(f"there is no source '{strange[0]}'; choose one of {', '.join(SOURCES)}")
    if len(set(sources)) < len(sources):
        raise ValueError("a source is named twice; name each once")
    return sources


Sources = Annotated[tuple[str, ...], AfterValidator(_in_archives)]


@dataclass(frozen=True, kw_only=True)
class ArchiveMix:
    """Text of the pinned archives. Near duplicates are documents within a source, or passages across the whole mix."""

    kind: Literal["archives"]
    sources: Annotated[Sources, Field(min_length=1)]  # names of stemrepro/config/sources.py, in reading order
    near_duplicates: Literal["documents", "passages"] = "documents"


@dataclass(frozen=True, kw_only=True)
class SampleMix:
    """Text vendored with the package: prose ("documents"), or text of another kind."""

    kind: Literal["sample"]
    file: Annotated[Literal["documents", "mathematics", "code"], added_later("documents")] = "documents"


@dataclass(frozen=True, kw_only=True)
class HubMix:
    """A dataset of the Hugging Face hub, or a local folder that `datasets.load_dataset` reads.

    A document is a row, or what `document` says of .txt files. Of a text that memory can't hold (stemrepro.data.large),
    `sample` kilobytes are in corpus.parquet.
    """

    kind: Literal["hub"]
    dataset: Text  # owner/name, or a folder
    config: str | None = None  # the dataset's configuration
    split: str = "train"
    revision: str = "main"  # branch, tag or commit; the commit read is recorded
    streaming: bool = True  # read only as much as is needed, without downloading the rest
    text: str = "text"  # column that holds a document's text
    megabytes: Positive  # text to take, in the dataset's order
    document: Annotated[Literal["file", "line"], added_later("file")] = "file"
    sample: Annotated[Positive | None, added_later(None)] = None
    licence: str
    attribution: str

    def __post_init__(self) -> None:
        if self.sample and not self.streaming:
            raise ValueError("a mix with a sample is read as it streams; leave streaming out")

    @property
    def local(self) -> bool:
        """Whether it is a folder on this machine."""
        return Path(self.dataset).is_dir()


def _check_prose(vendored: bool, sources: tuple[str, ...]) -> None:
    if vendored == bool(sources):
        raise ValueError("a mix with prose has either `sources` of it or `vendored: true`")


@dataclass(frozen=True, kw_only=True)
class FactsMix:
    """Facts about countries in many wordings, mixed with prose (stemrepro.data.atlas)."""

    vendored: bool = False  # all of the vendored sample; no download
    sources: Sources = ()  # prose, by names of stemrepro/config/sources.py; none with `vendored`
    kind: Literal["facts"]
    kilobytes: Positive  # of prose, in an order that has nothing to do with content
    entities: Positive  # countries
    always: tuple[str, ...] = ()  # countries that are among them in any case
    repeats: Positive  # how often the training split states a fact
    untold: Fraction  # share of each relation's facts that it doesn't state
    whole: Fraction  # share of the one-word names that are one token; others are several

    def __post_init__(self) -> None:
        _check_prose(self.vendored, self.sources)
        if len(self.always) > self.entities:
            raise ValueError(f"always names {len(self.always)} countries, entities is {self.entities}")


MOST_WORDS = (14 * 5) ** 2
"""Words that stemrepro.data.recall can make up."""


@dataclass(frozen=True, kw_only=True)
class RecallMix:
    """Keys and values to be recalled in context (stemrepro.data.recall)."""

    kind: Literal["recall"]
    keys: Positive  # words that are keys
    values: Positive  # words that are values
    pairs: Some  # numbers of pairs of a document, in turn
    length: Positive  # tokens of a document with its end mark: the scale's sequence
    documents: Positive  # of the training split

    def __post_init__(self) -> None:
        if self.keys + self.values > MOST_WORDS:
            raise ValueError(f"{self.keys} keys and {self.values} values: there are {MOST_WORDS} words")
        if self.length % 2 == 0:
            raise ValueError(f"length {self.length}: pairs and an end mark are an odd number of tokens")
        if max(self.pairs) > min(self.keys, self.length // 4):
            bound = f"more than there are keys ({self.keys}) or a quarter of length {self.length}"
            raise ValueError(f"pairs {max(self.pairs)}: {bound}")


@dataclass(frozen=True, kw_only=True)
class InventedMix:
    """People who don't exist, and facts about each (stemrepro.data.invented)."""

    kind: Literal["invented"]
    names: Positive  # number of first names, and of last names
    attributes: Positive  # that every person has
    values: Positive  # of an attribute
    people: Positive  # that the scale's own text tells of; variants take other numbers
    exposures: Positive  # how often each is told of

    def __post_init__(self) -> None:
        if (count := 2 * self.names + self.attributes * (1 + self.values)) > MOST_WORDS:
            raise ValueError(f"names, attributes and values are {count} words; there are {MOST_WORDS}")
        if self.people > self.names**2:
            raise ValueError(f"people {self.people}: {self.names} first and last names make {self.names**2}")

    @property
    def length(self) -> int:
        """Tokens of a document: two of the name, two per attribute, and the end mark."""
        return 2 + 2 * self.attributes + 1


@dataclass(frozen=True, kw_only=True)
class NeedlesMix:
    """Words with values between the clauses of prose (stemrepro.data.needles)."""

    vendored: bool = False  # as in FactsMix
    sources: Sources = ()
    kind: Literal["needles"]
    plain: Positive  # kilobytes of prose without needles, from which the vocabulary is made
    kilobytes: Positive  # of prose with needles between its clauses
    keys: Positive  # words that are keys
    values: Positive  # words that are values
    of_document: Some  # keys of a document, one of these by chance
    clauses: Positive  # of a document
    needles: Positive  # after a clause, at most; one at least
    bare: Fraction  # share of the documents that are keys and values alone

    def __post_init__(self) -> None:
        _check_prose(self.vendored, self.sources)
        if self.keys + self.values > MOST_WORDS:
            raise ValueError(f"{self.keys} keys and {self.values} values: there are {MOST_WORDS} words")
        if max(self.of_document) > self.keys:
            raise ValueError(f"of_document {max(self.of_document)}: more than there are keys ({self.keys})")
        if self.bare == 1:
            raise ValueError("bare 1: without prose there is nothing to hide a needle in; it must be below 1")


@dataclass(frozen=True, kw_only=True)
class BlendPart:
    """Text of another kind, and its share of the training tokens."""

    share: Fraction
    mix: Annotated[ArchiveMix | SampleMix | HubMix, Field(discriminator="kind")]


@dataclass(frozen=True, kw_only=True)
class BlendMix:
    """A scale's own text with text of other kinds, for a later stage of training (stemrepro.data.blend)."""

    kind: Literal["blend"]
    own: Fraction  # share of the scale's own text, of the training tokens
    parts: Annotated[dict[Name, BlendPart], Field(min_length=1)]  # the other texts; their names become their sources'

    def __post_init__(self) -> None:
        if taken := {"own", "prose", "all"} & self.parts.keys():
            raise ValueError(f"a part can't be called '{min(taken)}'; results call the own text or means so")
        if abs((total := self.own + sum(part.share for part in self.parts.values())) - 1) > 1e-6:
            raise ValueError(f"the shares of own and parts come to {total:g}; they must come to 1")


Mix = ArchiveMix | SampleMix | HubMix | FactsMix | RecallMix | InventedMix | NeedlesMix
MIX_KINDS: dict[str, type[Mix | BlendMix]] = {
    "archives": ArchiveMix,
    "sample": SampleMix,
    "hub": HubMix,
    "facts": FactsMix,
    "recall": RecallMix,
    "invented": InventedMix,
    "needles": NeedlesMix,
    "blend": BlendMix,
}
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
