"""A trial of a sweep: one run, trained like any other and scored on the tune split, which no recipe uses."""

import itertools
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import optuna
from optuna.trial import Trial

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


def suggested(trial: Trial, space: Space) -> dict:
    """Return a value for every key of the space. A grid may grow within its study: of its variant names are taken as they are, as Optuna's lists
    can't grow, and numbers from a wide range.
    """
    found, variant = {}, trial.user_attrs.get("variant", {})
    for key, values in space.items():
        if isinstance(values, Range):
            found[key] = trial.suggest_float(key, values.low, values.high, log=values.log)
        elif key == "seed":
            found[key] = trial.suggest_int(key, min(values), max(values)) if len(set(values)) > 1 else values[0]
        elif all(isinstance(value, int | float) for value in values):
            found[key] = trial.suggest_float(key, 0.0, 1e6)
        elif key in variant:
            found[key] = variant[key]
        else:
            found[key] = trial.suggest_categorical(key, list(values))
    return found


def has_tables(arm: str, catalog: Catalog, scale: str) -> bool:
    """Does a model of this arm have any?"""
    return row_elements(run_settings(Address(MAIN, arm), catalog.arms[arm], Variant(), catalog.scale(scale))[0]) > 0


def searched(space: Space, catalog: Catalog, scale: str) -> Space:
    """Return the space without the fields that its only arm, which has no tables, can't have; a grid asks for one variant a time anyway."""
    one = len(space["arm"]) == 1 and not has_tables(space["arm"][0], catalog, scale)
    return {key: values for key, values in space.items() if not (one and key in ARM_FIELDS)}


def start_fields(model: Shape | ModelConfig, training: Training) -> dict:
    """Return how a scale or a run starts, by the space's keys: stds as numbers, also where they are the official code's."""
    stds = {key: getattr(model, key) or model.width**-0.5 for key in MODEL_FIELDS}
    return stds | {key: getattr(training, key) for key in TRAINING_FIELDS}


def first_points(sweep: Sweep, space: Space, catalog: Catalog, scale: str) -> list[dict]:
    """Return the coarse grid that an open search of one arm begins with; other ranges are at the scale's own values.

    Raises:
        UserError: a range of a field that the scale's schedule hasn't.
    """
    own = catalog.scale(scale)
    fields = {"learning_rate": own.learning_rate, "table_rate_factor": 1.0, "table_decay_factor": 1.0}
    fields |= start_fields(own.model, own.training)
    keys = [key for key, values in searched(space, catalog, scale).items() if isinstance(values, Range)]
    if missing := [key for key in keys if fields[key] is None]:
        raise UserError(
            f"sweep space {missing[0]}: scale '{scale}' (schedule '{own.training.schedule}') has no such field to start from"
        )
    return [
        {key: fields[key] for key in keys} | dict(zip(sweep.first, values, strict=True))
        for values in itertools.product(*sweep.first.values())
    ]


def with_fields(scale: Scale, values: dict) -> Scale:
    """Return the scale with the rate and the fields of its model and training that a trial has."""
    parts = {
        part: getattr(scale, part).model_copy(update={key: values[key] for key in keys if key in values})
        for part, keys in (("model", MODEL_FIELDS), ("training", TRAINING_FIELDS))
    }
    return scale.model_copy(update=parts | {"learning_rate": float(values["learning_rate"])})


def run_of(values: dict, catalog: Catalog, scale_name: str, data: Path, out: Path, at: str = MAIN) -> Run:
    """Return the run of some settings. An arm without tables has no table fields, so that they don't count as other settings.

    Raises:
        UserError: an unknown arm, or a field that the arm can't have.
    """
    scale, name = catalog.scale(scale_name), values["arm"]
    if name not in catalog.arms:
        raise unknown("arm", name, catalog.arms, "recipes/arms.yaml")
    scale = with_fields(scale, values)
    if at != MAIN and at not in catalog.variants:
        raise unknown("variant", at, catalog.variants, "recipes/variants.yaml")
    arm, address = catalog.arms[name], Address(at, name)
    variant = catalog.variant(at).model_copy(update={"rate": 1.0})  # a trial's rate is the one it names
    if has_tables(name, catalog, scale_name):
        fields = {key: values[key] for key in ARM_FIELDS if values.get(key) is not None}
        arm = parse(Arm, arm.model_dump() | fields, RECIPES / "arms.yaml", name)
    model, training = run_settings(address, arm, variant, scale)
    seed = int(values["seed"])
    own = {field: values[field] for field in (*MODEL_FIELDS, *TRAINING_FIELDS) if field in values}
    own |= {} if at == MAIN else {"variant": at}
    key = digest({"arm": arm.model_dump(mode="json"), "rate": training.learning_rate, "seed": seed} | own)
    text = read_index(data)["splits"]["train"]["sha256"]
    return Run(address, seed, model, training, out / "runs" / f"{name}-{key}", scale.data, data, text)


def identity(values: dict, catalog: Catalog, scale: str, data: Path, out: Path, at: str = MAIN) -> str:
    """Return hash of all that the loss of some settings follows from: their run, with its code and text, and how it is scored."""
    run, scored = run_of(values, catalog, scale, data, out, at), catalog.scale(scale).evaluation.model_dump(mode="json")
    return digest([run.config, scored, read_index(data)["splits"]["tune"]["sha256"]])


def settings_of(run: Run, values: dict) -> dict:
    """Return what the space asked of a run, as far as its arm has such fields."""
    plain = {"arm": run.address.arm, "seed": run.seed, "learning_rate": run.training.learning_rate}
    tables = {
        "table_rate_factor": run.training.table_rate_factor,
        "table_decay_factor": run.training.table_decay_factor,
        "table_init": run.model.table_init,
    }
    plain |= start_fields(run.model, run.training)
    has = row_elements(run.model) > 0
    neutral = {"table_rate_factor": 1.0, "table_decay_factor": 1.0, "table_init": "xavier", "placement": "none"}
    given = plain | (tables | {"placement": values.get("placement")} if has else neutral)
    return {key: given[key] for key in values}


def mean_prose(losses: dict[str, float]) -> float:
    """Return mean over the prose sources of losses by source."""
    return float(np.mean([losses[source] for source in prose(losses)]))


def tune_loss(run: Run, tokens: int, batch: int) -> float:
    """Prose loss of a run on the tune split, in nats per token; infinite if it diverged."""
    from stemrepro.data.blocks import TokenBlocks
    from stemrepro.evaluation.weights import load_run
    from stemrepro.training.callbacks import losses_by_source

    if run.diverged is not None:
        return math.inf
    blocks = TokenBlocks(run.blocks, "tune", run.training.sequence, run.model.vocab)
    return mean_prose(losses_by_source(load_run(run), blocks, tokens, batch))


def objective(
    trial: Trial,
    sweep: Sweep,
    space: Space,
    catalog: Catalog,
    scale: str,
    data: Path,
    out: Path,
    report: Callable[[Trial, float], None] = lambda *_: None,
) -> float:
    """Train the trial's run and scores it; in an open search the pruner may end it at a mark.

    Args:
        report: called with the trial and the share of its training that is done.

    Raises:
        UserError: the text isn't the one that was written.
        optuna.TrialPruned: it fell behind the median of the trials before it.
    """
    import torch

    from stemrepro.training.train import train

    values, asked = suggested(trial, searched(space, catalog, scale)), catalog.scale(scale).evaluation
    run = run_of(values, catalog, scale, data, out, sweep.variant)
    verified_hash(data)
    trial.set_user_attr("settings", settings_of(run, {key: values.get(key) for key in space}))
    torch.set_num_threads(run.training.threads)

    def on_eval(step: int, losses: dict[str, float]) -> None:
        if sweep.sampler == "tpe":
            trial.report(mean_prose(losses), step)
            if step >= run.training.steps / 2 and trial.should_prune():  # an early lead may be a start's alone
                raise optuna.TrialPruned

    with locked(run.folder.with_name(f"{run.folder.name}.lock")):  # another worker may have the same settings
        train(run, lambda step, *_: report(trial, step / run.training.steps), replace=True, on_eval=on_eval)
        for table in run.folder.glob("tables-*"):
            table.unlink()
        return tune_loss(run, asked.tokens, asked.batch)
