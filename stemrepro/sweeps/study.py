"""The study of a sweep: its trials in one database, shared by workers, and which points of a grid are left."""

import itertools
import math
import sys
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path

import optuna
import pandas as pd
from optuna.storages import RDBStorage, RetryHeartbeatStaleTrialCallback
from optuna.trial import Trial, TrialState

from stemrepro.errors import UserError
from stemrepro.files import digest, locked
from stemrepro.sweeps.spec import Space, Sweep

warnings.filterwarnings(
    "ignore", category=optuna.exceptions.ExperimentalWarning
)  # heartbeats and retries are marked so
optuna.logging.set_verbosity(optuna.logging.ERROR)  # what failed is said in one sentence, without a traceback

ENDED = (TrialState.COMPLETE, TrialState.PRUNED)
HEARTBEAT = 20
"""Seconds between a worker's signs of life; a trial whose worker gave none for three of them is retried."""


def open_study(name: str, sweep: Sweep, out: Path, worker: int = 0) -> optuna.Study:
    """The study, made or joined. A trial whose worker died counts as failed; an open search tries it again by itself, in a grid its
    point is open again. Workers of an open search have random streams of their own."""
    out.mkdir(parents=True, exist_ok=True)
    grid = sweep.sampler == "grid"
    storage = RDBStorage(
        f"sqlite:///{out / 'study.db'}",
        engine_kwargs={"connect_args": {"timeout": 60}},
        heartbeat_interval=HEARTBEAT,
        grace_period=3 * HEARTBEAT,
        heartbeat_stale_trial_callback=None if grid else RetryHeartbeatStaleTrialCallback(max_retry=3),
    )
    return optuna.create_study(
        study_name=name,
        storage=storage,
        sampler=optuna.samplers.TPESampler(seed=worker, constant_liar=True, multivariate=True),
        pruner=optuna.pruners.NopPruner() if grid else optuna.pruners.MedianPruner(n_startup_trials=4),
        direction="minimize",
        load_if_exists=True,
    )


def grid_points(space: Space) -> list[dict]:
    """Every combination of a grid's values, in an order in which the seeds of a setting stand together."""
    return [dict(zip(space, values, strict=True)) for values in itertools.product(*space.values())]


def open_points(study: optuna.Study, points: list[dict]) -> list[dict]:
    """The points of a grid that no trial has a result for."""
    ended = [trial.user_attrs.get("point") for trial in study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))]
    return [point for point in points if point not in ended]


def ended(study: optuna.Study) -> int:
    """Trials with a result."""
    return len(study.get_trials(deepcopy=False, states=ENDED))


def progress_of(studies: dict[str, optuna.Study], sweep: Sweep, parts: dict[str, Space]) -> tuple[int, int]:
    """How much of a sweep is done, and of how much: points of a grid, or trials that were asked for. Never more than all."""
    if sweep.sampler == "grid":
        points = {name: grid_points(parts[name]) for name in studies}
        left = sum(len(open_points(study, points[name])) for name, study in studies.items())
        total = sum(map(len, points.values()))
        return total - left, total
    return sum(min(ended(study), sweep.trials) for study in studies.values()), len(studies) * sweep.trials


def spaces(name: str, sweep: Sweep, space: Space) -> dict[str, Space]:
    """What is searched by the name of its study: a grid in one, every arm of an open search in its own, so that each has as many trials
    and none is left for another that does better."""
    if sweep.sampler == "grid":
        return {name: space}
    return {f"{name}@{arm}": space | {"arm": (arm,)} for arm in space["arm"]}


def work(name: str, sweep: Sweep, space: Space, call: Callable[..., float], out: Path, worker: int = 0) -> None:
    """Takes the open points of a grid, once each; or trials until a search has as many as it asks for.

    Then it waits for what other workers still have, and takes it over where they died.

    Args:
        call: called with a trial and `space`.
        worker: gives an open search a random stream of its own.
    """
    study, call = open_study(name, sweep, out, worker), partial(call, space=space)
    if sweep.sampler == "grid":
        held = [point for point in open_points(study, grid_points(space)) if not _take(study, point, call, out)]
        for point in held:
            _take(study, point, call, out, wait=True)
        return
    while (count := ended(study)) < sweep.trials:
        optuna.storages.fail_stale_trials(study)  # and puts them back
        if count + len(study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))) < sweep.trials:
            _try(study, call)
        else:
            time.sleep(1)


def _try(study: optuna.Study, call: Callable[[Trial], float], catch: tuple[type[Exception], ...] = ()) -> bool:
    """One trial; False where another worker took it for dead meanwhile, as when this one was suspended or the clock was set."""
    mine, told = [], False

    def noted(trial: Trial) -> float:
        nonlocal told
        mine.append(trial.number)
        try:
            value = call(trial)
        except optuna.exceptions.UpdateFinishedTrialError:
            told = True
            raise
        told = True
        return value

    try:
        study.optimize(noted, n_trials=1, catch=catch)
    except Exception:
        if told and study.get_trials(deepcopy=False)[mine[0]].state == TrialState.FAIL:
            return False
        raise
    return True


def _take(study: optuna.Study, point: dict, call: Callable[[Trial], float], out: Path, wait: bool = False) -> bool:
    """Runs a point if it is open; False where another worker has it and it isn't waited for. The system frees it when that one dies."""
    try:
        with locked(out / "points" / digest(point), "" if wait else "another worker has this point"):
            if open_points(study, [point]):
                study.sampler = optuna.samplers.PartialFixedSampler(point, optuna.samplers.RandomSampler())
                while not _try(study, partial(_at_point, call=call, point=point), (UserError,)):
                    pass
    except UserError:  # not of the point itself, which is caught above
        return False
    return True


def work_all(parts: dict[str, Space], sweep: Sweep, call: Callable[..., float], out: Path, worker: int = 0) -> None:
    """Works on one study after the other."""
    for name, space in parts.items():
        work(name, sweep, space, call, out, worker)


def _at_point(trial: Trial, call: Callable[[Trial], float], point: dict) -> float:
    trial.set_user_attr("point", point)
    try:
        return call(trial)
    except UserError as error:
        print(f"stemrepro: {error}", file=sys.stderr)
        raise


def check_complete(name: str, sweep: Sweep, space: Space, study: optuna.Study) -> None:
    """Raises UserError while trials are missing: what is best among the others may not be the best."""
    again = f"start 'stemrepro sweep' for {name} again: what is done is kept, and the others are tried again"
    if sweep.sampler == "grid":
        points = grid_points(space)
        if missing := open_points(study, points):
            first = ", ".join(f"{key} {value}" for key, value in missing[0].items())
            raise UserError(f"{len(missing)} of the grid's {len(points)} points have no result ({first}, say); {again}")
    elif (count := ended(study)) < sweep.trials:
        raise UserError(f"{count} of {sweep.trials} trials have a result; {again}")


def trial_table(study: optuna.Study) -> pd.DataFrame:
    """One line a setting: its fields, its prose loss on the tune split, and how it ended (settings that came up twice once)."""
    rows = []
    for trial in study.get_trials(deepcopy=False, states=ENDED):
        pruned = trial.state == TrialState.PRUNED
        state = "pruned" if pruned else "complete" if math.isfinite(trial.value) else "diverged"
        rows.append(trial.user_attrs["settings"] | {"prose": trial.value, "state": state})
    if not rows:
        return pd.DataFrame()
    frame = pd.DataFrame(rows)
    keys = [key for key in frame.columns if key not in ("prose", "state")]
    return frame.sort_values([*keys, "state"]).drop_duplicates(keys).reset_index(drop=True)
