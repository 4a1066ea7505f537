"""One recipe's result: its claims judged, its figure drawn, its data written. analysis/<recipe>.py says what is drawn, where there is one.

Such a file has two functions: `collect(measure) -> DataFrame`, everything that is drawn, a line a number; and `draw(data, measure) ->
Figure`. A recipe without a file gets a forest plot of its claims.
"""

import importlib.util
from pathlib import Path
from types import ModuleType

from stemrepro.book import load
from stemrepro.claims import Unmeasured
from stemrepro.errors import UserError
from stemrepro.measures.base import Inputs, measured
from stemrepro.report import forest
from stemrepro.report.results import judged, run_inputs, save
from stemrepro.report.style import use_style

ANALYSES = Path("analysis")


def _module(path: Path) -> ModuleType:
    loading = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(loading)
    loading.loader.exec_module(module)
    if missing := [name for name in ("collect", "draw") if not hasattr(module, name)]:
        raise UserError(f"{path} lacks the function '{missing[0]}'; it needs collect(measure) and draw(data, measure)")
    return module


def analyse(name: str, scale: str, scores: Path, results: Path) -> list[dict]:
    """Writes `results`/<scale>/<name>/; returns the rows of verdicts.json.

    Raises:
        UserError: no such recipe or scale, or scores that are missing or damaged.
    """
    book = load()
    book.recipe(name), book.scale(scale)
    inputs = Inputs(name, book, scale, scores / scale)
    measure = measured(inputs)
    rows = judged(inputs, measure)
    use_style(book.arms)
    path = ANALYSES / f"{name}.py"
    try:
        drawn = _module(path) if path.exists() else forest
        data = drawn.collect(measure)
        figure = drawn.draw(data, measure)
    except Unmeasured as reason:  # a run that diverged: what is left is what can be said of the claims
        data = forest.collect(measure)
        figure = forest.draw(data, measure, str(reason))
    save(results / scale / name, figure, data, rows, run_inputs(inputs, measure))
    return rows
