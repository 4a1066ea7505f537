"""Typed records read from YAML: every mistake is one sentence with the file, the key and the value."""

import json
import re
import reprlib
from dataclasses import is_dataclass
from difflib import get_close_matches
from functools import cache, partial
from operator import eq
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args, get_type_hints

import yaml
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, TypeAdapter, ValidationError, with_config

from stemrepro.common.errors import UserError

NAME = re.compile(r"[a-z0-9][a-z0-9.-]*")
"""Names of arms, variants, scales, mixes: parts of paths, of shell commands and of addresses (arm@variant)."""
Name = Annotated[str, StringConstraints(pattern=f"^{NAME.pattern}$", max_length=64)]
Positive = Annotated[int, Field(gt=0)]
Fraction = Annotated[float, Field(ge=0, le=1)]
Factor = Annotated[float, Field(gt=0)]


def later(default: Any, **more: Any) -> Any:
    """Return a field that was added after files had been written.

    At its default it is left out, so that those files and their hashes don't change.
    """
    return Field(default, exclude_if=partial(eq, default), **more)


def added_later(default: Any, **more: Any) -> Any:
    """Return the same for a dataclass, whose field has it in Annotated and the default next to it."""
    return Field(exclude_if=partial(eq, default), **more)


RULES = ConfigDict(extra="forbid", allow_inf_nan=False)


class Strict(BaseModel):
    """A record with fixed keys that never changes and holds finite numbers alone."""

    model_config = RULES | ConfigDict(frozen=True)


Record = TypeVar("Record")
"""A Strict, or a frozen dataclass, which `parse` checks by the same rules; made by hand, a dataclass is not checked."""


@cache
def _adapter(kind: type) -> TypeAdapter[Any]:
    if is_dataclass(kind) and not hasattr(kind, "__pydantic_config__"):
        with_config(RULES)(kind)
    return TypeAdapter(kind)


def _fields(kind: type) -> dict[str, Any]:
    if issubclass(kind, BaseModel):
        return {name: field.annotation for name, field in kind.model_fields.items()}
    return get_type_hints(kind)


def _records(kind: Any) -> list[type]:
    if isinstance(kind, type) and (issubclass(kind, BaseModel) or is_dataclass(kind)):
        return [kind]
    return [record for part in get_args(kind) for record in _records(part)]


def _keys(model: type, place: tuple[str | int, ...]) -> list[str]:
    """Return the keys of the records that may stand at a place in a record."""
    models = [model]
    for part in place:  # those of lists and mappings are no fields
        kinds = [_fields(one)[str(part)] for one in models if part in _fields(one)]
        models = [record for kind in kinds for record in _records(kind)] or models
    return list(dict.fromkeys(key for one in models for key in _fields(one)))


STRANGE = ("extra_forbidden", "unexpected_keyword_argument")
"""Pydantic's errors for a key that a Strict, or a dataclass, doesn't have."""


def parse(model: type[Record], value: object, file: Path, key: str = "", exact: bool = False) -> Record:
    """Return `value` as a record; UserError names the file, the key and the value.

    Args:
        exact: take neither "3" nor true for a number.
    """
    kind: Any = model  # which mypy takes for not hashable
    try:
        if exact:  # as JSON, which has lists for tuples
            return _adapter(kind).validate_json(json.dumps(value, default=str), strict=True)
        return _adapter(kind).validate_python(value)
    except ValidationError as error:
        first = min(error.errors(), key=lambda one: one["type"] not in STRANGE)  # else it is said to be missing
        where = ".".join(filter(None, [key, *map(str, first["loc"])]))
        got = "" if isinstance(first["input"], dict) else f" (got {reprlib.repr(first['input'])})"
        if first["type"] in STRANGE:
            known = _keys(model, first["loc"][:-1])
            near = "".join(f" did you mean '{name}'?" for name in get_close_matches(str(first["loc"][-1]), known, n=1))
            raise UserError(f"{file}: unknown key '{where}';{near} known are {', '.join(known)}") from error
        message = first["msg"].removeprefix("Value error, ")
        raise UserError(f"{file}: {where + ': ' if where else ''}{message}{got}") from error


def dumped(record: object) -> dict[str, Any]:
    """Return a record as JSON has it, for hashes and files."""
    kind: Any = type(record)
    return _adapter(kind).dump_python(record, mode="json")


NUMBER = re.compile(r"[0-9][0-9_]*(\.[0-9_]*)?(e[-+]?[0-9]+)?|0o[0-7_]+")
"""Numbers of YAML 1.2, as DVC reads it; PyYAML has YAML 1.1."""
STRING = "tag:yaml.org,2002:str"
_PLAIN = yaml.resolver.Resolver()


def checked_name(name: object, file: Path, pattern: re.Pattern[str] = NAME) -> str:
    """Return a name that may stand in a path, in a command and, without quotes, in YAML; UserError otherwise."""
    if not isinstance(name, str) or not pattern.fullmatch(name) or len(name) > 64:
        raise UserError(f"{file}: {str(name)!r} is no name: up to 64 of {pattern.pattern}, like stem-third or rate-0.5")
    if NUMBER.fullmatch(name) or _PLAIN.resolve(yaml.ScalarNode, name, (True, False)) != STRING:
        raise UserError(f"{file}: '{name}' is no name: YAML reads it as something else than a word; try 'arm-{name}'")
    return name


Dumper: type = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
"""The C library's where PyYAML has it, which is several times as fast."""


_SafeLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_SafeLoader):  # type: ignore[misc]
    """YAML whose mappings name a key once."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[str, Any]:
        keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        if len(keys) < len(node.value):
            raise yaml.constructor.ConstructorError(None, None, "a key must be a word", node.start_mark)
        if twice := next((key for key in keys if keys.count(key) > 1), None):
            raise yaml.constructor.ConstructorError(None, None, f"key '{twice}' stands twice", node.start_mark)
        return super().construct_mapping(node, deep)


def read_yaml(path: Path) -> dict[str, Any]:
    """Read the mapping of a YAML file. UserError: the file is missing, unreadable or no YAML, or names a key twice."""
    try:
        value = yaml.load(path.read_text(encoding="utf-8"), _Loader)
    except FileNotFoundError as error:
        raise UserError(f"{path} is missing; run from the repository's root") from error
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path} can't be read ({error})") from error
    except (yaml.YAMLError, ValueError, OverflowError) as error:  # the latter for dates and numbers that can't be
        raise UserError(f"{path} is not valid YAML: {' '.join(str(error).split())}") from error
    if not isinstance(value, dict):
        raise UserError(f"{path} must hold keys and values")
    return value
