"""The way of the data as a picture: the stages of a plan and of what is drawn of it in Mermaid, with all analyses as one."""

from stemrepro.config.catalog import Catalog
from stemrepro.pipeline.stages import OF_SCALE, SCALE, WITH_MODELS, data_stages, drawing, other_texts, pipeline

ANALYSES = "analyses"


def _outputs(stage: dict) -> list[str]:
    """Return paths that a stage writes; options of an output stand below its path."""
    parts = [own for kind in ("outs", "plots", "metrics") for own in stage.get(kind, [])]
    return [path for own in parts for path in ([own] if isinstance(own, str) else own)]


def _within(path: str, folder: str) -> bool:
    return f"{path}/".startswith(f"{folder}/")


def _stages(catalog: Catalog, scale: str) -> dict[str, dict]:
    drawn = {
        name: stage
        for name, stage in drawing(catalog).items()
        if name in ("report", *catalog.at(scale).recipes, "metrics")
    }
    return pipeline(catalog, scale) | drawn


def stage_edges(catalog: Catalog, scale: str) -> set[tuple[str, str]]:
    """(stage, a stage that reads what it writes) at a scale whose results are committed; every recipe's analysis is called `ANALYSES`."""
    stages = _stages(catalog, scale)
    name = {own: ANALYSES if own in catalog.recipes else own for own in stages}
    writer = {path.replace(SCALE, scale): own for own, stage in stages.items() for path in _outputs(stage)}
    return {
        (name[source], name[own])
        for own, stage in stages.items()
        for read in (path.replace(SCALE, scale) for path in stage["deps"])
        for path, source in writer.items()
        if (_within(read, path) or _within(path, read)) and name[source] != name[own]
    }


def shortest(edges: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """Return the edges that no longer way stands for: a stage that waits for another waits for all before it."""
    after: dict[str, set[str]] = {}
    for first, then in edges:
        after.setdefault(first, set()).add(then)

    def reached(node: str) -> set[str]:
        return after.get(node, set()).union(*(reached(then) for then in after.get(node, ())))

    behind = {first: set().union(*(reached(then) for then in thens)) for first, thens in after.items()}
    return {(first, then) for first, then in edges if then not in behind[first]}


def mermaid(catalog: Catalog, scale: str) -> str:
    """Return a flowchart of the stages of a scale's recipes, for a Markdown page."""
    stages, edges = _stages(catalog, scale), shortest(stage_edges(catalog, scale))
    groups = {
        "data": [own for own in stages if own in data_stages(other_texts(catalog.at(scale)))],
        "scores": [own for own in stages if own in OF_SCALE and own in WITH_MODELS and own != "train"],
    }
    labels = {
        "check": "check: what recipes/ ask of each stage",
        "train": "train: all runs",
        ANALYSES: f"{len(catalog.at(scale).recipes)} analyses, one a recipe:<br>verdicts and figures",
        "metrics": "metrics: dvc metrics show",
        "report": "report: the page",
    }
    lines = ["```mermaid", "flowchart TD"]
    for title, members in groups.items():
        lines += [f"  subgraph {title}", *(f"    {own}" for own in members), "  end"]
    lines += [f'  {own}["{words}"]' for own, words in labels.items() if any(own in edge for edge in edges)]
    order = [*stages, ANALYSES]
    lines += [f"  {a} --> {b}" for a, b in sorted(edges, key=lambda edge: tuple(map(order.index, edge)))]
    return "\n".join([*lines, "```"])
