"""The kinds of scores: the one table of them, and the settings of each.

A new kind has a line here, a file of stemrepro/evaluation/ that makes it and one of stemrepro/measures/ that reads it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from stemrepro.common.yaml_records import Positive, Strict, later


class Evaluation(Strict):
    """How runs of a scale are scored."""

    tokens: Positive = Field(description="validation tokens per source")
    batch: Positive = Field(description="sequences at once")


class Benchmarks(Strict):
    """How runs of a scale are scored on the benchmarks that its recipes name."""

    items: Positive = Field(description="items per task, at most")
    batch: Positive = Field(description="sequences at once")
    hub: bool = Field(False, description="lm-eval's own tasks from the Hugging Face hub, not the archive's")


class PlannedTasks(Benchmarks):
    """How runs are scored on which benchmarks."""

    tasks: tuple[str, ...] = Field(description="those that the recipes name and the mix has, by lm-eval's name")


class PlannedReasoning(Strict):
    """How runs are scored on which tasks of reasoning."""

    items: Positive = Field(description="items per task, at most")
    batch: Positive = Field(description="sequences at once")
    tasks: dict[str, str] = Field(description="lm-eval's metric, by its name of a task or group; empty without the hub")


class Geometry(Strict):
    """How the vectors of a model are compared."""

    tokens: Positive = Field(description="distinct tokens, one occurrence each, whose FFN vectors are compared")
    bins: Positive = Field(description="bins of a density between cosines -1 and 1")


class Knowledge(Strict):
    """How a model is asked for facts, and how it is edited; of scales whose text is a mix of facts."""

    pairs: Positive = Field(description="pairs of countries of each kind of lengths that are edited")
    batch: Positive = Field(description="prompts at once")


class Recall(Strict):
    """How recall in context is tested; of scales whose text is a mix of keys and values."""

    pairs: tuple[Positive, ...] = Field(min_length=1, description="numbers of pairs")
    lengths: tuple[Positive, ...] = Field(
        min_length=1, description="tokens of a document; a quarter of them at most are given pairs"
    )
    documents: Positive = Field(description="of each number and length")
    batch: Positive = Field(description="documents at once")


class Haystack(Strict):
    """How a needle is asked for; of scales whose text is a mix of needles."""

    lengths: tuple[Positive, ...] = Field(min_length=1, description="tokens of what is read, the question with it")
    depths: tuple[Annotated[float, Field(ge=0, le=1)], ...] = Field(
        min_length=1, description="of the needle: 0 where the row begins, 1 before the question"
    )
    rows: Positive = Field(description="of each length and depth")
    batch: Positive = Field(description="rows at once")


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
}
"""What scoring reads below data/, by argument."""


@dataclass(frozen=True)
class ScoreKind:
    """A kind of scores.

    Attributes:
        setting: field of a scale that says how it is made, the argument `asked`; a scale must have it.
        mix: kind of the text that it needs.
        files: arguments of FILES.
        more: further arguments, from the scale's settings, its mix and the planned runs.
        tasks: whether it is about the recipe's tasks.
        at_variants: whether a recipe may want it at variants.
    """

    setting: str | None = None
    mix: str | None = None
    files: tuple[str, ...] = ()
    more: Callable[[Any, Any, Any], dict[str, object]] = lambda scale, mix, planned: {}
    tasks: bool = False
    at_variants: bool = False


SCORE_KINDS = {
    "losses": ScoreKind(
        "evaluation", at_variants=True, more=lambda scale, mix, planned: {"wanted": planned.losses}
    ),
    "benchmarks": ScoreKind("benchmarks", files=("items", "tokenizer_file"), tasks=True),
    "geometry": ScoreKind("geometry", more=lambda scale, mix, planned: {"tokens": scale.evaluation.tokens}),
    "facts": ScoreKind("knowledge", files=("facts", "tokenizer_file")),
    "edits": ScoreKind("knowledge", files=("facts", "tokenizer_file")),
    "recall": ScoreKind(
        "recall", "recall", ("tokenizer_file",),
        more=lambda scale, mix, planned: {"keys": mix.keys, "values": mix.values},
    ),
    "capacity": ScoreKind(
        None, "invented", ("tokenizer_file",), at_variants=True,
        more=lambda scale, mix, planned: {"mix": mix, "count": planned.people or mix.people},
    ),
    "haystack": ScoreKind(
        "haystack", "needles", ("corpus", "tokenizer_file"), at_variants=True,
        more=lambda scale, mix, planned: {"mix": mix},
    ),
    "distance": ScoreKind("evaluation"),
    "reasoning": ScoreKind("reasoning", files=("tokenizer_file",), tasks=True, at_variants=True),
}  # fmt: skip
"""By the name of a folder of scores and a file of stemrepro/evaluation/, whose docstring says what they are."""
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
