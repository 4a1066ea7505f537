"""The page of MLflow that shows arms side by side: its address, its columns, and what an experiment says of itself.

Columns can't be named in the address. What can is a view that is kept in a tag of the experiment, as MLflow's own "Views" menu keeps those
that are saved in the page; without it a table has the columns Source, Models and Dataset.
"""

import json

from stemrepro.runs import MAIN
from stemrepro.tracked_arm import GAP

VIEW = "arms"
VIEW_TAG = f"mlflow.sharedViewState.{VIEW}"
NOTE = "mlflow.note.content"
COLUMNS = {
    "metrics": (GAP, "final/prose_loss", "cost/flops_per_token", "cost/parameters"),
    "tags": ("seeds", "commit", "judged_at", "point", "dvc_stage"),
}


def place(experiment: str) -> str:
    """Where the arms stand below the server's address."""
    return (
        f"#/experiments/{experiment}/runs?workflowType=machine_learning&viewStateShareKey={VIEW}&compareRunsMode=TABLE"
    )


def saved_view(made: int) -> str:
    """The table of arms as MLflow keeps a view: columns, and the widest lead over dense first.

    Args:
        made: when, in ms; views are listed by it.
    """
    state = {
        "selectedColumns": [f"{kind}.`{name}`" for kind, names in COLUMNS.items() for name in names],
        "orderByKey": f"metrics.`{GAP}`",
        "orderByAsc": False,
    }
    return json.dumps({"name": VIEW, "createdAt": made, "updatedAt": made, "state": json.dumps(state)})


def note(scale: str, point: str) -> str:
    """What an experiment is, in Markdown."""
    which = "at the scale itself" if point == MAIN else "at other budgets, widths and rates (recipes/points.yaml)"
    return (
        f"Arms of scale `{scale}` {which}: a line an arm, its runs by seed below it (the + opens them). `{GAP}` is dense's loss less the "
        f"arm's, in nats a token, in pairs of runs with the same seed: the number of the claims in `results/{scale}/`. The view `{VIEW}` "
        "has the columns; a click on an arm says what it is and which claims speak of it. Runs that were replaced by others, or whose "
        "folder is gone, are under State: Deleted."
    )
