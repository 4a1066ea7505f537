"""Metrics: functions of a measure's module, called with what a recipe says.

`metric: {loss: prose, pair: "0"}` is `loss(scores, high, low, "prose", pair="0")`: one key names the function, its
value is the first setting, and the other keys are the other settings. `metric: drift` has none. `requires:` names
conditions in the same way.

A metric is a public function whose first argument is `scores`. With `high` and `low`, the arms of a claim, it returns
an Effect; without them a number, for claims of kind `exact`. A setting's annotation says what it may be: a Literal, a
plain type, or Annotated with the choices, or with a function of catalog and recipe that returns them.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from types import MappingProxyType, ModuleType, NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

from stemrepro.common.errors import UserError, unknown
from stemrepro.config.address import MAIN
from stemrepro.config.catalog import Catalog
from stemrepro.config.recipe import Metric, Recipe, metric_text
from stemrepro.measures.scores import Scores
from stemrepro.verdicts.effect import Effect

LOSS_UNIT = "nats/token"
GIVEN = ("scores", "high", "low", "own", "smallest_effect")
"""Arguments that no recipe sets."""


def _variants(catalog: Catalog, recipe: Recipe) -> Iterable[str]:
    return (MAIN, *recipe.variants)


def _tasks(catalog: Catalog, recipe: Recipe) -> Iterable[str]:
    return (*recipe.tasks, *recipe.groups)


def _shapes(catalog: Catalog, recipe: Recipe) -> Iterable[str]:
    return catalog.shapes


# Settings that a recipe, or the catalog, has the choices of.
VariantName = Annotated[str, _variants]
TaskName = Annotated[str, _tasks]
ShapeName = Annotated[str, _shapes]


class Call(NamedTuple):
    """A function of a measure with the settings that a recipe gives it."""

    function: Callable[..., Any]
    settings: dict[str, object]

    @property
    def exact(self) -> bool:
        """Whether it is a number without arms, seeds and chance."""
        return "high" not in inspect.signature(self.function).parameters

    @property
    def words(self) -> str:
        """What it gives, the first paragraph of its docstring in a line."""
        return words_of(self.function)

    def effect(self, scores: Scores, high: str, low: str) -> Effect:
        """Return metric(high) - metric(low), a value per seed; raises Unmeasured and Untested."""
        return self.function(scores, high, low, **self.settings)

    def own(self, scores: Scores, high: str, low: str) -> Effect | None:
        """Return the same with each arm at its own studied settings; None where one of them wasn't trained so."""
        if "own" not in inspect.signature(self.function).parameters:
            return None
        return self.function(scores, high, low, own=True, **self.settings)

    def value(self, scores: Scores) -> float:
        """Return the number of an exact claim."""
        return self.function(scores, **self.settings)

    def asked(self, function: Callable[..., Any], scores: Scores, **more: object) -> Any:
        """Call another function with those of the settings that it knows, too."""
        known = inspect.signature(function).parameters
        return function(scores, **{name: value for name, value in (self.settings | more).items() if name in known})


def words_of(function: Callable[..., Any]) -> str:
    """Return the first paragraph of a docstring in a line, without its full stop."""
    first = (inspect.getdoc(function) or function.__name__).partition("\n\n")[0]
    return " ".join(first.split()).removesuffix(".")


@cache
def metrics_of(module: ModuleType) -> dict[str, Callable[..., Any]]:
    """Return the metrics of a measure by name."""
    return {name: function for name, function in vars(module).items() if _is_metric(name, function)}


def _is_metric(name: str, function: object) -> bool:
    if name.startswith("_") or not inspect.isfunction(function) or hasattr(function, "condition"):
        return False
    first, *others = inspect.signature(function).parameters.values()
    if first.name != "scores":
        return False
    returned = inspect.signature(function).return_annotation
    returned = returned if isinstance(returned, str) else getattr(returned, "__name__", str(returned))
    arms = [one.name for one in others[:2]] == ["high", "low"]
    return "Effect" in returned if arms else returned in ("float", "int")


def read(
    metric: Metric,
    known: Mapping[str, Callable[..., Any]],
    catalog: Catalog,
    recipe: Recipe,
    what: str,
    others: Mapping[str, object] = MappingProxyType({}),
) -> Call:
    """Read a metric or a condition (`what`), one of `known`; UserError names what is wrong and what would be right.

    `others` are settings that it gets where it has them and says nothing else.
    """
    written: dict[str, object] = {} if isinstance(metric, str) else dict(metric)
    name = metric if isinstance(metric, str) else next(filter(known.__contains__, metric), next(iter(metric)))
    if name not in known:
        raise unknown(what, name, known, f"measure '{recipe.measure}'")
    hints = get_type_hints(known[name], include_extras=True)
    settings = {key: one for key, one in inspect.signature(known[name]).parameters.items() if key not in GIVEN}
    where = f"{what} '{metric_text(metric)}'"
    if written and not settings:
        raise UserError(f"{where}: '{name}' has no settings; write '{name}' alone")
    given = {next(iter(settings)) if key == name else key: value for key, value in written.items()}
    for key, value in given.items():
        if key not in settings:
            raise UserError(f"{where}: {unknown('setting', key, settings, name)}")
        _check(value, hints[key], key, where, catalog, recipe)
    given = {key: value for key, value in others.items() if key in settings} | given
    missing = [key for key, one in settings.items() if one.default is inspect.Parameter.empty and key not in given]
    if missing:
        raise UserError(f"{where}: '{missing[0]}' is missing; '{name}' has {', '.join(settings)}")
    return Call(known[name], given)


def _check(value: object, hint: Any, key: str, where: str, catalog: Catalog, recipe: Recipe) -> None:
    if get_origin(hint) in (Union, UnionType):
        hint = next(one for one in get_args(hint) if one is not NoneType)
    choices: Iterable[object] | None = None
    if get_origin(hint) is Annotated:
        hint, choices = get_args(hint)[:2]
        choices = choices(catalog, recipe) if callable(choices) else choices
    elif get_origin(hint) is Literal:
        choices = get_args(hint)
    if choices is not None and value not in (choices := tuple(choices)):
        raise UserError(f"{where}: {unknown(key, str(value), map(str, choices), 'this recipe')}")
    if choices is None and not (type(value) is hint or (hint is float and type(value) is int)):
        raise UserError(f"{where}: '{key}' is {value!r}; it must be of type {hint.__name__}")
