"""One recipe's result: its claims judged, its figure drawn, its data written.

analysis/<recipe>.py says what is drawn. It has two functions: `collect(scores) -> DataFrame` gives everything that
is drawn, one line per number; `draw(data, scores) -> Figure` draws it. A recipe with `front` needs a third function,
`front(data, scores) -> Figure`: a small figure that answers the recipe's question alone. A recipe without a file gets
a forest plot of its claims. The estimates of a recipe stand below those lines in data.csv.
"""

from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import module_from_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from stemrepro.common.errors import UserError
from stemrepro.common.paths import ANALYSES
from stemrepro.config.address import Address
from stemrepro.config.arm import run_settings
from stemrepro.measures.base import scores_of
from stemrepro.measures.catalog import load
from stemrepro.measures.scores import Scores
from stemrepro.model.cost import parameter_counts
from stemrepro.report import forest
from stemrepro.report.estimates import with_estimates
from stemrepro.report.evidence import judged, verdict_rows
from stemrepro.report.results import run_inputs, save
from stemrepro.report.style import use_style
from stemrepro.verdicts.effect import Unmeasured


def module(path: Path, functions: list[str]) -> ModuleType:
    """Return a file of analysis/ as a module; UserError where it is missing, or lacks `collect` or a named function."""
    if not path.exists():
        raise UserError(f"{path} is missing; a recipe with 'front' needs it")
    loader = SourceFileLoader(path.stem, str(path))
    loaded = module_from_spec(ModuleSpec(path.stem, loader, origin=str(path)))
    loader.exec_module(loaded)
    if missing := [name for name in ("collect", *functions) if not hasattr(loaded, name)]:
        needed = " and ".join(f"{name}(data, scores)" for name in functions)
        raise UserError(f"{path} lacks the function '{missing[0]}'; it needs collect(scores) and {needed}")
    return loaded


def sizes_of_dense(scores: Scores) -> str:
    """Return dense's parameters at the recipe's variants in words, for a footer; nothing where it trains nothing."""
    recipe, catalog, dense = scores.recipe, scores.catalog, scores.catalog.arms["dense"]
    variants = dict.fromkeys((recipe.compare_at, *recipe.variants)) if recipe.wanted() else ()
    shapes = [run_settings(Address(at, "dense"), dense, catalog.variant(at), scores.scale)[0] for at in variants]
    sizes = sorted({f"{parameter_counts(shape)['total'] / 1e6:.2g}" for shape in shapes}, key=float)
    return f"dense: {' to '.join(sizes[:: max(1, len(sizes) - 1)])}M parameters; " if sizes else ""


def analyse(name: str, scale: str, scores: Path, results: Path, formats: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    """Write `results`/<scale>/<name>/ of a recipe, and return the rows of its verdicts.json.

    Args:
        scores, results: the folders.
        formats: of the figures, other than SVG.

    Raises:
        UserError: the recipe or scale is unknown, or scores are missing or damaged.
    """
    catalog = load()
    catalog.scale(scale)
    if catalog.recipe(name).arms and not (scores / scale).is_dir():
        raise UserError(f"scale '{scale}' has no scores yet; run 'stemrepro score --scale {scale}' first")
    read = scores_of(name, catalog, scale, scores / scale)
    rows = verdict_rows(scale, judged(read))
    use_style(catalog.arms)
    path = ANALYSES / f"{name}.py"
    functions = {"figure": "draw"} | ({"front": "front"} if read.recipe.front else {})
    try:
        drawn = module(path, list(functions.values())) if path.exists() or read.recipe.front else forest
        data = drawn.collect(read)
        figures = {file: getattr(drawn, function)(data, read) for file, function in functions.items()}
    except Unmeasured as reason:  # a run diverged, say: the forest still shows every claim that was measured
        data = forest.collect(read)
        figures = {file: forest.draw(data, read, str(reason)) for file in functions}
    data = with_estimates(data, read)
    save(results / scale / name, scale, figures, data, rows, run_inputs(read), formats, sizes_of_dense(read))
    return rows
