"""Sweeps by Optuna: grids and open searches over arms and their fields, by several processes on one database.

A trial is one run, trained like any other into sweeps/<scale>/<sweep>/runs/<settings>/ and scored on the tune split. So
a trial that was killed resumes, and settings that come up twice are trained once. Each arm has a study in
sweeps/<scale>/<sweep>/study.db, or in the database that OPTUNA_STORAGE names. The study's name has a hash of the code,
text and settings that its trials share: where one of them is another the arm begins anew.
"""

import os
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import optuna
import pandas as pd
from optuna.exceptions import ExperimentalWarning, UpdateFinishedTrialError
from optuna.storages import RDBStorage, RetryHeartbeatStaleTrialCallback
from optuna.trial import FrozenTrial, TrialState
from rich.console import Console
from sqlalchemy import event
from sqlalchemy.exc import SQLAlchemyError

from stemrepro.common.errors import UserError
from stemrepro.common.files import locked, write_json
from stemrepro.common.progress import bar
from stemrepro.common.provenance import provenance
from stemrepro.common.stopping import started
from stemrepro.common.workers import see_one_device
from stemrepro.config.catalog import Catalog
from stemrepro.sweeps.trials import (
    Settings,
    Space,
    Sweep,
    counting,
    first_points,
    objective,
    read_sweep,
    space_of,
    suggested,
)

warnings.filterwarnings("ignore", category=ExperimentalWarning)  # heartbeats and retries are marked so
optuna.logging.set_verbosity(optuna.logging.ERROR)  # a failure is one sentence, without a traceback

HEARTBEAT = 20
"""Seconds between a worker's signs of life; a trial whose worker missed three of them is queued again."""


@dataclass(frozen=True)
class ArmStudy:
    """The study of one arm: a grid of `points`, or a search of `trials` that begins with them."""

    arm: str
    study: optuna.Study
    storage: RDBStorage
    space: Space
    points: list[Settings]
    trials: int | None

    def having(self, *states: TrialState) -> list[FrozenTrial]:
        """Return the trials in some states."""
        return self.study.get_trials(deepcopy=False, states=states)

    def ended(self) -> list[FrozenTrial]:
        """Return the trials with a result; of a grid those of its points."""
        trials = self.having(TrialState.COMPLETE, TrialState.PRUNED)
        return [trial for trial in trials if self.trials or trial.user_attrs.get("point") in self.points]

    def left(self) -> int:
        """Count the points of a grid that have no result, or the trials that a search lacks."""
        done = [trial.user_attrs.get("point") for trial in self.ended()]
        return max(0, self.trials - len(done)) if self.trials else sum(point not in done for point in self.points)

    def queue(self) -> None:
        """Queue the points that never were, and those of which all trials failed."""
        known = [(trial.state == TrialState.FAIL, trial.user_attrs.get("point")) for trial in self.having(*TrialState)]
        for point in self.points:
            again = (True, point) in known and (False, point) not in known
            self.study.enqueue_trial(point, user_attrs={"point": point}, skip_if_exists=not again)

    def work(self, call: Callable[[optuna.Trial, Settings], float]) -> None:
        """Run what is queued, or a search until the trials that ended or run are enough; `call` returns their losses.

        A UserError of it fails the trial, and ends a search.
        """

        def run(trial: optuna.Trial) -> float:
            if not self.trials and trial.user_attrs.get("point") not in self.points:
                raise UserError("another worker took the last point, or the file lacks it now")
            try:
                return call(trial, {"arm": self.arm} | suggested(trial, self.space, not self.trials))
            except UserError as error:
                trial.set_user_attr("error", str(error))
                raise

        while True:
            optuna.storages.fail_stale_trials(self.study)  # and queues them again
            taken = len(self.ended()) + len(self.having(TrialState.RUNNING))
            if taken >= self.trials if self.trials else not self.having(TrialState.WAITING):
                return
            try:
                self.study.optimize(run, n_trials=1, catch=() if self.trials else UserError)
            except (UpdateFinishedTrialError, ValueError) as error:
                # A worker that was suspended goes on with another trial: its own was failed, and queued again.
                if isinstance(error, ValueError) and not str(error).startswith("Cannot tell a FAIL trial"):
                    raise


@contextmanager
def database() -> Iterator[None]:
    """Make one sentence of what the database says during the body; UserError."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # Optuna makes several others of the database's
        cause: BaseException | None = error
        server = os.environ.get("OPTUNA_STORAGE")
        kinds = (SQLAlchemyError, ImportError) if server else SQLAlchemyError  # a server's driver may be missing
        while cause and not isinstance(cause, kinds):
            cause = cause.__cause__ or cause.__context__
        if cause is None:
            raise
        reason = " ".join(str(getattr(cause, "orig", cause)).split())
        # The address of a server may hold a password.
        name = "the database of OPTUNA_STORAGE" if server else "study.db of the sweep, in sweeps/,"
        raise UserError(f"{name} can't be used: {reason}; start the sweep again: what is done is kept") from error


def open_studies(
    name: str, sweep: Sweep, catalog: Catalog, scale: str, data: Path, out: Path, worker: int = 0
) -> list[ArmStudy]:
    """Make or join the studies of a sweep's arms, which have as many trials each, or the same grid."""
    server, studies = os.environ.get("OPTUNA_STORAGE"), []
    address = server or f"sqlite:///{out / 'study.db'}"
    spaces = {arm: space_of(arm, sweep.space, catalog, scale) for arm in sweep.arms}
    out.mkdir(parents=True, exist_ok=True)
    storage = RDBStorage(
        address,
        {} if server else {"connect_args": {"timeout": 60, "isolation_level": None}},
        heartbeat_interval=HEARTBEAT,
        grace_period=3 * HEARTBEAT,
        heartbeat_stale_trial_callback=RetryHeartbeatStaleTrialCallback(max_retry=3),
    )
    if not server:  # SQLite locks at the first write, not at the read before it: two workers could take one trial
        event.listen(storage.engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN IMMEDIATE"))
    for arm, space in spaces.items():
        title = f"{scale}/{name}@{arm}-{counting(arm, sweep, space, catalog, scale, data)}"
        pruner = optuna.pruners.MedianPruner(n_startup_trials=4)
        study = optuna.create_study(storage=storage, pruner=pruner, study_name=title, load_if_exists=True)
        seed = 1000 * len(study.get_trials(deepcopy=False)) + worker  # what resumes draws nothing twice
        study.sampler = optuna.samplers.TPESampler(seed=seed, constant_liar=True, multivariate=True)
        points = first_points(sweep, space, catalog.scale(scale))
        studies.append(ArmStudy(arm, study, storage, space, points, sweep.trials))
    return studies


def table_of(studies: list[ArmStudy]) -> pd.DataFrame:
    """Return the trials: of a search the number, fields, prose loss on the tune split, and how each ended.

    UserError where some are missing: the best of the others may not be the best.
    """
    if left := sum(one.left() for one in studies):
        failed = [trial for one in studies for trial in one.having(TrialState.FAIL)]
        why = sorted({trial.user_attrs["error"] for trial in failed if "error" in trial.user_attrs})
        words = f" ({'; '.join(why)})" if why else ""
        raise UserError(f"{left} trials have no result{words}; start the sweep again: what is done is kept")
    trials = [trial for one in studies for trial in one.ended()]
    table = pd.DataFrame([{"number": one.number} | one.user_attrs["settings"] | {"prose": one.value} for one in trials])
    ended = np.where(np.isfinite(table["prose"]), "complete", "diverged")
    table["state"] = np.where([one.state == TrialState.PRUNED for one in trials], "pruned", ended)
    if not studies[0].trials:  # the order of a grid's trials means nothing, and depends on kills
        table = table.drop(columns="number").sort_values([*table.columns[1:-2]], ignore_index=True)
    return table.drop_duplicates(table.columns.difference(["number", "prose"]), ignore_index=True)


@database()
def run_sweep(
    file: Path, catalog: Catalog, scale: str, data: Path, results: Path, number: int, worker: int, console: Console
) -> None:
    """Run what is left of a sweep by so many processes; `worker` 0 then writes `results`/<scale>/sweeps/<name>/."""
    sweep, name, out = read_sweep(file), file.stem, Path("sweeps") / scale / file.stem
    call = partial(objective, sweep=sweep, catalog=catalog, scale=scale, data=data, out=out)
    with locked(out):  # the same command may be started twice
        studies = open_studies(name, sweep, catalog, scale, data, out, worker)
        for one in studies if not worker else ():
            one.queue()
    on_gpus = catalog.scale(scale).training.accelerator == "gpu"
    if worker:
        if on_gpus:
            see_one_device(worker)
        for one in studies:
            one.work(partial(call, report=lambda share: None))
        return
    total, left = sum(one.trials or len(one.points) for one in studies), sum(one.left() for one in studies)
    workers = [["sweep", str(file), "--scale", scale, "--worker", str(i)] for i in range(1, min(number, left))]
    seen: set[int] = set()
    with bar(f"sweep {name}", total, total - left) as shown, started(workers) as others:
        if on_gpus and workers:  # they are on their way, and see all devices
            see_one_device(worker)

        def show(share: float) -> None:
            shown.n = total - sum(one.left() for one in studies) + share
            shown.update(0)

        while sum(one.left() for one in studies):
            for one in studies:
                one.work(partial(call, report=show))
            if not (running := {trial._trial_id for one in studies for trial in one.having(TrialState.RUNNING)}):
                break
            for trial in running - seen:  # of other workers; one that died before its first sign of life stays else
                studies[0].storage.record_heartbeat(trial)
            seen |= running
            time.sleep(1)
        failed = sum(other.wait() != 0 for other in others)
    if failed:
        console.print(f"{failed} of {number} workers failed or were killed; their trials were taken over")
    table = table_of(studies)
    from stemrepro.sweeps.results import tuned_lines, write_results  # takes seconds, which other workers save

    folder = results / scale / "sweeps" / name
    with locked(out):
        best = write_results(sweep, table, folder)
        write_json(folder / "provenance.json", provenance() | {"trials": len(table)})
    lines = []
    if lost := sorted({*table["arm"]} - {*best["arm"]}):
        lines.append(f"no trial of {', '.join(lost)} ended with a finite loss; try lower learning rates in {file}")
    if not best.empty:
        lines += [best.to_string(index=False), f"for 'tuned' of recipes/scales/{scale}.yaml:", *tuned_lines(best)]
    console.print(*lines, sep="\n", highlight=False, soft_wrap=True)
