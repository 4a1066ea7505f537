"""Typed records read from YAML: every mistake is one sentence with the file, the key and the value."""

from pathlib import Path
from typing import TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from stemrepro.errors import UserError


class Strict(BaseModel):
    """A record that knows its keys and never changes."""

    model_config = ConfigDict(extra="forbid", frozen=True)


Record = TypeVar("Record", bound=Strict)


def parse(model: type[Record], value: object, file: Path, key: str = "") -> Record:
    """`value` as a record; UserError names the file, the key and what was found there."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(filter(None, [key, *map(str, first["loc"])]))
        got = "" if isinstance(first["input"], dict) else f" (got {first['input']!r})"
        if first["type"] == "extra_forbidden":
            raise UserError(f"{file}: unknown key '{where}'; known are {', '.join(model.model_fields)}") from error
        message = first["msg"].removeprefix("Value error, ")
        raise UserError(f"{file}: {where + ': ' if where else ''}{message}{got}") from error


def read_yaml(path: Path) -> dict:
    """The mapping that a YAML file holds."""
    if not path.exists():
        raise UserError(f"{path} is missing; run from the repository's root")
    try:
        value = yaml.safe_load(path.read_text())
    except yaml.YAMLError as error:
        raise UserError(f"{path} is not valid YAML: {' '.join(str(error).split())}") from error
    if not isinstance(value, dict):
        raise UserError(f"{path} must hold keys and values")
    return value
