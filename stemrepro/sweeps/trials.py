"""Sweeps as data, and their trials: runs, trained like any other and scored on the tune split, which no recipe uses."""

import itertools
import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, TypeGuard

import numpy as np
import optuna
from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag

from stemrepro.common.errors import UserError, checked
from stemrepro.common.files import digest, locked
from stemrepro.common.paths import RECIPES
from stemrepro.common.yaml_records import Name, Positive, dumped, parse, read_yaml
from stemrepro.config.address import MAIN, Address
from stemrepro.config.arm import Arm, run_settings
from stemrepro.config.catalog import Catalog
from stemrepro.config.scale import Scale, Variant
from stemrepro.config.sources import prose
from stemrepro.data.integrity import read_index
from stemrepro.data.vocabularies import own_text
from stemrepro.model.cost import row_elements
from stemrepro.training.run import Run

ARM_FIELDS = {"table_rate_factor": 1.0, "table_decay_factor": 1.0, "table_init": "xavier", "placement": "none"}
"""Fields of an arm that a sweep may set, and what an arm without tables has in their place."""
MODEL_FIELDS = ("embedding_std", "head_std")
TRAINING_FIELDS = ("embedding_rate_factor", "embedding_decay_factor", "warmup")
"""Fields of a scale's model and training that a sweep may set."""
KEYS = ("arm", "seed", "learning_rate", *ARM_FIELDS, *MODEL_FIELDS, *TRAINING_FIELDS)


@dataclass(frozen=True, kw_only=True)
class Range:
    """An interval to search in."""

    low: float
    high: float
    log: bool = False

    def __post_init__(self) -> None:
        if not self.low < self.high or (self.log and self.low <= 0):
            raise ValueError(f"{self.low:g} to {self.high:g} is no range{' of a logarithm' * self.log}")


def _number(value: object) -> object:
    """Return the number that a text is; PyYAML takes 1e-2 for a word."""
    with suppress(ValueError):
        return float(value) if isinstance(value, str) else value
    return value


def _form(value: object) -> str:
    return "range" if isinstance(value, dict | Range) else "list"


Value = Annotated[float | int | str, BeforeValidator(_number)]
Values = Annotated[
    Annotated[tuple[Value, ...], Field(min_length=1), Tag("list")] | Annotated[Range, Tag("range")],
    Discriminator(_form),
]


def _is_field(key: str) -> str:
    if key not in KEYS:
        raise ValueError(f"there is no field '{key}' to search; choose among {', '.join(KEYS)}")
    return key


Space = dict[Annotated[str, AfterValidator(_is_field)], Values]
Settings = dict[str, Any]
"""Values of a point or a trial, by field."""


def listed(values: tuple[Value, ...] | Range) -> tuple[Value, ...]:
    """Return the values of a list; none of a range."""
    return () if isinstance(values, Range) else values


def ranges_of(space: Space) -> dict[str, Range]:
    """Return the fields that are searched in ranges."""
    return {key: values for key, values in space.items() if isinstance(values, Range)}


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """One file of recipes/sweeps/; an open search begins with the grid `first`, at the scale's values else."""

    title: str
    sampler: Literal["grid", "tpe"]
    space: Space
    variant: Name = MAIN  # of recipes/variants.yaml, at which its runs are; else the scale itself
    trials: Positive | None = None  # runs of an open search, for each arm
    first: dict[str, tuple[float, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        ranges = ranges_of(self.space)
        if not {"arm", "seed"} <= self.space.keys() - ranges or "learning_rate" not in self.space:
            raise ValueError("space needs a list of arms, one of seeds, and 'learning_rate'")
        if not all(type(seed) is int and seed >= 0 for seed in listed(self.space["seed"])):
            raise ValueError(f"seeds are whole numbers from 0 on (got {self.space['seed']})")
        rates = self.space["learning_rate"]
        lows = [rates.low] if isinstance(rates, Range) else rates
        if not all(isinstance(rate, int | float) and rate > 0 for rate in lows):
            raise ValueError(f"learning_rate must be above 0 (got {rates})")
        if (self.sampler == "grid") != (self.trials is None) or (self.sampler == "grid" and ranges):
            raise ValueError("a grid needs lists and has as many trials as points; an open search (tpe) needs `trials`")
        for key, values in self.first.items():
            if key not in ranges or not all(ranges[key].low <= value <= ranges[key].high for value in values):
                raise ValueError(f"first: '{key}' {list(values)} must lie in a range of the space")
        if self.first and math.prod(map(len, self.first.values())) > (self.trials or 0):
            raise ValueError("first: it has more points than the search has trials")

    @property
    def arms(self) -> tuple[str, ...]:
        """The arms, each of which has a study."""
        return tuple(str(arm) for arm in listed(self.space["arm"]))


def read_sweep(path: Path) -> Sweep:
    """Read a sweep file; UserError names what is wrong in it."""
    return parse(Sweep, read_yaml(path), path)


def numeric(values: tuple[Value, ...]) -> TypeGuard[tuple[float, ...]]:
    """Tell whether a list of the space holds numbers, and not names."""
    return all(isinstance(value, int | float) for value in values)


def suggested(trial: optuna.Trial, space: Space, grid: bool) -> Settings:
    """Return a value for every key of the space.

    A grid's points are queued: its numbers may become more within a study, which Optuna's lists can't.
    """
    chosen: Settings = {}
    for key, values in space.items():
        if isinstance(values, Range):
            chosen[key] = trial.suggest_float(key, values.low, values.high, log=values.log)
        elif grid and numeric(values):
            suggest: Callable[..., float] = trial.suggest_int if key == "seed" else trial.suggest_float
            chosen[key] = suggest(key, min(values), max(values))
        else:
            chosen[key] = trial.suggest_categorical(key, sorted(values))
    return chosen


def space_of(arm: str, space: Space, catalog: Catalog, scale: str) -> Space:
    """Return the space of one arm; one without tables has no fields of tables. UserError for an unknown arm."""
    checked("arm", arm, catalog.arms, "recipes/arms.yaml")
    model, _ = run_settings(Address(MAIN, arm), catalog.arms[arm], Variant(), catalog.scale(scale))
    left_out = ("arm",) if row_elements(model) else ("arm", *ARM_FIELDS)
    return {key: values for key, values in space.items() if key not in left_out}


def combinations(space: Mapping[str, tuple[Value, ...]]) -> list[Settings]:
    """Return every combination of a grid's values, in the order of its keys; numbers but seeds are floats."""
    lists = [map(float, values) if key != "seed" and numeric(values) else values for key, values in space.items()]
    return [dict(zip(space, values, strict=True)) for values in itertools.product(*lists)]


def first_points(sweep: Sweep, space: Space, scale: Scale) -> list[Settings]:
    """Return the points that are queued: a grid, or that with which a search begins, at the scale's values else."""
    if sweep.sampler == "grid":
        return combinations({key: listed(values) for key, values in space.items()})
    given: Settings = {"learning_rate": scale.learning_rate} | ARM_FIELDS
    given |= {key: getattr(scale.model, key) or scale.model.width**-0.5 for key in MODEL_FIELDS}
    given |= {key: getattr(scale.training, key) for key in TRAINING_FIELDS}
    keys = list(ranges_of(space))
    if missing := [key for key in keys if given[key] is None]:
        raise UserError(f"sweep space {missing[0]}: the schedule '{scale.training.schedule}' has no such field")
    grid = combinations({key: values for key, values in sweep.first.items() if key in keys}) if sweep.first else []
    return [{key: given[key] for key in keys} | point for point in grid]


def run_of(values: Settings, catalog: Catalog, scale_name: str, data: Path, out: Path, at: str = MAIN) -> Run:
    """Return the run of some settings; UserError for an unknown variant, or a field that the arm can't have.

    `data` has the scale's blocks; a variant of another vocabulary reads those of its own (data/SCALE/vocabularies).
    """
    scale, name = catalog.scale(scale_name), values["arm"]
    parts = {
        part: getattr(scale, part).model_copy(update={key: values[key] for key in keys if key in values})
        for part, keys in (("model", MODEL_FIELDS), ("training", TRAINING_FIELDS))
    }
    scale = scale.model_copy(update=parts | {"learning_rate": float(values["learning_rate"])})
    arm, address, seed = catalog.arms[name], catalog.known(Address(at, name)), int(values["seed"])
    variant = catalog.variant(at).model_copy(update={"learning_rate": 1.0})  # a trial names its learning rate
    if variant.extends or variant.people != 1:
        raise UserError(f"variant '{at}' resumes from another run, or reads other people: no sweep can")
    if fields := {key: values[key] for key in ARM_FIELDS if key in values}:
        arm = parse(Arm, arm.model_dump() | fields, RECIPES / "arms.yaml", name)
    model, training = run_settings(address, arm, variant, scale)
    settings = {"arm": arm.model_dump(mode="json"), "rate": training.learning_rate, "seed": seed}
    settings |= {field: values[field] for field in (*MODEL_FIELDS, *TRAINING_FIELDS) if field in values}
    settings |= {} if at == MAIN else {"variant": at}
    folder, text = out / "runs" / f"{name}-{digest(settings)}", own_text(model.vocab, data.parent)
    training = training.same_text(text.ratio)
    return Run(address, seed, model, training, folder, scale.data, text.blocks, text.data_hash, text.ratio)


def counting(arm: str, sweep: Sweep, space: Space, catalog: Catalog, scale: str, data: Path) -> str:
    """Return the hash of all that trials of an arm share: code, text, settings, scoring, a search's space.

    A grid may get more numbers.
    """
    base: Settings = {"arm": arm, "seed": 0, "learning_rate": catalog.scale(scale).learning_rate}
    places = [{"placement": place} for place in ("third", "half", "full")] if "placement" in space else [{}]
    runs = [run_of(base | place, catalog, scale, data, Path(), sweep.variant) for place in places]
    searched = {
        key: dumped(values) if isinstance(values, Range) else sorted(values)
        for key, values in space.items()
        if sweep.sampler == "tpe" or not numeric(listed(values))
    }
    scored = dumped(catalog.scale(scale).evaluation)
    tune = read_index(runs[0].blocks)["splits"]["tune"]["sha256"]
    return digest([[run.config for run in runs], searched, scored, tune])


def objective(
    trial: optuna.Trial,
    values: Settings,
    sweep: Sweep,
    catalog: Catalog,
    scale: str,
    data: Path,
    out: Path,
    report: Callable[[float], None],
) -> float:
    """Train the run of a trial's values; return its prose loss on the tune split (nats per token), inf if it diverged.

    Args:
        report: called with the share of its training that is done.

    Raises:
        optuna.TrialPruned: in an open search its loss at an evaluation was above the median of the trials before it.
    """
    import torch

    from stemrepro.data.blocks import TokenBlocks
    from stemrepro.evaluation.weights import load_run
    from stemrepro.training.train import train
    from stemrepro.training.validation import losses_by_source

    run, asked = run_of(values, catalog, scale, data, out, sweep.variant), catalog.scale(scale).evaluation
    trial.set_user_attr("settings", {key: values.get(key, ARM_FIELDS.get(key)) for key in sweep.space})
    torch.set_num_threads(run.training.threads)

    def mean_prose(losses: dict[str, float]) -> float:
        return float(np.mean([losses[source] for source in prose(losses)]))

    def on_eval(step: int, losses: dict[str, float]) -> None:
        if sweep.sampler == "tpe":
            trial.report(mean_prose(losses), step)
            if step >= run.training.steps / 2 and trial.should_prune():  # an early lead may be the initialisation's
                raise optuna.TrialPruned

    with locked(run.folder.with_name(f"{run.folder.name}.lock")):  # another worker may have the same settings
        train(run, lambda step, *_: report(step / run.training.steps), replace=True, on_eval=on_eval)
        for table in run.folder.glob("tables-*"):
            table.unlink()
        if run.diverged is not None:
            return math.inf
        blocks = TokenBlocks(run.blocks, "tune", run.training.sequence, run.model.vocab)
        return mean_prose(losses_by_source(load_run(run), blocks, asked.tokens, asked.batch))
