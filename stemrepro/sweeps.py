"""Sweeps by Optuna: grids and open searches over arms and their fields, several workers on one study, killed trials retried.

A trial is one run, trained like any other into sweeps/<scale>/<sweep>/<settings>/ and scored on the tune split, which no recipe
uses. Its folder is named by its settings, so a trial that was killed resumes, and settings that come up twice are trained once.
The study lives in sweeps/<scale>/<sweep>/study.db; start the same command again for another worker.
"""

import fcntl
import itertools
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import optuna
import pandas as pd
from optuna.storages import RDBStorage, RetryHeartbeatStaleTrialCallback
from optuna.trial import FrozenTrial, Trial, TrialState
from pydantic import Field, model_validator

from stemrepro.data.integrity import verified_hash
from stemrepro.data.sources import prose
from stemrepro.errors import UserError
from stemrepro.files import atomic_write, digest
from stemrepro.recipe import Arm, Book
from stemrepro.records import Strict, parse, read_yaml
from stemrepro.training.spec import Run

ARM_FIELDS = ("table_rate_factor", "table_decay_factor", "table_init", "placement")
HEARTBEAT = 20
"""Seconds between a worker's signs of life; a trial whose worker gave none for three of them is retried."""


class Range(Strict):
    """An interval to search in."""

    low: float
    high: float
    log: bool = False


class Sweep(Strict):
    """One file of recipes/sweeps/."""

    title: str
    sampler: Literal["grid", "tpe"]
    space: dict[str, tuple[float | int | str, ...] | Range]
    trials: int | None = Field(None, gt=0, description="runs of an open search")
    extend: str | None = Field(
        None, description="a numeric key whose grid is extended while an arm's best lies at its edge"
    )

    @model_validator(mode="after")
    def _fits(self) -> "Sweep":
        known = ("arm", "seed", "learning_rate", *ARM_FIELDS)
        if unknown := [key for key in self.space if key not in known]:
            raise ValueError(f"space has no '{unknown[0]}'; there are {', '.join(known)}")
        if missing := [key for key in ("arm", "seed", "learning_rate") if key not in self.space]:
            raise ValueError(f"space lacks '{missing[0]}'")
        if self.sampler == "grid" and any(isinstance(values, Range) for values in self.space.values()):
            raise ValueError("a grid needs lists, not ranges")
        if (self.sampler == "tpe") != (self.trials is not None):
            raise ValueError("an open search (tpe) needs `trials`, a grid has as many as its points")
        if self.extend and (self.sampler != "grid" or self.extend not in self.space):
            raise ValueError(f"extend '{self.extend}' must be a key of a grid's space")
        return self


def read_sweep(path: Path) -> Sweep:
    """A sweep file; UserError names what is wrong in it."""
    return parse(Sweep, read_yaml(path), path)


def suggested(trial: Trial, space: dict) -> dict:
    """A value for every key of the space."""
    return {
        key: trial.suggest_float(key, values.low, values.high, log=values.log)
        if isinstance(values, Range)
        else trial.suggest_categorical(key, list(values))
        for key, values in space.items()
    }


def run_of(values: dict, book: Book, scale_name: str, data: Path, out: Path) -> Run:
    """The run of some settings. An arm without tables has no table fields, so that they don't count as other settings.

    Raises:
        UserError: an unknown arm, or a field that the arm can't have.
    """
    scale, name = book.scale(scale_name), values["arm"]
    if name not in book.arms:
        raise UserError(f"arm '{name}' is unknown: recipes/arms.yaml has {', '.join(book.arms)}")
    arm = book.arms[name]
    tables = arm.ffn not in ("dense", "hash-moe", "topk-moe") or arm.values != "none"
    fields = {key: values[key] for key in ARM_FIELDS if key in values and tables}
    arm = parse(Arm, arm.model_dump() | fields, Path("recipes/arms.yaml"), name)
    rate, seed = float(values["learning_rate"]), int(values["seed"])
    key = digest({"arm": arm.model_dump(mode="json"), "rate": rate, "seed": seed})
    return Run(name, seed, arm, scale, rate, out / "runs" / f"{name}-{key}", data, verified_hash(data))


def tune_loss(run: Run) -> float:
    """Prose loss of a finished run on the tune split, in nats per token."""
    from stemrepro.data.blocks import TokenBlocks
    from stemrepro.evaluation.weights import load_run
    from stemrepro.training.callbacks import losses_by_source

    scale = run.scale
    blocks = TokenBlocks(run.blocks, "tune", scale.model.sequence, run.model.vocab)
    losses = losses_by_source(load_run(run), blocks, scale.evaluation.tokens, scale.evaluation.batch)
    return sum(losses[source] for source in prose(losses)) / len(prose(losses))


def objective(trial: Trial, sweep: Sweep, space: dict, book: Book, scale: str, data: Path, out: Path) -> float:
    """Trains the trial's run and scores it; in an open search the pruner may end it at a mark.

    Raises:
        optuna.TrialPruned: it fell behind the median of the trials before it.
    """
    import torch

    from stemrepro.training.train import train

    run = run_of(suggested(trial, space), book, scale, data, out)
    torch.set_num_threads(run.scale.training.threads)

    def mark(step: int, losses: dict[str, float]) -> None:
        if sweep.sampler == "tpe":
            trial.report(sum(losses[source] for source in prose(losses)) / len(prose(losses)), step)
            if trial.should_prune():
                raise optuna.TrialPruned

    run.folder.parent.mkdir(parents=True, exist_ok=True)
    with open(run.folder.with_suffix(".lock"), "w") as lock:
        fcntl.flock(
            lock, fcntl.LOCK_EX
        )  # another worker may have the same settings; the system lets go when it is killed
        train(run, lambda *_: None, replace=True, mark=mark)
        for table in run.folder.glob("tables-*"):
            table.unlink()
        return tune_loss(run)


def storage(out: Path) -> RDBStorage:
    """The study's database; a trial whose worker died is put back."""
    out.mkdir(parents=True, exist_ok=True)
    return RDBStorage(
        f"sqlite:///{out / 'study.db'}",
        engine_kwargs={"connect_args": {"timeout": 60}},
        heartbeat_interval=HEARTBEAT,
        grace_period=3 * HEARTBEAT,
        heartbeat_stale_trial_callback=RetryHeartbeatStaleTrialCallback(max_retry=3),
    )


def open_study(name: str, sweep: Sweep, space: dict, out: Path, worker: int = 0) -> optuna.Study:
    """The study, made or joined. Workers of a search have random streams of their own, of a grid one order."""
    if sweep.sampler == "grid":
        sampler = optuna.samplers.GridSampler({key: list(values) for key, values in space.items()}, seed=0)
        pruner = optuna.pruners.NopPruner()
    else:
        sampler = optuna.samplers.TPESampler(seed=worker, constant_liar=True)
        pruner = optuna.pruners.MedianPruner(n_startup_trials=4)
    return optuna.create_study(
        study_name=name, storage=storage(out), sampler=sampler, pruner=pruner, direction="minimize", load_if_exists=True
    )


def finished(study: optuna.Study) -> list[FrozenTrial]:
    """Trials with a score."""
    return study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))


def trial_table(study: optuna.Study) -> pd.DataFrame:
    """One line a setting: its fields and its prose loss on the tune split (settings that came up twice once)."""
    rows = [trial.params | {"prose": trial.value} for trial in finished(study)]
    if not rows:
        return pd.DataFrame()
    frame = pd.DataFrame(rows)
    keys = [key for key in frame.columns if key != "prose"]
    return frame.drop_duplicates(keys).sort_values(keys).reset_index(drop=True)


def best_settings(table: pd.DataFrame) -> pd.DataFrame:
    """For each arm the settings with the lowest mean loss over seeds."""
    keys = [key for key in table.columns if key not in ("seed", "prose")]
    means = table.groupby(keys, as_index=False)["prose"].mean()
    return means.loc[means.groupby("arm")["prose"].idxmin()].reset_index(drop=True)


def extended(table: pd.DataFrame, key: str, space: dict) -> tuple[float, ...]:
    """The values of `key` that are still missing: one beyond each edge at which some arm has its best, by the grid's own factor."""
    values = sorted(float(value) for value in space[key])
    best = best_settings(table)[key]
    factor = values[1] / values[0]
    below = [values[0] / factor] if (best <= values[0] * 1.0001).any() else []
    above = [values[-1] * values[-1] / values[-2]] if (best >= values[-1] * 0.9999).any() else []
    return (*below, *above)


def points(space: dict) -> int:
    """Number of points of a grid."""
    return len(list(itertools.product(*space.values())))


def work(name: str, sweep: Sweep, space: dict, call: Callable[[Trial], float], out: Path, worker: int) -> None:
    """Takes trials until there are no more."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = open_study(name, sweep, space, out, worker)
    total = sweep.trials or points(space)
    done = (TrialState.COMPLETE, TrialState.PRUNED)
    study.optimize(call, callbacks=[optuna.study.MaxTrialsCallback(total, states=done)]) if count(
        study, done
    ) < total else None


def count(study: optuna.Study, states: tuple[TrialState, ...]) -> int:
    """Trials in these states."""
    return len(study.get_trials(deepcopy=False, states=states))


def workers(command: list[str], number: int) -> None:
    """Starts the same command as further workers and waits for them; they end when this process does."""
    children = [
        subprocess.Popen([sys.executable, "-m", "stemrepro.cli", *command, "--worker", str(i)])
        for i in range(1, number)
    ]
    try:
        for child in children:
            child.wait()
    finally:
        for child in children:
            child.terminate()


def clear(out: Path) -> None:
    """Removes the weights of a finished sweep; the study keeps every score."""
    shutil.rmtree(out / "runs", ignore_errors=True)


__all__ = ["atomic_write", "os"]
