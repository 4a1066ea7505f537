"""Readers of config.yaml and metrics.jsonl of a run folder, which may be somebody else's.

All values are checked, and nothing is executed.
"""

from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, PrivateAttr

from stemrepro.common.errors import UserError
from stemrepro.common.files import digest, read_rows
from stemrepro.common.paths import RECIPES
from stemrepro.common.yaml_records import Name, Positive, Strict, parse, read_yaml
from stemrepro.config.address import Address
from stemrepro.config.training import RunTraining
from stemrepro.model.config import ModelConfig
from stemrepro.model.names import OWN_FILE
from stemrepro.model.needs import check
from stemrepro.training.run import params_hash

ARMS = RECIPES / "arms.yaml"


class Text(Strict):
    """The text of a run."""

    mix: Name
    train_sha256: str


class Begun(Strict):
    """The finished run that a run resumed from."""

    parent: str
    tables: str
    row_tokens: int = 0


class Settings(Strict):
    """The settings that stemrepro.training.run.Run.config has written."""

    arm: Name
    variant: Name
    seed: Annotated[int, Field(ge=0)]
    model: ModelConfig
    training: RunTraining
    data: Text
    code: str
    init_from: Begun | None = None
    _written: dict[str, Any] = PrivateAttr(default_factory=dict)

    @property
    def written(self) -> dict[str, Any]:
        """The settings as config.yaml has them. Hashes are made of these, which lack fields that came later."""
        return self._written

    @property
    def address(self) -> Address:
        """Arm and variant."""
        return Address(self.variant, self.arm)

    @property
    def hash(self) -> str:
        """Short hash of all settings, by which weights and later runs name the run."""
        return digest(self.written)

    @property
    def params_hash(self) -> str:
        """Short hash of all settings but the seed, which the runs of an arm share."""
        return params_hash(self.written)


def read_config(folder: Path) -> Settings:
    """Read the settings of a run folder and check all of them; all readers of a config.yaml call this.

    UserError: the file is missing or has no settings of a run; the message names the key.
    """
    path = folder / "config.yaml"
    try:
        written = read_yaml(path)
        settings = parse(Settings, written, path, exact=True)
        if not OWN_FILE.fullmatch(settings.model.ffn):
            check(settings.model)
    except UserError as error:
        reason = str(error).removeprefix(f"{path}: ").removeprefix(f"{path} ")
        raise UserError(f"{path} is missing or damaged ({reason}); restore it or train that run again") from error
    settings._written = written
    return settings


class Step(Strict):
    """A row of metrics.jsonl."""

    step: Positive
    tokens: Positive
    loss: float
    rate: float
    norm: float
    validation: dict[str, float] = Field(default_factory=dict)


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """Return how a run's training went, one row per step: step, tokens, loss, rate and norm.

    A row where the run was evaluated also has `validation`, by source.

    UserError: the file is missing, or a row is invalid; the message names it.
    """
    path = folder / "metrics.jsonl"
    rows = read_rows(path)
    for number, row in enumerate(rows, start=1):
        parse(Step, row, path, f"line {number}", exact=True)
    return rows


def check_trusted(folder: Path, model: ModelConfig) -> None:
    """Raise UserError where building a run's model would execute a file that nobody here has named."""
    arms = read_yaml(ARMS).values() if ARMS.exists() else ()
    named = [arm.get("ffn") for arm in arms if isinstance(arm, dict)]
    if OWN_FILE.fullmatch(model.ffn) and model.ffn not in named:
        raise UserError(
            f"{folder}: its network is {model.ffn}, which no arm of {ARMS} names. Reading a run executes no file of "
            "somebody else's; read that file, then pass --trust (trust=True in Python) or name it in an arm"
        )
