"""Studies of a published model, or of a scale's own runs: steps that make the tables which measures read of them."""

import pkgutil
import shutil
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path
from typing import Any

from stemrepro.common.files import atomic_write, sha256
from stemrepro.common.paths import DATA, RECIPES, SCORES
from stemrepro.pipeline.plan import Plan
from stemrepro.pipeline.runs import runs_of
from stemrepro.pipeline.score import weights_hash
from stemrepro.pipeline.steps import Step
from stemrepro.pipeline.text import text_of_mix

BEFORE = {"scoreboard": ("conversion",)}
"""Studies that another one reads."""
KEY = "key.txt"


def parts_of(out: Path) -> Path:
    """Return the folder that a step fills file by file, so that a killed one resumes; KEY has what they follow from."""
    return out.with_name(f"{out.name}-parts")


def _table(file: Path) -> str:
    return file.name.partition(".")[0]


def _join(parts: Path, out: Path) -> None:
    """Move what a step made to its own folder, where all <table>.<part>.parquet are one file."""
    import pandas as pd  # a third of a second that listing steps can do without

    for name, files in groupby(sorted(path for path in parts.iterdir() if path.name != KEY), _table):
        first, *more = files
        file = out / f"{name}{first.suffix}"
        if more:
            table = pd.concat(map(pd.read_parquet, [first, *more]), ignore_index=True)
            atomic_write(file, table.to_parquet(index=False, compression="zstd"))
        else:
            first.replace(file)
    shutil.rmtree(parts)


def _step(name: str, about: object, after: tuple[Step, ...], out: Path, arguments: tuple[Any, ...]) -> Step:
    module = f"stemrepro.published.{name}"

    def make() -> None:
        parts = parts_of(out)
        note = parts / KEY
        if not note.exists() or note.read_text(encoding="utf-8") != step.key:
            shutil.rmtree(parts, ignore_errors=True)
            parts.mkdir(parents=True)
            atomic_write(note, step.key)
        pkgutil.resolve_name(f"{module}:make")(*arguments, parts)
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir()
        _join(parts, out)

    step = Step(name, out, (out,), about, (module,), after, make)
    return step


def study_steps(plan: Plan, names: Iterable[str]) -> list[Step]:
    """Return the steps of studies of a scale's model, its text and its rows first; none where there are no studies.

    Committed tables of today's code need neither text nor rows nor the model: their studies stand alone then.
    """
    names, model = list(names), plan.scale.published
    if not names or model is None:
        return []
    text = text_of_mix(plan.scale.data, plan.mix)
    rows, corpus = DATA / plan.name / "rows", DATA / plan.scale.data / "corpus" / "corpus.parquet"
    about = [model, sha256(RECIPES / "models.yaml")]
    averaged = _step("rows", about, text[1:], rows, (model, corpus))
    studies: dict[str, Step] = {}
    for name in dict.fromkeys(each for study in names for each in (*BEFORE.get(study, ()), study)):
        after = (averaged, *(studies[each] for each in BEFORE.get(name, ())))
        studies[name] = _step(name, about, after, SCORES / plan.name / name, (model, corpus, rows))
    steps = list(studies.values())
    return steps if all(step.done() for step in steps) else [*text, averaged, *steps]


def run_study_steps(plan: Plan, names: Iterable[str]) -> list[Step]:
    """Return the steps of studies of a scale's own runs, which are trained before; none of a published model."""
    names = list(names)
    if not names or plan.scale.published:
        return []
    runs = runs_of(plan)
    about = [[str(run), run.data_hash, run.diverged, weights_hash(run)] for run in runs]
    return [_step(name, about, (), SCORES / plan.name / name, (runs,)) for name in names]
