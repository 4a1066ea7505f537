"""Sweeps by Optuna: grids and open searches over arms and their fields, with several workers on one study.

A trial is one run, trained like any other into sweeps/<scale>/<sweep>/runs/<settings>/ and scored on the tune split,
which no recipe uses. Its folder is named by its settings. So a trial that was killed resumes, and settings that come
up twice are trained once. The study is in sweeps/<scale>/<sweep>/study.db; start the same command again for another
worker.

A point of a grid is done when its run has a result, with today's code, text and budget. The next command retries one
that failed; the workers that are left retry one whose worker was killed. Every command writes the results at its end,
unless the sweep lacks points.
"""

from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

import numpy as np
import pandas as pd
from optuna.trial import Trial
from rich.console import Console
from tqdm import tqdm

from stemrepro.common import mkl_avx512
from stemrepro.common.files import damaged, digest, locked, read_json, write_json
from stemrepro.common.paths import RUNS, SCORES
from stemrepro.common.progress import bar
from stemrepro.common.provenance import commit, provenance
from stemrepro.common.stopping import started
from stemrepro.config.catalog import Catalog
from stemrepro.sweeps.best import best_by, best_settings, edges, sentences, tuned_lines
from stemrepro.sweeps.spec import Space, Sweep, read_sweep
from stemrepro.sweeps.study import (
    check_complete,
    kept,
    open_study,
    parts_of,
    progress_of,
    trial_table,
    work_all,
)
from stemrepro.sweeps.trials import first_points, identity, objective

MOST_EXTENSIONS = 3
EDGE_GAIN = 0.01
"""Nats by which an edge of a grid must beat the value next to it for the grid to grow; less is a seed's noise."""


def extended(table: pd.DataFrame, keys: tuple[str, ...]) -> dict[str, list[float]]:
    """Return the values of `keys` in a grid that is grown where some arm has its best at an edge; {} where none has.

    The first of `keys` at whose edge an arm gains more than EDGE_GAIN over the value next to it gets the next value
    there, by the grid's factor. An arm with only one value of a key (no tables, no table rate) has no edge in it.
    """
    values = {key: [float(value) for value in np.sort(table[key].unique())] for key in keys}
    for key in keys:
        losses = best_by(table, key)
        losses = losses[losses.notna().sum(axis=1) > 1]
        best, grown = losses.min(axis=1), set()
        for edge, inner in ((0, 1), (-1, -2)):
            at_edge, at_inner = losses[values[key][edge]], losses[values[key][inner]]
            if ((at_edge == best) & (at_inner - at_edge > EDGE_GAIN)).any():
                grown.add(float(f"{values[key][edge] ** 2 / values[key][inner]:.6g}"))
        if grown:
            return values | {key: sorted({*values[key], *grown})}
    return {}


def grid_of(sweep: Sweep) -> str:
    """Return the hash of what a grid grows from."""
    return digest([sweep.model_dump(mode="json")[key] for key in ("space", "extend")])


def grown_space(sweep: Sweep, path: Path) -> Space:
    """Return the space of a sweep, with the values of its grid if this very grid was extended before."""
    about = read_json(path) if path.exists() else {}
    grown = about.get("values", {}) if about.get("grid") == grid_of(sweep) else {}
    return sweep.space | {key: tuple(values) for key, values in grown.items()}


def work_together(command: list[str], number: int, alone: Callable[[], None]) -> int:
    """Work with `number` - 1 further processes of the same command, which end when this one does.

    Returns:
        How many of these failed or were killed; `alone` takes their work over.
    """
    with started([[*command, "--worker", str(i)] for i in range(1, number)]) as others:
        alone()
        return sum(other.wait() != 0 for other in others)


def counting(shown: tqdm, ended: Callable[[], int]) -> Callable[[Trial, float], None]:
    """Return a function that shows in a bar the share of this worker's trial that is done.

    The trials that all workers have ended are counted when each trial begins.
    """
    ended_before = cache(lambda study, number: ended())

    def report(trial: Trial, share: float) -> None:
        shown.n = ended_before(trial.study.study_name, trial.number) + share
        shown.update(0)

    return report


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
    folder = results / scale / "sweeps" / name
    grown = out / "grown.json"  # the grid's values where it was extended, for workers and after a kill
    space = grown_space(sweep, grown)
    call = partial(objective, sweep=sweep, catalog=catalog, scale=scale, data=data, out=out)
    identify = partial(identity, catalog=catalog, scale=scale, data=data, out=out, at=sweep.variant)
    parts = parts_of(name, sweep, space, identify)  # mistakes are named before anything runs
    if worker:
        work_all(parts, sweep, call, out, worker)
        return
    commit()  # as in training
    command = ["sweep", str(file), "--scale", scale]
    for number_of_extensions in range(1 + MOST_EXTENSIONS):
        studies = [(part, open_study(part.name, sweep, out)) for part in parts]
        for part, study in studies:
            for point in first_points(sweep, part.space, catalog, scale) if sweep.first else ():
                study.enqueue_trial(point, skip_if_exists=True)
        if not number_of_extensions and (words := kept(out, studies)):
            console.print(words, highlight=False)
        done, total = progress_of(studies, sweep)
        with bar(f"sweep {name}", total, done) as shown:
            report = counting(shown, lambda studies=studies: progress_of(studies, sweep)[0])
            alone = partial(work_all, parts, sweep, partial(call, report=report), out)
            lost = work_together(command, min(number, total - done), alone)
        if lost:
            console.print(f"{lost} of {number} workers failed or were killed; their trials were taken over")
        for part, study in studies:
            check_complete(part, sweep, study)
        table = pd.concat([trial_table(study, part) for part, study in studies], ignore_index=True)
        more = extended(table, sweep.extend)
        if not more:
            break
        whole = "; ".join(f"{key} {', '.join(f'{value:g}' for value in values)}" for key, values in more.items())
        write_json(grown, {"grid": grid_of(sweep), "values": more})
        if number_of_extensions == MOST_EXTENSIONS:
            console.print(f"an arm still has its best at the grid's edge; start the command again for {whole}")
            break
        console.print(f"an arm has its best at the grid's edge: the grid is now {whole}, for all arms")
        parts = parts_of(name, sweep, grown_space(sweep, grown), identify)
    from stemrepro.sweeps.results import write_results  # this and the next take seconds, and other workers need neither
    from stemrepro.tracking.sync import Tracker

    with locked(out):  # others that were started with the same command end at the same time
        write_results(sweep, table, folder, catalog.arms)
        write_json(folder / "provenance.json", provenance() | {"trials": len(table)})
        Tracker(scale, catalog, RUNS, SCORES).sync_sweep(name, table)
    best = best_settings(table)
    console.print(best.to_string(index=False))
    for sentence in sentences(edges(table, sweep.space)):
        console.print(sentence)
    if lines := tuned_lines(best):
        console.print(f"for 'tuned' of recipes/scales/{scale}.yaml:", *lines, sep="\n", highlight=False, soft_wrap=True)


def redraw(file: Path, catalog: Catalog, scale: str, results: Path) -> None:
    """Write the results of a sweep again from its data.csv, without a trial.

    Raises:
        UserError: a mistake in the file, or no such results.
    """
    from stemrepro.sweeps.results import write_results

    sweep, folder = read_sweep(file), results / scale / "sweeps" / file.stem
    try:
        table = pd.read_csv(folder / "data.csv")
    except (OSError, ValueError) as error:
        raise damaged(folder / "data.csv", error) from error
    write_results(sweep, table, folder, catalog.arms)
