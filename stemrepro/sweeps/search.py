"""Sweeps by Optuna: grids and open searches over arms and their fields, by several processes on one database.

A trial is one run, trained like any other into sweeps/<scale>/<sweep>/runs/<settings>/ and scored on the tune split,
which no recipe uses. Its folder is named by its settings. So a trial that was killed resumes, and settings that come
up twice are trained once.

Each arm has a study in sweeps/<scale>/<sweep>/study.db, or in the database that OPTUNA_STORAGE names. Its name has a
hash of the code, text and settings that its trials share: where one of them is another the arm begins anew, and the
results of before stay in the database. Points of a grid are queued, and failed ones again by the next command.
"""

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
from optuna.exceptions import ExperimentalWarning, UpdateFinishedTrialError
from optuna.storages import RDBStorage, RetryHeartbeatStaleTrialCallback
from optuna.trial import TrialState
from rich.console import Console

from stemrepro.common import mkl_avx512
from stemrepro.common.errors import UserError
from stemrepro.common.files import locked, write_json
from stemrepro.common.progress import bar
from stemrepro.common.provenance import commit, provenance
from stemrepro.common.stopping import started
from stemrepro.config.catalog import Catalog
from stemrepro.sweeps.spec import Space, Sweep, read_sweep
from stemrepro.sweeps.trials import counting_for, first_points, grid_points, objective, space_of, suggested

warnings.filterwarnings("ignore", category=ExperimentalWarning)  # heartbeats and retries are marked so
optuna.logging.set_verbosity(optuna.logging.ERROR)  # a failure is one sentence, without a traceback

HEARTBEAT = 20
"""Seconds between a worker's signs of life; a trial whose worker missed three of them is queued again."""


class NotAsked(Exception):
    """A trial of a grid that no point was queued for, or one that the file doesn't have any more."""


@dataclass(frozen=True)
class ArmStudy:
    """The study of one arm.

    Attributes:
        space: without the fields that the arm can't have.
        points: all of a grid; of an open search those that it begins with.
        trials: how many an open search has; None for a grid.
    """

    arm: str
    study: optuna.Study
    space: Space
    points: list[dict]
    trials: int | None

    def ended(self) -> list[optuna.trial.FrozenTrial]:
        """Return the trials with a result; of a grid those of its points."""
        trials = self.study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.PRUNED))
        return [trial for trial in trials if self.trials or trial.user_attrs.get("point") in self.points]

    def left(self) -> list[dict] | range:
        """Return the points of a grid that have no result, or as many numbers as an open search lacks trials."""
        if self.trials:
            return range(self.trials - len(self.ended()))
        done = [trial.user_attrs["point"] for trial in self.ended()]
        return [point for point in self.points if point not in done]

    def queue(self) -> None:
        """Queue the points that were never queued, and those of which all trials failed."""
        trials = self.study.get_trials(deepcopy=False)
        alive = [trial.user_attrs.get("point") for trial in trials if trial.state != TrialState.FAIL]
        failed = [trial.user_attrs.get("point") for trial in trials if trial.state == TrialState.FAIL]
        for point in self.points:
            again = point in failed and point not in alive
            self.study.enqueue_trial(point, user_attrs={"point": point}, skip_if_exists=not again)

    def running(self) -> list[optuna.trial.FrozenTrial]:
        """Return the trials that some worker has, or had when it died."""
        return self.study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))

    def work(self, call: Callable[[optuna.Trial, dict], float], begun: Callable[[], None] = lambda: None) -> None:
        """Run what is queued; in an open search new trials, until those that have ended or run are enough.

        Args:
            call: returns the loss of a trial and its values; a UserError of it is printed, and fails a grid's point.
            begun: called at the beginning of each trial.
        """

        def run(trial: optuna.Trial) -> float:
            if not self.trials and trial.user_attrs.get("point") not in self.points:
                raise NotAsked
            begun()
            try:
                return call(trial, {"arm": self.arm} | suggested(trial, self.space, not self.trials))
            except UserError as error:
                if not self.trials:
                    print(f"stemrepro: {error}", file=sys.stderr)
                raise

        while True:
            optuna.storages.fail_stale_trials(self.study)  # and queues them again
            if self.trials:
                if len(self.ended()) + len(self.running()) >= self.trials:
                    return
            elif not self.study.get_trials(deepcopy=False, states=(TrialState.WAITING,)):
                return
            try:
                self.study.optimize(run, n_trials=1, catch=() if self.trials else (UserError, NotAsked))
            except UpdateFinishedTrialError:  # a worker that was suspended, and whose trial another one has
                continue

    def table(self, keys: list[str]) -> pd.DataFrame:
        """Return one row per setting, in the order of trials: number, fields, prose loss on the tune split, state."""
        rows = []
        for trial in self.ended():
            pruned = trial.state == TrialState.PRUNED
            state = "pruned" if pruned else "complete" if math.isfinite(trial.value) else "diverged"
            number = {"number": trial.number}
            rows.append(number | trial.user_attrs["settings"] | {"prose": trial.value, "state": state})
        return pd.DataFrame(rows).sort_values(["state", "number"]).drop_duplicates(keys).sort_values("number")


def open_storage(out: Path) -> RDBStorage:
    """Open the database of a sweep, or the one that OPTUNA_STORAGE names.

    Raises:
        UserError: it can't be opened.
    """
    server = os.environ.get("OPTUNA_STORAGE")
    out.mkdir(parents=True, exist_ok=True)
    try:
        return RDBStorage(
            server or f"sqlite:///{out / 'study.db'}",
            engine_kwargs={} if server else {"connect_args": {"timeout": 60}},
            heartbeat_interval=HEARTBEAT,
            grace_period=3 * HEARTBEAT,
            heartbeat_stale_trial_callback=RetryHeartbeatStaleTrialCallback(max_retry=3),
        )
    except Exception as error:  # of SQLAlchemy, of a driver, or one that is missing
        where = f"OPTUNA_STORAGE ({server})" if server else str(out / "study.db")
        raise UserError(f"{where} can't be opened: {' '.join(str(error).split())[:200]}") from error


def open_studies(name: str, sweep: Sweep, catalog: Catalog, scale: str, data: Path, out: Path, worker: int) -> list[ArmStudy]:
    """Make or join the studies of a sweep's arms, each with the same number of trials or the same grid.

    Raises:
        UserError: an unknown arm, or a field that an arm can't have.
    """
    spaces = {arm: space_of(arm, sweep.space, catalog, scale) for arm in sweep.space["arm"]}
    hashes = {arm: counting_for(arm, sweep, space, catalog, scale, data) for arm, space in spaces.items()}
    grid, storage, studies = sweep.sampler == "grid", open_storage(out), []
    for arm, space in spaces.items():
        study = optuna.create_study(
            study_name=f"{scale}/{name}@{arm}-{hashes[arm]}",
            storage=storage,
            pruner=optuna.pruners.NopPruner() if grid else optuna.pruners.MedianPruner(n_startup_trials=4),
            load_if_exists=True,
        )
        seed = 1000 * len(study.get_trials(deepcopy=False)) + worker  # one that resumes draws nothing twice
        study.sampler = optuna.samplers.TPESampler(seed=seed, constant_liar=True, multivariate=True)
        points = grid_points(space) if grid else first_points(sweep, space, catalog.scale(scale)) if sweep.first else []
        studies.append(ArmStudy(arm, study, space, points, sweep.trials))
    return studies


def check_complete(studies: list[ArmStudy], name: str) -> None:
    """Raise UserError while trials are missing: the best of the others may not be the best."""
    for one in studies:
        if left := one.left():
            first = "" if one.trials else f" ({', '.join(f'{key} {value}' for key, value in left[0].items())}, say)"
            what, every = ("trials", one.trials) if one.trials else ("the grid's points", len(one.points))
            raise UserError(
                f"{len(left)} of {every} {what} of {one.arm} have no result{first}; start 'stemrepro sweep' for {name} "
                "again: what is done is kept, and the others are tried again"
            )


def run_sweep(
    file: Path, catalog: Catalog, scale: str, data: Path, results: Path, number: int, worker: int, console: Console
) -> None:
    """Run what is left of a sweep, then write its results.

    Args:
        data: token blocks.
        results: `results`/<scale>/sweeps/<name>/ gets data.csv, best.csv and figures.
        number: processes; `worker` is this one's number, the first coordinates.

    Raises:
        UserError: a mistake in the file, missing data, a failed worker.
    """
    if catalog.scale(scale).training.mkl_avx512:
        mkl_avx512.load()
    sweep, name, out = read_sweep(file), file.stem, Path("sweeps") / scale / file.stem
    call = partial(objective, sweep=sweep, catalog=catalog, scale=scale, data=data, out=out)
    if worker:
        for one in open_studies(name, sweep, catalog, scale, data, out, worker):
            one.work(partial(call, report=lambda share: None))
        return
    commit()  # as in training
    with locked(out):  # the same command may be started twice
        studies = open_studies(name, sweep, catalog, scale, data, out, worker)
        for one in studies:
            one.queue()
    total, left = sum(one.trials or len(one.points) for one in studies), sum(len(one.left()) for one in studies)
    command, seen = ["sweep", str(file), "--scale", scale], set()
    with (
        bar(f"sweep {name}", total, total - left) as shown,
        started([[*command, "--worker", str(i)] for i in range(1, min(number, left))]) as others,
    ):

        def show(share: float = 0.0) -> None:
            shown.n = int(shown.n) + min(share, 0.99) if share else total - sum(len(one.left()) for one in studies)
            shown.update(0)

        while any(one.left() for one in studies):
            for one in studies:
                one.work(partial(call, report=show), show)
            if not (running := [trial for one in studies for trial in one.running()]):
                break
            for trial in running:  # of other workers; one that died before its first sign of life never becomes stale
                if trial._trial_id not in seen:
                    studies[0].study._storage.record_heartbeat(trial._trial_id)
            seen |= {trial._trial_id for trial in running}
            time.sleep(1)
        lost = sum(other.wait() != 0 for other in others)
    if lost:
        console.print(f"{lost} of {number} workers failed or were killed; their trials were taken over")
    check_complete(studies, name)
    table = pd.concat([one.table(list(sweep.space)) for one in studies], ignore_index=True)
    from stemrepro.sweeps.results import edges, best_settings, tuned_lines, write_results  # seconds that workers save

    folder = results / scale / "sweeps" / name
    with locked(out):
        write_results(sweep, table, folder, catalog.arms)
        write_json(folder / "provenance.json", provenance() | {"trials": len(table)})
    best = best_settings(table)
    console.print(best.to_string(index=False))
    for arm, key, value, end in edges(table, sweep.space):
        console.print(f"{arm}: best at {key} {value:g}, the {end} that was searched; a better one may lie beyond")
    if lines := tuned_lines(best):
        console.print(f"for 'tuned' of recipes/scales/{scale}.yaml:", *lines, sep="\n", highlight=False, soft_wrap=True)


def redraw(file: Path, catalog: Catalog, scale: str, results: Path) -> None:
    """Write the results of a sweep again from its data.csv, without a trial.

    Raises:
        UserError: a mistake in the file, or no such results.
    """
    from stemrepro.common.files import damaged
    from stemrepro.sweeps.results import write_results

    sweep, folder = read_sweep(file), results / scale / "sweeps" / file.stem
    try:
        table = pd.read_csv(folder / "data.csv")
    except (OSError, ValueError) as error:
        raise damaged(folder / "data.csv", error) from error
    write_results(sweep, table, folder, catalog.arms)
