"""The study of a sweep: its trials in one database, shared by workers, and which points of a grid are left.

A result counts where it follows from today's code, text, settings and scoring, by the identity of its run. In a grid
every trial has another identity. All trials of an open search share one, so that Optuna learns from them. Other results
stay in the database.
"""

import itertools
import math
import os
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import optuna
import pandas as pd
from optuna.storages import RDBStorage, RetryHeartbeatStaleTrialCallback
from optuna.trial import Trial, TrialState

from stemrepro.common.errors import UserError
from stemrepro.common.files import digest, locked
from stemrepro.sweeps.spec import Range, Space, Sweep

warnings.filterwarnings(
    "ignore", category=optuna.exceptions.ExperimentalWarning
)  # heartbeats and retries are marked so
optuna.logging.set_verbosity(optuna.logging.ERROR)  # a failure is one sentence, without a traceback

SERVER = os.environ.get("OPTUNA_STORAGE", "")
"""Address of a database server, by Optuna's own variable; "": each sweep has a file."""
ENDED = (TrialState.COMPLETE, TrialState.PRUNED)
HEARTBEAT = 20
"""Seconds between a worker's signs of life; a trial whose worker missed three of them is retried."""


@dataclass(frozen=True)
class Part:
    """The part of a sweep that one study has: a grid, or one arm of an open search.

    Attributes:
        name: of the study.
        points: of a grid, by the identity of their runs, each run once; None of an open search.
    """

    name: str
    space: Space
    points: dict[str, dict] | None = None


def database(out: Path) -> str:
    """Return the address of a sweep's database."""
    return SERVER or f"sqlite:///{out / 'study.db'}"


def study_name(name: str, out: Path) -> str:
    """Return what a study is called in the sweep's database; a server has those of other sweeps too."""
    return f"{out.as_posix()}/{name}" if SERVER else name


def open_study(name: str, sweep: Sweep, out: Path, worker: int = 0) -> optuna.Study:
    """Make or join a study.

    A trial whose worker died counts as failed. An open search retries it by itself; in a grid its point is open again.
    Each worker of an open search has another random stream.
    """
    out.mkdir(parents=True, exist_ok=True)
    grid = sweep.sampler == "grid"
    storage = RDBStorage(
        database(out),
        engine_kwargs={"connect_args": {"timeout": 60}} if not SERVER else {},
        heartbeat_interval=HEARTBEAT,
        grace_period=3 * HEARTBEAT,
        heartbeat_stale_trial_callback=None if grid else RetryHeartbeatStaleTrialCallback(max_retry=3),
    )
    return optuna.create_study(
        study_name=study_name(name, out),
        storage=storage,
        sampler=optuna.samplers.TPESampler(seed=worker, constant_liar=True, multivariate=True),
        pruner=optuna.pruners.NopPruner() if grid else optuna.pruners.MedianPruner(n_startup_trials=4),
        direction="minimize",
        load_if_exists=True,
    )


def grid_points(space: Space) -> list[dict]:
    """Return every combination of a grid's values, in the order of the space's keys."""
    return [dict(zip(space, values, strict=True)) for values in itertools.product(*space.values())]


def parts_of(name: str, sweep: Sweep, space: Space, identity: Callable[[dict], str]) -> list[Part]:
    """Return what is searched: a grid in one study, or each arm of an open search in another study.

    So each arm has as many trials, and none is left for another that does better. A grid that grows keeps its study. An
    open search begins anew with another space or other code.

    Args:
        identity: gives the identity of a point's run.
    """
    if sweep.sampler == "grid":
        points: dict[str, dict] = {}
        for point in grid_points(space):
            points.setdefault(identity(point), point)
        return [Part(name, space, points)]
    parts = []
    for arm in space["arm"]:
        of_arm = space | {"arm": (arm,)}
        lowest = {key: values.low if isinstance(values, Range) else values[0] for key, values in of_arm.items()}
        parts.append(Part(f"{name}@{arm}-{digest([identity(lowest), of_arm])}", of_arm))
    return parts


def results_of(study: optuna.Study, part: Part) -> list[optuna.trial.FrozenTrial]:
    """Return the trials with a result; of a grid those of its points."""
    trials = study.get_trials(deepcopy=False, states=ENDED)
    return [trial for trial in trials if part.points is None or trial.user_attrs.get("run") in part.points]


def kept(out: Path, studies: list[tuple[Part, optuna.Study]]) -> str:
    """Return a sentence on the results in a sweep's database that don't count; "" where there are none."""
    names = [name for name in optuna.get_all_study_names(database(out)) if name.startswith(study_name("", out))]
    every = [optuna.load_study(study_name=name, storage=database(out)) for name in names]
    others = sum(len(study.get_trials(deepcopy=False, states=ENDED)) for study in every)
    others -= sum(len(results_of(study, part)) for part, study in studies)
    where = "the database of OPTUNA_STORAGE" if SERVER else out / "study.db"
    return (
        f"{others} results in {where} are of other code, text, settings or points: they stay there and don't count"
        if others
        else ""
    )


def open_points(study: optuna.Study, points: dict[str, dict]) -> dict[str, dict]:
    """Return the points of a grid that no trial has a result for."""
    ended = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    done = {trial.user_attrs.get("run") for trial in ended}
    return {run: point for run, point in points.items() if run not in done}


def progress_of(studies: list[tuple[Part, optuna.Study]], sweep: Sweep) -> tuple[int, int]:
    """Count the points of a grid, or the requested trials, that are done, and all of them."""
    done = total = 0
    for part, study in studies:
        if part.points is None:
            requested, ended = sweep.trials, min(len(results_of(study, part)), sweep.trials)
        else:
            requested, ended = len(part.points), len(part.points) - len(open_points(study, part.points))
        done, total = done + ended, total + requested
    return done, total


def work(part: Part, sweep: Sweep, call: Callable[..., float], out: Path, worker: int = 0) -> None:
    """Take the open points of a grid, once each; or trials until a search has as many as its file says.

    Then wait for what other workers still have, and take it over where they died.

    Args:
        call: called with a trial and `space`.
        worker: its number, which names its random stream in an open search.
    """
    study, call = open_study(part.name, sweep, out, worker), partial(call, space=part.space)
    if part.points is not None:
        left = open_points(study, part.points)
        held = {run: point for run, point in left.items() if not _take(study, run, point, call, out)}
        for run, point in held.items():
            _take(study, run, point, call, out, wait=True)
        return
    seen: set[int] = set()
    while (count := len(results_of(study, part))) < sweep.trials:
        optuna.storages.fail_stale_trials(study)  # and retries them
        running = study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
        if count + len(running) < sweep.trials:
            _try(study, call)
            continue
        for trial in running:  # Optuna never fails one whose worker died before its first sign of life
            if trial.number not in seen:
                study._storage.record_heartbeat(trial._trial_id)
        seen |= {trial.number for trial in running}
        time.sleep(1)


def _try(study: optuna.Study, call: Callable[[Trial], float], catch: tuple[type[Exception], ...] = ()) -> bool:
    """Run one trial; False where another worker took it for dead, as after a suspension."""
    numbers, over = [], False

    def noted(trial: Trial) -> float:
        nonlocal over
        numbers.append(trial.number)
        try:
            value = call(trial)
        except optuna.exceptions.UpdateFinishedTrialError:
            over = True
            raise
        over = True
        return value

    try:
        study.optimize(noted, n_trials=1, catch=catch)
    except Exception:
        if over and study.get_trials(deepcopy=False)[numbers[0]].state == TrialState.FAIL:
            return False
        raise
    return True


def _take(
    study: optuna.Study, run: str, point: dict, call: Callable[[Trial], float], out: Path, wait: bool = False
) -> bool:
    """Run a point if it is open; False where another worker has it and `wait` is False.

    The system frees the point when that worker dies.
    """
    try:
        with locked(out / "points" / run, "" if wait else "another worker has this point"):
            if open_points(study, {run: point}):
                study.sampler = optuna.samplers.PartialFixedSampler(point, optuna.samplers.RandomSampler())
                while not _try(study, partial(_at_point, call=call, run=run, point=point), (UserError,)):
                    pass
    except UserError:  # not of the point itself, which is caught above
        return False
    return True


def work_all(parts: list[Part], sweep: Sweep, call: Callable[..., float], out: Path, worker: int = 0) -> None:
    """Work on one study after the other."""
    for part in parts:
        work(part, sweep, call, out, worker)


def _at_point(trial: Trial, call: Callable[[Trial], float], run: str, point: dict) -> float:
    trial.set_user_attr("run", run)
    trial.set_user_attr("point", point)
    try:
        return call(trial)
    except UserError as error:
        print(f"stemrepro: {error}", file=sys.stderr)
        raise


def check_complete(part: Part, sweep: Sweep, study: optuna.Study) -> None:
    """Raise UserError while trials are missing: the best of the others may not be the best."""
    again = f"start 'stemrepro sweep' for {part.name} again: what is done is kept, and the others are tried again"
    if part.points is not None:
        missing = open_points(study, part.points)
        if missing:
            first = ", ".join(f"{key} {value}" for key, value in next(iter(missing.values())).items())
            count = f"{len(missing)} of the grid's {len(part.points)} points"
            raise UserError(f"{count} have no result ({first}, say); {again}")
    elif (count := len(results_of(study, part))) < sweep.trials:
        raise UserError(f"{count} of {sweep.trials} trials have a result; {again}")


def trial_table(study: optuna.Study, part: Part) -> pd.DataFrame:
    """Return one row per setting: its fields, its prose loss on the tune split, and how it ended."""
    rows = []
    for trial in results_of(study, part):
        pruned = trial.state == TrialState.PRUNED
        state = "pruned" if pruned else "complete" if math.isfinite(trial.value) else "diverged"
        rows.append(trial.user_attrs["settings"] | {"prose": trial.value, "state": state})
    if not rows:
        return pd.DataFrame()
    frame = pd.DataFrame(rows)
    keys = [key for key in frame.columns if key not in ("prose", "state")]
    return frame.sort_values([*keys, "state"]).drop_duplicates(keys).reset_index(drop=True)
