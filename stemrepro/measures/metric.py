"""Metrics: what a measure declares, and the string of a recipe read as one of them.

A metric is words with ':', '@' or '>' between them, as in "score:boolq@mid". A method of a measure declares its spelling,
"score:{task}[@{variant}]". The method gets what is in braces; what is in brackets may be left out. "{score=margin}" is the word "margin"
alone, which the method gets too.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from stemrepro.common.errors import UserError, unknown
from stemrepro.config.catalog import Catalog
from stemrepro.config.recipe import Recipe

SEPARATORS = re.compile("([:@>])")
END = ""
"""What follows a metric's last word in place of a separator."""
LOSS_UNIT = "nats/token"


class Like(NamedTuple):
    """A word that no list holds, as a number.

    Attributes:
        read: makes its value; ValueError where it can't.
        example: one such word.
    """

    read: Callable[[str], object]
    example: str


WHOLE, NUMBER, NAME = Like(int, "8"), Like(float, "0.1"), Like(str, "name")
Choices = Iterable[str] | Mapping[str, object] | Like
"""What a word may be; of a mapping the method gets the value."""
Field = Choices | Callable[[Catalog, Recipe], Choices]


class Place(NamedTuple):
    """A word of a spelling, or what is between two: its choices, and the name by which the method gets it, if it does."""

    name: str
    field: Field


@dataclass(frozen=True, eq=False)
class Metric:
    """What a measure can be asked for.

    Attributes:
        spelling: see above.
        words: what it is.
        method: of the measure, (high, low, **fields) -> Contrast; of an exact one (**fields) -> float.
        exact: is it a number without arms, seeds and chance?
        elsewhere: is it also taken in other settings? The method then takes `setting`.
    """

    spelling: str
    words: str
    method: Callable
    exact: bool = False
    robustness: bool = False

    def ways(self, fields: Mapping[str, Field]) -> Iterator[list[Place]]:
        """Write out the spelling for each choice of its brackets."""
        yield from (
            [_place(part, fields) for part in (*SEPARATORS.split(spelling), END)]
            for spelling in _written(self.spelling)
        )


def _written(spelling: str) -> list[str]:
    before, bracket, rest = spelling.partition("[")
    inside, _, after = rest.partition("]")
    return _written(before + after) + _written(before + inside + after) if bracket else [spelling]


def _place(part: str, fields: Mapping[str, Field]) -> Place:
    name, _, word = part.strip("{}").partition("=")
    if not part.startswith("{"):
        return Place("", (part,))
    return Place(name, (word,) if word else fields[name])


class Asked(NamedTuple):
    """A metric with its fields."""

    metric: Metric
    fields: dict[str, object]


def metric(spelling: str, words: str, **kinds: bool) -> Callable[[Callable], Callable]:
    """Declare a method of a measure as that of a metric; see Metric."""

    def declared(method: Callable) -> Callable:
        method.declares = [Metric(spelling, words, method, **kinds), *getattr(method, "declares", ())]
        return method

    return declared


def metrics_of(measure: type) -> list[Metric]:
    """List a measure's metrics, its parents' first. A method that overrides one declares its metrics anew."""
    methods = {name: getattr(measure, name) for kind in reversed(measure.__mro__) for name in vars(kind)}
    return [own for method in methods.values() for own in getattr(method, "declares", ())]


def parse(measure: type, text: str, catalog: Catalog, recipe: Recipe) -> Asked:
    """Read the metric of a recipe; UserError names the first word that can't be, and those that can."""
    fields = {name: field for kind in reversed(measure.__mro__) for name, field in vars(kind).get("fields", {}).items()}
    left = [(own, way, {}) for own in metrics_of(measure) for way in own.ways(fields)]
    words = [*SEPARATORS.split(text), END]
    for number, word in enumerate(words):
        tried, left, known = left, [], {}
        for own, way, values in tried:
            name, choices = way[number].name, _choices(way[number].field, catalog, recipe)
            known |= dict.fromkeys([f"words like {choices.example}"] if isinstance(choices, Like) else choices, name)
            try:
                value = choices.read(word) if isinstance(choices, Like) else choices[word]
            except (KeyError, ValueError):
                continue
            left.append((own, way, values | ({name: value} if name else {})))
        if not left:
            raise _refused(words, number, known, recipe)
    return Asked(left[0][0], left[0][2])


def _choices(field: Field, catalog: Catalog, recipe: Recipe) -> Mapping[str, object] | Like:
    choices = field(catalog, recipe) if callable(field) else field
    return choices if isinstance(choices, Mapping | Like) else {choice: choice for choice in choices}


def _refused(words: list[str], number: int, known: dict[str, str], recipe: Recipe) -> UserError:
    """Name what can stand in place of a word, or of what is between two; `known` has the name of each."""
    text, word = "".join(words), words[number]
    if number % 2:
        *choices, got = (f"'{own}'" if own else "the end" for own in (*known, word))
        return UserError(f"metric '{text}': after '{''.join(words[:number])}' comes {' or '.join(choices)}, not {got}")
    if text == word:
        return unknown("metric", text, known, f"measure '{recipe.measure}'")
    names = " or ".join(dict.fromkeys(name or "word" for name in known.values()))
    return UserError(f"metric '{text}': {unknown(names, word, known, 'this recipe')}")
