"""plan/params.yaml: all that the pipeline reads of a plan, with one model for writing and reading."""

from pathlib import Path
from typing import Annotated, Literal

import yaml
from pydantic import Field

from stemrepro.common.errors import UserError
from stemrepro.common.files import atomic_write
from stemrepro.common.paths import PARAMS
from stemrepro.common.yaml_records import Name, Positive, Strict, later, parse, read_yaml
from stemrepro.config.address import MAIN, Address
from stemrepro.config.mixes import ArchiveMix, BlendMix, FactsMix, HubMix, InventedMix, NeedlesMix, RecallMix, SampleMix
from stemrepro.config.retrofit import Kind
from stemrepro.config.scale import Counting
from stemrepro.config.scores import LOSSES, Evaluation, Geometry, OfSomeScales, PartName, PlannedReasoning, PlannedTasks
from stemrepro.config.training import RunTraining
from stemrepro.model.config import ModelConfig

HEADER = "# Written by 'stemrepro plan' from recipes/. Edit those and plan again.\n"


class PlannedInitFrom(Strict):
    """The run that another one resumes from, and what becomes of its tables."""

    model: ModelConfig
    training: RunTraining
    tables: Literal["kept", "anew", Kind]
    variant: Name = later(MAIN)
    arm: Name | None = later(None, description="the arm of that run, where it is another")


class Planned(Strict):
    """An arm at a variant: everything that decides its runs except seed, text and code, and what is scored of them."""

    model: ModelConfig
    training: RunTraining
    losses: Literal[*LOSSES] = Field(
        description="steps: losses and gradient norms of training; losses: also of validation; context: also by context"
    )
    init_from: PlannedInitFrom | None = later(None)
    people: int = later(0, ge=0, description="number of people in the text; 0: the scale's own text")
    text: Literal["own", "mid"] = later("own", description="mid: the blend")
    seeds: dict[PartName, tuple[int, ...]] = Field(
        description="seeds that are scored, by part; all of them are trained"
    )

    @property
    def trained(self) -> tuple[int, ...]:
        """The seeds that are trained."""
        return max(self.seeds.values(), key=len)


class PlannedBlend(Strict):
    """The text of a later stage of training."""

    name: Name
    mix: BlendMix
    tokens: Positive = Field(description="of the training split: the most that a run of that stage reads")


class OfEveryScale(Strict):
    """What the data stages and the scoring of every scale read."""

    data: Name
    vocab: Positive
    vocabularies: tuple[Positive, ...] = Field(description="other sizes that variants need")
    people: tuple[Positive, ...] = later((), description="numbers of people that variants need")
    mid: PlannedBlend | None = later(None)
    workers: Positive
    evaluation: Evaluation
    benchmarks: PlannedTasks
    reasoning: PlannedReasoning | None = later(None)
    counting: Counting
    geometry: Geometry


class ScaleParams(OfSomeScales, OfEveryScale):
    """Settings of every scale, then those that only some scales have, in this order."""


Runs = dict[Name, dict[Name, Planned]]
"""Planned runs by variant and arm."""


class _Line(dict):
    """Keys and values that are written on one line."""


class _Dumper(yaml.SafeDumper):
    """A dumper that writes each `_Line` on one line."""


_Dumper.add_representer(
    _Line, lambda dumper, value: dumper.represent_mapping("tag:yaml.org,2002:map", value.items(), flow_style=True)
)


class Params(Strict):
    """One plan: a scale, its data, and the runs that recipes need.

    `scales` and `mixes` hold one name each, for DVC's matrices.
    """

    scales: Annotated[tuple[Name, ...], Field(min_length=1, max_length=1)]
    mixes: Annotated[tuple[Name, ...], Field(min_length=1, max_length=1)]
    recipes: tuple[str, ...] = Field((), description="whose runs are planned; all when empty")
    scoreboard: str
    mix: dict[
        Name,
        Annotated[
            ArchiveMix | SampleMix | HubMix | FactsMix | RecallMix | InventedMix | NeedlesMix,
            Field(discriminator="kind"),
        ],
    ]
    scale: dict[Name, ScaleParams]
    run: dict[Name, Runs]

    def planned(self, scale: str) -> dict[Address, Planned]:
        """Return the runs of a scale by address; UserError where another scale is planned."""
        if scale not in self.run:
            raise UserError(f"{PARAMS} is planned for scale '{self.scales[0]}'; run 'stemrepro plan --scale {scale}'")
        return {Address(variant, arm): run for variant, arms in self.run[scale].items() for arm, run in arms.items()}

    def text(self) -> str:
        """Return the text of params.yaml: one block per arm and variant, with each group of settings on one line."""
        values = self.model_dump(mode="json")
        for variants in values["run"].values():
            for arms in variants.values():
                for run in arms.values():
                    run |= {key: _Line(run[key]) for key in ("model", "training", "seeds")}
        return HEADER + yaml.dump(values, Dumper=_Dumper, sort_keys=False, default_flow_style=None, width=120)

    def write(self, path: Path = PARAMS) -> None:
        """Write the file, only when it changes, so that DVC sees no new one."""
        content = self.text()
        if not path.exists() or path.read_text(encoding="utf-8") != content:
            atomic_write(path, content)


def read_params(path: Path = PARAMS) -> Params:
    """Read params.yaml as DVC sees it; an experiment may have changed it.

    Raises:
        UserError: the file is missing or damaged.
    """
    if not path.exists():
        raise UserError(f"{path} is missing; write it with 'stemrepro plan --scale laptop'")
    try:
        return parse(Params, read_yaml(path), path)
    except UserError as error:
        raise UserError(f"{error}; write it anew with 'stemrepro plan'") from error
