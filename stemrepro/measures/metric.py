"""Metrics: what a measure declares, and the string of a recipe read as one of them.

A metric is words with ':', '@' or '>' between them, as in "score:boolq@mid". A method of a measure declares its
spelling, "score:{task}[@{variant}]". The method gets what is in braces; what is in brackets may be left out.
"{score=margin}" is the word "margin" alone, which the method gets too.
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
    """A word that no list holds, as a number; `read` returns its value, or raises ValueError."""

    read: Callable[[str], object]
    example: str


WHOLE, NUMBER, NAME = Like(int, "8"), Like(float, "0.1"), Like(str, "name")
Choices = Iterable[str] | Mapping[str, object] | Like
"""The words that are allowed; of a mapping the method gets the value."""
Field = Choices | Callable[[Catalog, Recipe], Choices]


class Place(NamedTuple):
    """A word of a spelling, or a separator, with its choices; `name` is "" where the method doesn't get it."""

    name: str
    field: Field


@dataclass(frozen=True, eq=False)
class Metric:
    """A quantity that a measure can give.

    Attributes:
        spelling: as the module describes it.
        words: what it is.
        method: of the measure, (high, low, **fields) -> Contrast; of an exact one (**fields) -> float.
        exact: whether it is a number without arms, seeds and chance.
        own: whether it is also taken with each arm at its own studied settings. The method then takes `own`.
    """

    spelling: str
    words: str
    method: Callable
    exact: bool = False
    own: bool = False

    def ways(self, fields: Mapping[str, Field]) -> Iterator[list[Place]]:
        """Write out the spelling for each choice of its brackets."""
        for spelling in _written(self.spelling):
            yield [_place(part, fields) for part in (*SEPARATORS.split(spelling), END)]


def _written(spelling: str) -> list[str]:
    before, bracket, rest = spelling.partition("[")
    inside, _, after = rest.partition("]")
    return _written(before + after) + _written(before + inside + after) if bracket else [spelling]


def _place(part: str, fields: Mapping[str, Field]) -> Place:
    name, _, word = part.strip("{}").partition("=")
    if not part.startswith("{"):
        return Place("", (part,))
    return Place(name, (word,) if word else fields[name])


class Parsed(NamedTuple):
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
    return [declared for method in methods.values() for declared in getattr(method, "declares", ())]


def parse(measure: type, text: str, catalog: Catalog, recipe: Recipe) -> Parsed:
    """Read the metric of a recipe; UserError names the first wrong word, and the words that would be right."""
    fields = {name: field for kind in reversed(measure.__mro__) for name, field in vars(kind).get("fields", {}).items()}
    left = [(candidate, way, {}) for candidate in metrics_of(measure) for way in candidate.ways(fields)]
    words = [*SEPARATORS.split(text), END]
    for number, word in enumerate(words):
        tried, left, names_of = left, [], {}
        for candidate, way, values in tried:
            name, choices = way[number].name, _choices(way[number].field, catalog, recipe)
            names_of |= dict.fromkeys([f"words like {choices.example}"] if isinstance(choices, Like) else choices, name)
            try:
                value = choices.read(word) if isinstance(choices, Like) else choices[word]
            except (KeyError, ValueError):
                continue
            left.append((candidate, way, values | ({name: value} if name else {})))
        if not left:
            raise _refused(words, number, names_of, recipe)
    return Parsed(left[0][0], left[0][2])


def _choices(field: Field, catalog: Catalog, recipe: Recipe) -> Mapping[str, object] | Like:
    choices = field(catalog, recipe) if callable(field) else field
    return choices if isinstance(choices, Mapping | Like) else {choice: choice for choice in choices}


def _refused(words: list[str], number: int, names_of: dict[str, str], recipe: Recipe) -> UserError:
    """Return the error that lists what a word, or a separator, may be; `names_of` has each choice's field name."""
    text, word = "".join(words), words[number]
    if number % 2:
        *choices, got = (f"'{choice}'" if choice else "the end" for choice in (*names_of, word))
        return UserError(f"metric '{text}': after '{''.join(words[:number])}' comes {' or '.join(choices)}, not {got}")
    if text == word:
        return unknown("metric", text, names_of, f"measure '{recipe.measure}'")
    names = " or ".join(dict.fromkeys(name or "word" for name in names_of.values()))
    return UserError(f"metric '{text}': {unknown(names, word, names_of, 'this recipe')}")
