"""The way of the data as a picture: the stages of dvc.yaml in Mermaid, with all analyses as one."""

from stemrepro.book import Book
from stemrepro.pipeline import OF_SCALE, WITH_MODELS, data_stages, other_texts, pipeline

ANALYSES = "analyses"


def _outputs(stage: dict) -> list[str]:
    """Paths that a stage writes; options of an output stand below its path."""
    parts = [own for kind in ("outs", "plots", "metrics") for own in stage.get(kind, [])]
    return [path for own in parts for path in ([own] if isinstance(own, str) else own)]


def _within(path: str, folder: str) -> bool:
    return f"{path}/".startswith(f"{folder}/")


def stage_edges(book: Book) -> set[tuple[str, str]]:
    """(stage, a stage that reads what it writes); every recipe's analysis is called `ANALYSES`."""
    stages = pipeline(book)["stages"]
    name = {own: ANALYSES if own in book.recipes else own for own in stages}
    writer = {path: own for own, stage in stages.items() for path in _outputs(stage)}
    return {
        (name[source], name[own])
        for own, stage in stages.items()
        for read in stage["deps"]
        for path, source in writer.items()
        if (_within(read, path) or _within(path, read)) and name[source] != name[own]
    }


def shortest(edges: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """The edges that no longer way stands for: a stage that waits for another waits for all before it."""
    after: dict[str, set[str]] = {}
    for first, then in edges:
        after.setdefault(first, set()).add(then)

    def reached(node: str) -> set[str]:
        return after.get(node, set()).union(*(reached(then) for then in after.get(node, ())))

    behind = {first: set().union(*(reached(then) for then in thens)) for first, thens in after.items()}
    return {(first, then) for first, then in edges if then not in behind[first]}


def mermaid(book: Book) -> str:
    """A flowchart of the stages of a scale's recipes, for a Markdown page."""
    stages, edges = pipeline(book)["stages"], shortest(stage_edges(book))
    groups = {
        "data": [own for own in stages if own in data_stages(other_texts(book))],
        "scores": [own for own in stages if own in OF_SCALE and own in WITH_MODELS and own != "train"],
    }
    labels = {
        "check": "check: what recipes/ ask of each stage",
        "train": "train: all runs",
        ANALYSES: f"{len(book.recipes)} analyses, one a recipe:<br>verdicts and figures",
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
