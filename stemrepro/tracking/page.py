"""The page of MLflow that shows arms side by side: its address, its columns, and what an experiment says of itself.

Columns can't be named in the address. What can is a view that is kept in a tag of the experiment, as MLflow's own "Views" menu keeps those
that are saved in the page; without it a table has the columns Source, Models and Dataset.
"""

import json

from stemrepro.config.address import MAIN
from stemrepro.tracking.arm import GAP

KIND = "arm"
"""The tag `kind` of an arm's run."""
NOTE = "mlflow.note.content"
VIEW_TAG = "mlflow.sharedViewState."
WIDTHS = {
    f"metrics.`{GAP}`": 120, "metrics.`final/prose_loss`": 130, "metrics.`cost/flops_per_token`": 150, "metrics.`cost/parameters`": 130,
    "tags.`seeds`": 70, "tags.`commit`": 90, "tags.`variant`": 110, "tags.`dvc_stage`": 120,
}  # fmt: skip
"""The columns of both views, with what they take in pixels."""
ARMS, SEEDS = "arms", "seeds"
VIEWS = {
    ARMS: ("Arms, the widest gap to dense first", {
        "searchFilter": f"tags.kind = '{KIND}'", "orderByKey": f"metrics.`{GAP}`", "orderByAsc": False,
    }),
    SEEDS: ("Arms with their runs by seed", {}),
}  # fmt: skip
"""Name and state of each. MLflow puts runs below their arm where nothing is filtered and the order is that of time."""


def place(experiment: str) -> str:
    """Return where the arms stand below the server's address."""
    return (
        f"#/experiments/{experiment}/runs?workflowType=machine_learning&viewStateShareKey={ARMS}&compareRunsMode=TABLE"
    )


def saved_views(made: int, shared: bool = False) -> dict[str, str]:
    """Return the views as tags of an experiment that was made then (ms), in the form in which MLflow's page saves them.

    Args:
        shared: do several clones track into it? Then a column says whose a run is.
    """
    widths = WIDTHS | ({"tags.`clone`": 140} if shared else {})
    columns = {"selectedColumns": list(widths), "columnOrder": list(widths), "columnWidths": widths}
    return {
        f"{VIEW_TAG}{key}": json.dumps(
            {"name": name, "createdAt": made, "updatedAt": made, "state": json.dumps(columns | state)}
        )
        for key, (name, state) in VIEWS.items()
    }


def note(scale: str, variant: str, experiment: str) -> str:
    """Return what an experiment is, in Markdown. `mlflow ui` begins with another view of it, whatever kind of experiment it is told to be."""
    which = "at the scale itself" if variant == MAIN else "at other budgets, widths and rates (recipes/variants.yaml)"
    return (
        f"Choose *Model training*, top left, or [see the arms side by side]({place(experiment)}). Arms of scale `{scale}` {which}. `{GAP}` is dense's loss less the arm's, in nats a token, in pairs of runs with the same seed: "
        f"the number of the claims in `results/{scale}/`. Under Views are two tables with the same columns: arms side by side, and arms "
        "with their runs by seed (the + opens them). A click on an arm says what it is and which claims speak of it. What was replaced, "
        "or has neither folder nor scores any more, is under State: Deleted."
    )
