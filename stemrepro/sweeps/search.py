"""Sweeps by Optuna: grids and open searches over arms and their fields, several workers on one study, killed trials retried.

A trial is one run, trained like any other into sweeps/<scale>/<sweep>/runs/<settings>/ and scored on the tune split, which no recipe
uses. Its folder is named by its settings, so a trial that was killed resumes, and settings that come up twice are trained once.
The study lives in sweeps/<scale>/<sweep>/study.db; start the same command again for another worker. A point of a grid is done when it
has a result; one that failed or was killed is tried again by the next start, and there are no results of a sweep that lacks points.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import optuna
import pandas as pd
from optuna.trial import TrialState
from rich.console import Console

from stemrepro.book import Book
from stemrepro.errors import UserError
from stemrepro.files import write_json
from stemrepro.progress import Course, Piece, shown
from stemrepro.sweeps.results import best_by, best_settings, write_results
from stemrepro.sweeps.spec import Space, read_sweep
from stemrepro.sweeps.study import (
    ENDED,
    check_complete,
    grid_points,
    open_points,
    open_study,
    spaces,
    trial_table,
    work_all,
)
from stemrepro.sweeps.trials import first_points, objective, run_of
from stemrepro.tracking import Tracker
from stemrepro.workers import ctrl_c_held

MOST_EXTENSIONS = 3
SHARES = 100
"""Parts in which a trial's progress is told."""
EDGE_GAIN = 0.01
"""Nats by which an edge of a grid must beat the value next to it to be a reason to go on; less is a seed's noise."""


def extended(table: pd.DataFrame, keys: tuple[str, ...]) -> dict[str, list[float]]:
    """The values of `keys` in a grid that is grown where some arm has its best at an edge; {} where none has.

    The first of `keys` at whose edge an arm gains more than EDGE_GAIN over the value next to it gets the next value there, by the
    grid's own factor. An arm that knows only one value of a key (no tables, no table rate) has no edge in it.
    """
    values = {key: [float(value) for value in np.sort(table[key].unique())] for key in keys}
    for key in keys:
        losses = best_by(table, key)
        losses = losses[losses.notna().sum(axis=1) > 1]
        best, grown = losses.min(axis=1), set()
        for edge, inner in ((0, 1), (-1, -2)):
            at, beside = losses[values[key][edge]], losses[values[key][inner]]
            if ((at == best) & (beside - at > EDGE_GAIN)).any():
                grown.add(float(f"{values[key][edge] ** 2 / values[key][inner]:.6g}"))
        if grown:
            return values | {key: sorted({*values[key], *grown})}
    return {}


def work_together(command: list[str], number: int, alone: Callable[[], None]) -> None:
    """Works with `number` - 1 further processes of the same command; they end when this one does.

    Raises:
        UserError: a worker failed.
    """
    children = []
    try:
        with ctrl_c_held():
            children += [subprocess.Popen([*command, "--worker", str(i)]) for i in range(1, number)]
        alone()
        if any([child.wait() for child in children]):
            raise UserError(
                "a worker of the sweep failed; its message stands above. Start the command again: finished trials are kept"
            )
    finally:
        for child in children:
            child.terminate()
        for child in children:
            child.wait()


def ended(studies: Iterable[optuna.Study]) -> int:
    """Trials with a result."""
    return sum(len(study.get_trials(deepcopy=False, states=ENDED)) for study in studies)


def called(trial: optuna.trial.FrozenTrial) -> str:
    """A trial in a line: its arm, and what else is set."""
    settings = trial.user_attrs.get("settings", {})
    others = ", ".join(
        f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in settings.items() if k != "arm"
    )
    return f"{settings.get('arm', f'trial {trial.number}')}{f' {others}' if others else ''}"


class Going:
    """How far a sweep is: from its studies what all workers have begun and ended since, from this worker the share of its own trial."""

    def __init__(self, name: str, studies: Iterable[optuna.Study], total: int, workers: int) -> None:
        self.name, self.studies, self.total, self.workers = name, list(studies), total, workers
        self.before = {key for key, trial in self._trials() if trial.state != TrialState.WAITING}
        self.own: tuple[tuple[str, int], float] | None = None

    def _trials(self) -> Iterator[tuple[tuple[str, int], optuna.trial.FrozenTrial]]:
        for study in self.studies:
            for trial in study.get_trials(deepcopy=False):
                yield (study.study_name, trial.number), trial

    def report(self, trial: optuna.Trial, share: float) -> None:
        """So much of this worker's trial is trained."""
        self.own = (trial.study.study_name, trial.number), share

    def course(self) -> Course:
        """As it is now."""
        trials, own, now = list(self._trials()), self.own, 0.0
        done = sum(key in self.before and trial.state in ENDED for key, trial in trials)
        most = max(0, self.total - done)
        new = [pair for pair in trials if pair[0] not in self.before]
        new = [pair for pair in new if pair[1].state in (*ENDED, TrialState.RUNNING)][:most]
        mine = own[0] if own else None  # of others' trials nobody tells how far they are
        pieces = [Piece(called(trial), SHARES if key == mine else 1) for key, trial in new]
        pieces += [Piece("")] * (most - len(new))
        course = Course(f"sweep {self.name}", pieces, self.workers, done=done, clock=lambda: now)
        for number, (key, trial) in enumerate(new):
            now = trial.datetime_start.timestamp()
            course.begin(number)
            if trial.state in ENDED:
                now = trial.datetime_complete.timestamp()
                course.end(number)
            elif key == mine:
                now = time.time()
                course.report(number, round(SHARES * own[1]))
        return course


def run_sweep(
    file: Path, book: Book, scale: str, data: Path, results: Path, number: int, worker: int, console: Console
) -> None:
    """Runs what is left of a sweep, then writes its results.

    Args:
        data: token blocks.
        results: `results`/<scale>/sweeps/<name>/ gets data.csv, best.csv and figures.
        number: processes; `worker` is this one's number, the first coordinates.

    Raises:
        UserError: a mistake in the file, missing data, a failed worker.
    """
    sweep, name, out = read_sweep(file), file.stem, Path("sweeps") / scale / file.stem
    folder = results / scale / "sweeps" / name
    grown = out / "grown.json"  # values of a grid that was extended, for the workers and after a kill
    space: Space = dict(sweep.space)
    if grown.exists():
        space |= {key: tuple(values) for key, values in json.loads(grown.read_text()).items() if key in sweep.extend}
    call = partial(objective, sweep=sweep, book=book, scale=scale, data=data, out=out)
    if worker:
        work_all(spaces(name, sweep, space), sweep, call, out, worker)
        return
    first = {key: values[0] if isinstance(values, tuple) else values.low for key, values in space.items()}
    run_of(first, book, scale, data, out, sweep.point)  # mistakes are named before anything runs
    command = [sys.executable, "-m", "stemrepro.cli", "sweep", str(file), "--scale", scale]
    for number_of_extensions in range(1 + MOST_EXTENSIONS):
        parts = spaces(name, sweep, space)
        studies = {own: open_study(own, sweep, out) for own in parts}
        for own, study in studies.items():
            for point in first_points(sweep, parts[own], book, scale) if sweep.first else ():
                study.enqueue_trial(point, skip_if_exists=True)
        left = len(open_points(studies[name], grid_points(space))) if sweep.sampler == "grid" else 0
        total = len(parts) * (sweep.trials or 0) or ended(studies.values()) + left

        going = Going(name, studies.values(), total, number)
        with shown(going.course):
            work_together(command, number, partial(work_all, parts, sweep, partial(call, report=going.report), out))
        for own, study in studies.items():
            check_complete(own, sweep, parts[own], study)
        table = pd.concat([trial_table(study) for study in studies.values()], ignore_index=True)
        more = extended(table, sweep.extend)
        if not more:
            break
        whole = "; ".join(f"{key} {', '.join(f'{value:g}' for value in values)}" for key, values in more.items())
        write_json(grown, more)
        if number_of_extensions == MOST_EXTENSIONS:
            console.print(f"an arm still has its best at the grid's edge; start the command again for {whole}")
            break
        console.print(f"an arm has its best at the grid's edge: the grid is now {whole}, for all arms")
        space |= {key: tuple(values) for key, values in more.items()}
    write_results(studies, sweep, table, folder, book.arms)
    Tracker(scale, book, Path("runs"), Path("scores"), results).sync_sweep(name, table, folder)
    console.print(best_settings(table).to_string(index=False))
