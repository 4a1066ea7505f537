"""Sweeps by Optuna: grids and open searches over arms and their fields, several workers on one study, killed trials retried.

A trial is one run, trained like any other into sweeps/<scale>/<sweep>/runs/<settings>/ and scored on the tune split, which no recipe
uses. Its folder is named by its settings, so a trial that was killed resumes, and settings that come up twice are trained once.
The study lives in sweeps/<scale>/<sweep>/study.db; start the same command again for another worker.
"""

import fcntl
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

from stemrepro.data.integrity import verified_hash
from stemrepro.data.sources import prose
from stemrepro.errors import UserError
from stemrepro.files import digest, write_json
from stemrepro.recipe import Arm, Book
from stemrepro.records import parse
from stemrepro.report.sweeps import best_by, best_settings, write_results
from stemrepro.sweep_spec import ARM_FIELDS, Range, Space, Sweep, read_sweep
from stemrepro.tracking import Tracker
from stemrepro.training.spec import Run

warnings.filterwarnings(
    "ignore", category=optuna.exceptions.ExperimentalWarning
)  # heartbeats and retries are marked so
optuna.logging.set_verbosity(optuna.logging.WARNING)

MOST_EXTENSIONS = 3
EDGE_GAIN = 0.01
"""Nats by which an edge of a grid must beat the value next to it to be a reason to go on; less is a seed's noise."""
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
        raise UserError(f"arm '{name}' is unknown: recipes/arms.yaml has {', '.join(book.arms)}")
    arm = book.arms[name]
    tables = arm.ffn not in ("dense", "hash-moe", "topk-moe") or arm.values != "none"
    fields = {key: values[key] for key in ARM_FIELDS if key in values and tables}
    arm = parse(Arm, arm.model_dump() | fields, Path("recipes/arms.yaml"), name)
    rate, seed = float(values["learning_rate"]), int(values["seed"])
    key = digest({"arm": arm.model_dump(mode="json"), "rate": rate, "seed": seed})
    return Run(name, seed, arm, scale, rate, out / "runs" / f"{name}-{key}", data, verified_hash(data))


def settings_of(run: Run, space: Space) -> dict:
    """What the space asked of a run, as far as its arm has such fields."""
    known = {"arm": run.arm_name, "seed": run.seed, "learning_rate": run.learning_rate} | run.arm.model_dump(
        mode="json"
    )
    return {key: known[key] for key in space}


def mean_prose(losses: dict[str, float]) -> float:
    """Mean over the prose sources of losses by source."""
    return float(np.mean([losses[source] for source in prose(losses)]))


def tune_loss(run: Run) -> float:
    """Prose loss of a finished run on the tune split, in nats per token."""
    from stemrepro.data.blocks import TokenBlocks
    from stemrepro.evaluation.weights import load_run
    from stemrepro.training.callbacks import losses_by_source

    scale = run.scale
    blocks = TokenBlocks(run.blocks, "tune", scale.model.sequence, run.model.vocab)
    return mean_prose(losses_by_source(load_run(run), blocks, scale.evaluation.tokens, scale.evaluation.batch))


def objective(trial: Trial, sweep: Sweep, space: Space, book: Book, scale: str, data: Path, out: Path) -> float:
    """Trains the trial's run and scores it; in an open search the pruner may end it at a mark.

    Raises:
        optuna.TrialPruned: it fell behind the median of the trials before it.
    """
    import torch

    from stemrepro.training.train import train

    run = run_of(suggested(trial, space), book, scale, data, out)
    settings = settings_of(run, space)
    trial.set_user_attr("settings", settings)
    for other in trial.study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,)):
        if other.user_attrs.get("settings") == settings:
            return other.value  # a grown grid comes by its old points again
    torch.set_num_threads(run.scale.training.threads)

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


def open_study(name: str, sweep: Sweep, space: Space, out: Path, worker: int = 0) -> optuna.Study:
    """The study, made or joined. Workers of an open search have random streams of their own; of a grid they share one order."""
    if sweep.sampler == "grid":
        sampler = optuna.samplers.GridSampler({key: list(values) for key, values in space.items()}, seed=0)
        pruner = optuna.pruners.NopPruner()
    else:
        sampler = optuna.samplers.TPESampler(seed=worker, constant_liar=True)
        pruner = optuna.pruners.MedianPruner(n_startup_trials=4)
    return optuna.create_study(
        study_name=name, storage=storage(out), sampler=sampler, pruner=pruner, direction="minimize", load_if_exists=True
    )


def work(name: str, sweep: Sweep, space: Space, call: Callable[[Trial], float], out: Path, worker: int = 0) -> None:
    """Takes trials until the grid is done, or the search has as many as it asks for."""
    study = open_study(name, sweep, space, out, worker)
    if sweep.sampler == "grid":
        if not study.sampler.is_exhausted(study):
            study.optimize(call)
        return
    ended = (TrialState.COMPLETE, TrialState.PRUNED)
    if len(study.get_trials(deepcopy=False, states=ended)) < sweep.trials:
        study.optimize(call, callbacks=[optuna.study.MaxTrialsCallback(sweep.trials, states=ended)])


def trial_table(study: optuna.Study) -> pd.DataFrame:
    """One line a setting: its fields, its prose loss on the tune split, and how it ended (settings that came up twice once)."""
    states = {TrialState.COMPLETE: "complete", TrialState.PRUNED: "pruned"}
    rows = [
        trial.user_attrs["settings"] | {"prose": trial.value, "state": states[trial.state]}
        for trial in study.get_trials(deepcopy=False, states=tuple(states))
    ]
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
    """A bar of the trials that ended since the study began, over all workers."""
    ended, stop = (TrialState.COMPLETE, TrialState.PRUNED), Event()
    with Progress(*Progress.get_default_columns(), MofNCompleteColumn(), console=console, transient=True) as bar:
        task = bar.add_task("trials", total=total)

        def watch() -> None:
            while not stop.wait(2):
                bar.update(task, completed=len(study.get_trials(deepcopy=False, states=ended)))

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
        study = open_study(name, sweep, space, out)
        total = sweep.trials or len(study.get_trials()) + math.prod(len(values) for values in space.values())
        with progress(console, study, total):
            work_together(command, number, partial(work, name, sweep, space, call, out))
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
    write_results(study, sweep.sampler, table, results / scale / "sweeps" / name)
    Tracker(scale, book, Path("runs"), Path("scores"), results).sync_sweep(
        name, table, results / scale / "sweeps" / name
    )
    console.print(best_settings(table).to_string(index=False))
