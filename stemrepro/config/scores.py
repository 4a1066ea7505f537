"""The kinds of scores: their tables, and the settings of each.

A new kind has an entry here, and a file of stemrepro/evaluation/ that makes it.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from stemrepro.common.yaml_records import Fraction, Positive, Strict, later


class Evaluation(Strict):
    """How runs of a scale are scored."""

    tokens: Positive = Field(description="validation tokens per source")
    batch: Positive = Field(description="sequences at once")


class Benchmarks(Strict):
    """How runs of a scale are scored on the benchmarks that its recipes name."""

    items: Positive = Field(description="items per task, at most")
    batch: Positive = Field(description="sequences at once")
    hub: bool = Field(False, description="lm-eval's own tasks from the Hugging Face hub, not the archive's")
    tasks: tuple[str, ...] | None = later(None, description="the only ones that are scored; all when left out")


@dataclass(frozen=True)
class PlannedTasks:
    """How runs are scored on which benchmarks: `tasks` are those that recipes name and the mix has, as lm-eval does."""

    items: int
    batch: int
    hub: bool
    tasks: tuple[str, ...]


@dataclass(frozen=True)
class PlannedReasoning:
    """How runs are scored on which tasks of reasoning: lm-eval's metric by its name of a task or group.

    There are none without the hub.
    """

    items: int
    batch: int
    tasks: dict[str, str]


@dataclass(frozen=True, kw_only=True)
class Geometry:
    """How the vectors of a model are compared."""

    tokens: Positive  # distinct tokens, one occurrence each, whose FFN vectors are compared
    bins: Positive  # of a density between cosines -1 and 1


@dataclass(frozen=True, kw_only=True)
class Knowledge:
    """How a model is asked for facts, and how it is edited; of scales whose text is a mix of facts."""

    pairs: Positive  # of countries, of each kind of lengths, that are edited
    batch: Positive  # prompts at once


Several = Annotated[tuple[Positive, ...], Field(min_length=1)]


@dataclass(frozen=True, kw_only=True)
class Recall:
    """How recall in context is tested; of scales whose text is a mix of keys and values."""

    pairs: Several  # numbers of pairs
    lengths: Several  # tokens of a document; a quarter of them at most are given pairs
    documents: Positive  # of each number and length
    batch: Positive  # documents at once


@dataclass(frozen=True, kw_only=True)
class Haystack:
    """How a needle is asked for; of scales whose text is a mix of needles."""

    lengths: Several  # tokens of what is read, the question with it
    # Of the needle: 0 where the row begins, 1 before the question.
    depths: Annotated[tuple[Fraction, ...], Field(min_length=1)]
    rows: Positive  # of each length and depth
    batch: Positive  # rows at once


class OfSomeScales(Strict):
    """Settings of kinds of scores that not every scale has."""

    knowledge: Knowledge | None = later(None)
    recall: Recall | None = later(None)
    haystack: Haystack | None = later(None)


FILES = {
    "tokenizer_file": "{scale}/tokenizer.json",
    "facts": "{mix}/corpus/facts.json",
    "corpus": "{mix}/corpus/corpus.parquet",
    "items": "{mix}/items",
    "blend": "{scale}/mid/blocks/index.json",
}
"""What scoring reads below data/, by argument."""


@dataclass(frozen=True)
class Column:
    """What a column of a score table may hold; no column has gaps. `most` may be another column of the same row."""

    kind: Literal["text", "whole", "number", "flag"]  # "text", "whole", "number" or "flag"
    least: float = -math.inf  # of numbers
    most: float | str = math.inf
    key: bool = False  # whether it is of those that name a row, so that no two rows of an arm agree in all of them


Table = dict[str, Column]
"""The columns of a table by name, in order, after `variant` and `arm`, which every table has."""
NAMED, NUMBERED = Column("text", key=True), Column("whole", least=0, key=True)
TEXT, FLAG, NUMBER = Column("text"), Column("flag"), Column("number")
COUNT, POSITIVE = Column("whole", least=0), Column("number", least=0)
SHARE, COSINE, PERCENT = Column("number", 0, 1), Column("number", -1, 1), Column("number", 0, 100)
SHARE_KEY, FLAG_KEY = Column("number", 0, 1, key=True), Column("flag", key=True)


def by_seed(**columns: Column) -> Table:
    """Return a table with a column `seed` before the others."""
    return {"seed": NUMBERED, **columns}


def up_to(column: str) -> Column:
    """Return a count that another column bounds."""
    return Column("whole", least=0, most=column)


@dataclass(frozen=True)
class ScoreKind:
    """A kind of scores; `more` gives further arguments, from the scale's settings, its mix and the planned runs."""

    tables: dict[str, Table]  # files of scores/<scale>/ with its numbers, by name; a name belongs to one kind
    setting: str | None = None  # field of a scale that says how it is made, the argument `asked`; a scale must have it
    mix: str | None = None  # kind of the text that it needs
    files: tuple[str, ...] = ()  # arguments of FILES
    more: Callable[[Any, Any, Any], dict[str, object]] = lambda scale, mix, planned: {}
    tasks: bool = False  # whether it is about the recipe's tasks
    at_variants: bool = False  # whether a recipe may want it at variants


SCORE_KINDS = {
    "losses": ScoreKind(
        {
            "losses": by_seed(by=NAMED, source=NAMED, bucket=NAMED, tokens=COUNT, nats=POSITIVE, bytes=COUNT),
            "documents": {"seeds": NUMBERED, "document": NUMBERED, "source": TEXT, "tokens": COUNT, "nats": POSITIVE},
            "curve": by_seed(tokens=NUMBERED, source=NAMED, flops=POSITIVE, train=POSITIVE, nats=POSITIVE),
            "context": by_seed(document=NUMBERED, what=NAMED, at=NUMBERED, source=TEXT, tokens=COUNT, nats=POSITIVE),
            "tokens": by_seed(token=NUMBERED, tokens=COUNT, nats=POSITIVE, seen=COUNT),
            "steps": by_seed(step=NUMBERED, loss=POSITIVE, norm=POSITIVE),
        },
        "evaluation",
        at_variants=True,
        more=lambda scale, mix, planned: {"wanted": planned.losses},
    ),
    "benchmarks": ScoreKind(
        {
            "benchmarks": by_seed(task=NAMED, item=NUMBERED, cluster=TEXT, gold=COUNT)
            | dict.fromkeys(("acc", "acc_norm", "answer_acc", "answer_acc_norm"), FLAG)
            | {"margin": NUMBER, "seen": COUNT}
        },
        "benchmarks",
        files=("items", "tokenizer_file"),
        tasks=True,
    ),
    "geometry": ScoreKind(
        {
            "cosines": by_seed(share=SHARE_KEY, layer=NUMBERED, what=NAMED, bucket=NAMED, centred=FLAG_KEY)
            | {"vectors": COUNT, "p95": SHARE, "mean": COSINE, "mode": COSINE, "peak": POSITIVE},
            "density": {"what": NAMED, "layer": NUMBERED, "bin": NUMBERED, "density": POSITIVE},
            "spread": by_seed(token=NUMBERED, spread=SHARE),
        },
        "geometry",
        more=lambda scale, mix, planned: {"tokens": scale.evaluation.tokens},
    ),
    "facts": ScoreKind(
        {
            "facts": {"fact": NUMBERED, "entity": TEXT, "relation": TEXT, "answer": TEXT}
            | dict.fromkeys(("told", "ambiguous", "rare"), FLAG),
            "answers": by_seed(fact=NUMBERED, prompt=NUMBERED, nats=POSITIVE, first=FLAG),
        },
        "knowledge",
        files=("facts", "tokenizer_file"),
    ),
    "edits": ScoreKind(
        {
            "cases": {"case": NUMBERED, "source": TEXT, "target": TEXT, "relation": TEXT, "lengths": TEXT}
            | {"source_tokens": COUNT, "target_tokens": COUNT, "ambiguous": FLAG, "rare": FLAG},
            "known": by_seed(case=NUMBERED, known=FLAG),
            "edits": by_seed(method=NAMED, case=NUMBERED, success=FLAG, kept=FLAG, new=SHARE, old=SHARE)
            | {"to_target": NUMBER, "to_source": NUMBER},
        },
        "knowledge",
        files=("facts", "tokenizer_file"),
    ),
    "recall": ScoreKind(
        {
            "recall": by_seed(pairs=NUMBERED, length=NUMBERED, queries=COUNT, right=up_to("queries"))
            | {"first_queries": COUNT, "first_right": up_to("first_queries")}
        },
        "recall",
        "recall",
        ("tokenizer_file",),
        more=lambda scale, mix, planned: {"keys": mix.keys, "values": mix.values},
    ),
    "capacity": ScoreKind(
        {
            "capacity": by_seed(
                people=COUNT, facts=COUNT, bits=POSITIVE, known=Column("number", most="bits"), first=SHARE
            )
        },
        None,
        "invented",
        ("tokenizer_file",),
        at_variants=True,
        more=lambda scale, mix, planned: {"mix": mix, "count": planned.people or mix.people},
    ),
    "haystack": ScoreKind(
        {
            "haystack": by_seed(length=NUMBERED, depth=SHARE_KEY, rows=COUNT)
            | dict.fromkeys(("chosen", "generated", "other"), up_to("rows"))
            | {"nats": POSITIVE}
        },
        "haystack",
        "needles",
        ("corpus", "tokenizer_file"),
        at_variants=True,
        more=lambda scale, mix, planned: {"mix": mix},
    ),
    "distance": ScoreKind(
        {
            "distance": by_seed(by=NAMED, document=NUMBERED, at=NUMBERED, source=TEXT, tokens=COUNT, nats=POSITIVE),
            "words": by_seed(token=NUMBERED, at=NUMBERED, tokens=COUNT, nats=POSITIVE),
        },
        "evaluation",
    ),
    "elsewhere": ScoreKind(
        {"elsewhere": by_seed(source=NAMED, tokens=COUNT, nats=POSITIVE, bytes=COUNT)}, "evaluation", files=("blend",)
    ),
    "reasoning": ScoreKind(
        {
            "reasoning": by_seed(task=NAMED, item=NUMBERED, cluster=TEXT, value=PERCENT)
            | {"length": COUNT, "floor": PERCENT, "cut": FLAG}
        },
        "reasoning",
        files=("tokenizer_file",),
        tasks=True,
        at_variants=True,
    ),
}
"""By the name of a file of stemrepro/evaluation/, whose docstring says what its columns are."""
if TYPE_CHECKING:
    KindName = str
    RecipeScore = str
    VariantScore = str
else:  # a type checker can't read these names from the table
    KindName = Literal[*SCORE_KINDS]
    RecipeScore = Literal["context", "steps", *SCORE_KINDS]
    VariantScore = Literal["steps", *(name for name, kind in SCORE_KINDS.items() if kind.at_variants)]
LOSSES = ("steps", "losses", "context")
"""Scores that lie in the kind "losses"; context has losses too."""
