"""Sweeps by Optuna: grids and open searches over arms and their fields, several workers on one study, killed trials retried.

A trial is one run, trained like any other into sweeps/<scale>/<sweep>/runs/<settings>/ and scored on the tune split, which no recipe
uses. Its folder is named by its settings, so a trial that was killed resumes, and settings that come up twice are trained once.
The study lives in sweeps/<scale>/<sweep>/study.db; start the same command again for another worker. A point of a grid is done when it
has a result; one that failed or was killed is tried again by the next start, and there are no results of a sweep that lacks points.
"""

import fcntl
import itertools
import json
import math
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import Event, Thread

import numpy as np
import optuna
import pandas as pd
from optuna.storages import RDBStorage, RetryHeartbeatStaleTrialCallback
from optuna.trial import Trial, TrialState
from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress

from stemrepro.arm import Arm, run_settings
from stemrepro.book import Book
from stemrepro.data.integrity import verified_hash
from stemrepro.data.sources import prose
from stemrepro.errors import UserError, unknown
from stemrepro.files import digest, write_json
from stemrepro.model.cost import row_elements
from stemrepro.records import parse
from stemrepro.runs import MAIN, Address, Run
from stemrepro.scale import Point
from stemrepro.sweeps.results import best_by, best_settings, write_results
from stemrepro.sweeps.spec import ARM_FIELDS, Range, Space, Sweep, read_sweep
from stemrepro.tracking import Tracker

warnings.filterwarnings(
    "ignore", category=optuna.exceptions.ExperimentalWarning
)  # heartbeats and retries are marked so
optuna.logging.set_verbosity(optuna.logging.WARNING)

MOST_EXTENSIONS = 3
EDGE_GAIN = 0.01
"""Nats by which an edge of a grid must beat the value next to it to be a reason to go on; less is a seed's noise."""
ENDED = (TrialState.COMPLETE, TrialState.PRUNED)
HEARTBEAT = 20
"""Seconds between a worker's signs of life; a trial whose worker gave none for three of them is retried."""


def suggested(trial: Trial, space: Space) -> dict:
    """A value for every key of the space. Lists of numbers are given as wide ranges, so that a grid may grow within its study."""
    found = {}
    for key, values in space.items():
        if isinstance(values, Range):
            found[key] = trial.suggest_float(key, values.low, values.high, log=values.log)
        elif key == "seed":
            found[key] = trial.suggest_int(key, min(values), max(values)) if len(set(values)) > 1 else values[0]
        elif all(isinstance(value, int | float) for value in values):
            found[key] = trial.suggest_float(key, 0.0, 1e6)
        else:
            found[key] = trial.suggest_categorical(key, list(values))
    return found


def run_of(values: dict, book: Book, scale_name: str, data: Path, out: Path) -> Run:
    """The run of some settings. An arm without tables has no table fields, so that they don't count as other settings.

    Raises:
        UserError: an unknown arm, or a field that the arm can't have.
    """
    scale, name = book.scale(scale_name), values["arm"]
    if name not in book.arms:
        raise unknown("arm", name, book.arms, "recipes/arms.yaml")
    scale = scale.model_copy(update={"learning_rate": float(values["learning_rate"])})
    arm, address = book.arms[name], Address(MAIN, name)
    if row_elements(run_settings(address, arm, Point(), scale)[0]):
        fields = {key: values[key] for key in ARM_FIELDS if key in values}
        arm = parse(Arm, arm.model_dump() | fields, Path("recipes/arms.yaml"), name)
    model, training = run_settings(address, arm, Point(), scale)
    seed = int(values["seed"])
    key = digest({"arm": arm.model_dump(mode="json"), "rate": training.learning_rate, "seed": seed})
    return Run(address, seed, model, training, out / "runs" / f"{name}-{key}", scale.data, data, verified_hash(data))


def settings_of(run: Run, values: dict) -> dict:
    """What the space asked of a run, as far as its arm has such fields."""
    plain = {"arm": run.address.arm, "seed": run.seed, "learning_rate": run.training.learning_rate}
    tables = {
        "table_rate_factor": run.training.table_rate_factor,
        "table_decay_factor": run.training.table_decay_factor,
        "table_init": run.model.table_init,
    }
    has = row_elements(run.model) > 0
    neutral = {"table_rate_factor": 1.0, "table_decay_factor": 1.0, "table_init": "xavier", "placement": "none"}
    given = plain | (tables | {"placement": values.get("placement")} if has else neutral)
    return {key: given[key] for key in values}


def mean_prose(losses: dict[str, float]) -> float:
    """Mean over the prose sources of losses by source."""
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


def objective(trial: Trial, sweep: Sweep, space: Space, book: Book, scale: str, data: Path, out: Path) -> float:
    """Trains the trial's run and scores it; in an open search the pruner may end it at a mark.

    Raises:
        optuna.TrialPruned: it fell behind the median of the trials before it.
    """
    import torch

    from stemrepro.training.train import train

    values, asked = suggested(trial, space), book.scale(scale).evaluation
    run = run_of(values, book, scale, data, out)
    settings = settings_of(run, values)
    trial.set_user_attr("settings", settings)
    for other in trial.study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,)):
        if other.user_attrs.get("settings") == settings:
            return other.value  # a grown grid comes by its old points again
    torch.set_num_threads(run.training.threads)

    def mark(step: int, losses: dict[str, float]) -> None:
        if sweep.sampler == "tpe":
            trial.report(mean_prose(losses), step)
            if trial.should_prune():
                raise optuna.TrialPruned

    run.folder.parent.mkdir(parents=True, exist_ok=True)
    with open(run.folder.with_suffix(".lock"), "w") as lock:
        # Another worker may have the same settings; the system lets go of the lock when a worker is killed.
        fcntl.flock(lock, fcntl.LOCK_EX)
        train(run, lambda *_: None, replace=True, mark=mark)
        for table in run.folder.glob("tables-*"):
            table.unlink()
        return tune_loss(run, asked.tokens, asked.batch)


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
        sampler=optuna.samplers.TPESampler(seed=worker, constant_liar=True),
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


@contextmanager
def held(path: Path) -> Iterator[bool]:
    """Whether this process could take a lock, which it then has; the system lets go of it when a worker is killed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


def work(name: str, sweep: Sweep, space: Space, call: Callable[[Trial], float], out: Path, worker: int = 0) -> None:
    """Takes the open points of a grid that no other worker has, once each; or trials until a search has as many as it asks for."""
    study = open_study(name, sweep, out, worker)
    if sweep.sampler == "grid":
        anything = optuna.samplers.RandomSampler()
        for point in open_points(study, grid_points(space)):
            with held(out / "points" / f"{digest(point)}.lock") as mine:
                if mine and open_points(study, [point]):
                    study.sampler = optuna.samplers.PartialFixedSampler(point, anything)
                    study.optimize(partial(_at_point, call=call, point=point), n_trials=1, catch=(UserError,))
        return
    if len(study.get_trials(deepcopy=False, states=ENDED)) < sweep.trials:
        study.optimize(call, callbacks=[optuna.study.MaxTrialsCallback(sweep.trials, states=ENDED)])


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
    elif (count := len(study.get_trials(deepcopy=False, states=ENDED))) < sweep.trials:
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
    children = [subprocess.Popen([*command, "--worker", str(i)]) for i in range(1, number)]
    try:
        alone()
        if any([child.wait() for child in children]):
            raise UserError(
                "a worker of the sweep failed; its message stands above. Start the command again: finished trials are kept"
            )
    finally:
        for child in children:
            child.terminate()


@contextmanager
def progress(console: Console, study: optuna.Study, total: int) -> Iterator[None]:
    """A bar of the trials that have a result, over all workers."""
    stop = Event()
    with Progress(*Progress.get_default_columns(), MofNCompleteColumn(), console=console, transient=True) as bar:
        task = bar.add_task("trials", total=total)

        def watch() -> None:
            while not stop.wait(2):
                bar.update(task, completed=len(study.get_trials(deepcopy=False, states=ENDED)))

        watcher = Thread(target=watch, daemon=True)
        watcher.start()
        try:
            yield
        finally:
            stop.set()
            watcher.join()


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
    grown = out / "grown.json"  # values of a grid that was extended, for the workers and after a kill
    space: Space = dict(sweep.space)
    if grown.exists():
        space |= {key: tuple(values) for key, values in json.loads(grown.read_text()).items() if key in sweep.extend}
    if worker:
        work(
            name,
            sweep,
            space,
            partial(objective, sweep=sweep, space=space, book=book, scale=scale, data=data, out=out),
            out,
            worker,
        )
        return
    run_of(
        {key: values[0] if isinstance(values, tuple) else values.low for key, values in space.items()},
        book,
        scale,
        data,
        out,
    )
    command = [sys.executable, "-m", "stemrepro.cli", "sweep", str(file), "--scale", scale]
    for number_of_extensions in range(1 + MOST_EXTENSIONS):
        call = partial(objective, sweep=sweep, space=space, book=book, scale=scale, data=data, out=out)
        study = open_study(name, sweep, out)
        left = len(open_points(study, grid_points(space))) if sweep.sampler == "grid" else 0
        total = sweep.trials or len(study.get_trials(deepcopy=False, states=ENDED)) + left
        with progress(console, study, total):
            work_together(command, number, partial(work, name, sweep, space, call, out))
        check_complete(name, sweep, space, study)
        table = trial_table(study)
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
    write_results(study, sweep.sampler, table, results / scale / "sweeps" / name, book.arms)
    Tracker(scale, book, Path("runs"), Path("scores"), results).sync_sweep(
        name, table, results / scale / "sweeps" / name
    )
    console.print(best_settings(table).to_string(index=False))
