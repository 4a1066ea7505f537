"""A trial of a sweep: one run, trained like any other and scored on the tune split, which no recipe uses."""

import itertools
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import optuna

from stemrepro.common.errors import UserError, unknown
from stemrepro.common.files import digest, locked
from stemrepro.common.paths import RECIPES
from stemrepro.common.yaml_records import parse
from stemrepro.config.address import MAIN, Address
from stemrepro.config.arm import Arm, run_settings
from stemrepro.config.catalog import Catalog
from stemrepro.config.scale import Scale, Shape, Variant
from stemrepro.config.sources import prose
from stemrepro.config.training import Training
from stemrepro.data.integrity import read_index, verified_hash
from stemrepro.model.config import ModelConfig
from stemrepro.model.cost import row_elements
from stemrepro.sweeps.spec import ARM_FIELDS, MODEL_FIELDS, TRAINING_FIELDS, Range, Space, Sweep
from stemrepro.training.run import Run


def numeric(values: tuple) -> bool:
    """Tell whether a list of the space holds numbers, and not names."""
    return all(isinstance(value, int | float) for value in values)


def suggested(trial: optuna.Trial, space: Space, grid: bool) -> dict:
    """Return a value for every key of the space.

    A grid's points are queued, and only these are run. The range of its numbers may grow within a study, which
    Optuna's lists can't.
    """
    chosen = {}
    for key, values in space.items():
        if isinstance(values, Range):
            chosen[key] = trial.suggest_float(key, values.low, values.high, log=values.log)
        elif not grid or not numeric(values):
            chosen[key] = trial.suggest_categorical(key, sorted(values))
        elif key == "seed":
            chosen[key] = trial.suggest_int(key, min(values), max(values))
        else:
            chosen[key] = trial.suggest_float(key, min(values), max(values))
    return chosen


def has_tables(arm: str, catalog: Catalog, scale: str) -> bool:
    """Tell whether a model of this arm has tables.

    Raises:
        UserError: an unknown arm.
    """
    if arm not in catalog.arms:
        raise unknown("arm", arm, catalog.arms, "recipes/arms.yaml")
    return row_elements(run_settings(Address(MAIN, arm), catalog.arms[arm], Variant(), catalog.scale(scale))[0]) > 0


def space_of(arm: str, space: Space, catalog: Catalog, scale: str) -> Space:
    """Return the space of one arm, without the fields that it can't have."""
    left_out = ("arm",) if has_tables(arm, catalog, scale) else ("arm", *ARM_FIELDS)
    return {key: values for key, values in space.items() if key not in left_out}


def grid_points(space: Space) -> list[dict]:
    """Return every combination of a grid's values, in the order of the space's keys; numbers but seeds are floats."""
    lists = [values if key == "seed" or not numeric(values) else map(float, values) for key, values in space.items()]
    return [dict(zip(space, values, strict=True)) for values in itertools.product(*lists)]


def plain_fields(model: Shape | ModelConfig, training: Training) -> dict:
    """Return the fields of a scale's or run's model and training, by the space's keys; stds are numbers."""
    stds = {key: getattr(model, key) or model.width**-0.5 for key in MODEL_FIELDS}
    return stds | {key: getattr(training, key) for key in TRAINING_FIELDS}


def first_points(sweep: Sweep, space: Space, scale: Scale) -> list[dict]:
    """Return the coarse grid that an open search of one arm begins with; other ranges are at the scale's values.

    Raises:
        UserError: a range of a field that the scale's schedule doesn't have.
    """
    fields = {"learning_rate": scale.learning_rate, "table_rate_factor": 1.0, "table_decay_factor": 1.0}
    fields |= plain_fields(scale.model, scale.training)
    keys = [key for key, values in space.items() if isinstance(values, Range)]
    if missing := [key for key in keys if fields[key] is None]:
        raise UserError(
            f"sweep space {missing[0]}: the scale's schedule '{scale.training.schedule}' has no such field to start from"
        )
    first = {key: values for key, values in sweep.first.items() if key in keys}
    return [
        {key: fields[key] for key in keys} | dict(zip(first, values, strict=True))
        for values in itertools.product(*first.values())
    ]


def with_fields(scale: Scale, values: dict) -> Scale:
    """Return the scale with a trial's learning rate and fields of model and training."""
    parts = {
        part: getattr(scale, part).model_copy(update={key: values[key] for key in keys if key in values})
        for part, keys in (("model", MODEL_FIELDS), ("training", TRAINING_FIELDS))
    }
    return scale.model_copy(update=parts | {"learning_rate": float(values["learning_rate"])})


def run_of(values: dict, catalog: Catalog, scale_name: str, data: Path, out: Path, at: str = MAIN) -> Run:
    """Return the run of some settings.

    An arm without tables has no table fields, so that they don't count as other settings.

    Raises:
        UserError: an unknown arm, or a field that the arm can't have.
    """
    scale, name = catalog.scale(scale_name), values["arm"]
    tables = has_tables(name, catalog, scale_name)
    scale = with_fields(scale, values)
    if at != MAIN and at not in catalog.variants:
        raise unknown("variant", at, catalog.variants, "recipes/variants.yaml")
    arm, address = catalog.arms[name], Address(at, name)
    variant = catalog.variant(at).model_copy(update={"learning_rate": 1.0})  # a trial names its learning rate
    if tables:
        fields = {key: values[key] for key in ARM_FIELDS if values.get(key) is not None}
        arm = parse(Arm, arm.model_dump() | fields, RECIPES / "arms.yaml", name)
    model, training = run_settings(address, arm, variant, scale)
    seed = int(values["seed"])
    settings = {"arm": arm.model_dump(mode="json"), "rate": training.learning_rate, "seed": seed}
    settings |= {field: values[field] for field in (*MODEL_FIELDS, *TRAINING_FIELDS) if field in values}
    settings |= {} if at == MAIN else {"variant": at}
    key = digest(settings)
    text = read_index(data)["splits"]["train"]["sha256"]
    return Run(address, seed, model, training, out / "runs" / f"{name}-{key}", scale.data, data, text)


def counting_for(arm: str, sweep: Sweep, space: Space, catalog: Catalog, scale: str, data: Path) -> str:
    """Return the hash of all that trials of one arm must share to be compared: code, text, settings and scoring.

    Optuna learns from all trials of a search, whose space counts too. A grid may grow by numbers.
    """
    base = {"arm": arm, "seed": 0, "learning_rate": catalog.scale(scale).learning_rate}
    places = [{"placement": place} for place in ("third", "half", "full")] if "placement" in space else [{}]
    runs = [run_of(base | place, catalog, scale, data, Path(), sweep.variant).config for place in places]
    ranges = {key: values.model_dump() for key, values in space.items() if isinstance(values, Range)}
    lists = {key: sorted(values) for key, values in space.items() if key not in ranges}
    if sweep.sampler == "grid":
        lists = {key: values for key, values in lists.items() if not numeric(values)}
    scored = catalog.scale(scale).evaluation.model_dump(mode="json")
    return digest([runs, ranges, lists, scored, read_index(data)["splits"]["tune"]["sha256"]])


def settings_of(run: Run, values: dict) -> dict:
    """Return a run's values of the space's keys; neutral ones where its arm has no such fields."""
    plain = {"arm": run.address.arm, "seed": run.seed, "learning_rate": run.training.learning_rate}
    tables = {
        "table_rate_factor": run.training.table_rate_factor,
        "table_decay_factor": run.training.table_decay_factor,
        "table_init": run.model.table_init,
    }
    plain |= plain_fields(run.model, run.training)
    has = row_elements(run.model) > 0
    neutral = {"table_rate_factor": 1.0, "table_decay_factor": 1.0, "table_init": "xavier", "placement": "none"}
    given = plain | (tables | {"placement": values.get("placement")} if has else neutral)
    return {key: given[key] for key in values}


def mean_prose(losses: dict[str, float]) -> float:
    """Return the mean of losses by source over the sources of prose."""
    return float(np.mean([losses[source] for source in prose(losses)]))


def tune_loss(run: Run, tokens: int, batch: int) -> float:
    """Return the prose loss of a run on the tune split, in nats per token; infinite if it diverged."""
    from stemrepro.data.blocks import TokenBlocks
    from stemrepro.evaluation.weights import load_run
    from stemrepro.training.callbacks import losses_by_source

    if run.diverged is not None:
        return math.inf
    blocks = TokenBlocks(run.blocks, "tune", run.training.sequence, run.model.vocab)
    return mean_prose(losses_by_source(load_run(run), blocks, tokens, batch))


def objective(
    trial: optuna.Trial, values: dict, sweep: Sweep, catalog: Catalog, scale: str, data: Path, out: Path,
    report: Callable[[float], None],
) -> float:  # fmt: skip
    """Train the run of a trial's values and score it; in an open search the pruner may end it at an evaluation.

    Args:
        report: called with the share of its training that is done.

    Raises:
        UserError: the text isn't the one that was written.
        optuna.TrialPruned: its loss was above the median of the trials before it.
    """
    import torch

    from stemrepro.training.train import train

    evaluation = catalog.scale(scale).evaluation
    run = run_of(values, catalog, scale, data, out, sweep.variant)
    verified_hash(data)
    trial.set_user_attr("settings", settings_of(run, {key: values.get(key) for key in sweep.space}))
    torch.set_num_threads(run.training.threads)

    def on_eval(step: int, losses: dict[str, float]) -> None:
        if sweep.sampler == "tpe":
            trial.report(mean_prose(losses), step)
            if step >= run.training.steps / 2 and trial.should_prune():  # an early lead may be the initialisation's
                raise optuna.TrialPruned

    with locked(run.folder.with_name(f"{run.folder.name}.lock")):  # another worker may have the same settings
        train(run, lambda step, *_: report(step / run.training.steps), replace=True, on_eval=on_eval)
        for table in run.folder.glob("tables-*"):
            table.unlink()
        return tune_loss(run, evaluation.tokens, evaluation.batch)
