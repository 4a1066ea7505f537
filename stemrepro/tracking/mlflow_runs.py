"""MLflow's view of a scale: a run for each run folder with its curves, and a summary of each arm that was scored.

The command that waits for training processes logs for them, so that no two write to one SQLite file. The id of a run's
MLflow run is in its folder: what was resumed goes on there.
"""

import itertools
import logging
import os
import sqlite3
import sys
import time
from collections.abc import Sequence
from pathlib import Path

os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")
os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")

import numpy as np
from mlflow import MlflowClient
from mlflow.entities import Metric, Param, Run, RunTag
from mlflow.exceptions import MlflowException
from sqlalchemy.exc import SQLAlchemyError

from stemrepro.common.errors import UserError
from stemrepro.common.files import atomic_write, digest, flat, locked
from stemrepro.common.paths import RUNS, SCORES
from stemrepro.config.address import MAIN, Address
from stemrepro.config.arm import changes_width
from stemrepro.config.catalog import Catalog
from stemrepro.config.scores import SCORE_KINDS
from stemrepro.measures import store
from stemrepro.measures.items import ArmItems
from stemrepro.measures.losses import ArmLosses
from stemrepro.report.metrics import REFERENCE, gap
from stemrepro.tracking.server import URI, public, tracking_uri
from stemrepro.training.run_folder import Settings, read_config, read_metrics

ID = "mlflow_run_id"
"""File of a run folder."""
ENDS = {"weights.safetensors": "FINISHED", "diverged.json": "FAILED"}
"""Files of a run that ended, and what MLflow calls it."""


def log_run(client: MlflowClient, experiment: str, known: dict[str, Run], folder: Path, settings: Settings) -> None:
    """Log what MLflow lacks of a run folder: the run itself with its settings, rows of its evaluations, its end."""
    file = folder / ID
    ends = [(folder / name, status) for name, status in ENDS.items() if (folder / name).exists()]  # before the rows
    run = known.get(file.read_text(encoding="utf-8")) if file.exists() else None
    if run is None or run.data.tags.get("settings") != settings.hash:
        tags = {"kind": "run", "arm": settings.arm, "variant": settings.variant, "seed": str(settings.seed)}
        begun, name = int((folder / "config.yaml").stat().st_mtime * 1000), f"{settings.address} seed {settings.seed}"
        run = client.create_run(experiment, begun, tags | {"settings": settings.hash}, name)
        params = [Param(key, str(value)) for key, value in flat(settings.written).items()]
        client.log_batch(run.info.run_id, params=params)
        atomic_write(file, run.info.run_id)
    elif run.info.status != "RUNNING":
        return
    first, last = int(run.data.tags.get("step", 0)), 0
    metrics: list[Metric] = []
    for row in read_metrics(folder) if (folder / "metrics.jsonl").exists() else ():
        if "validation" in row and row["step"] > first:
            values = {f"training/{name}": row[name] for name in ("loss", "rate", "norm")}
            values |= {f"loss_curve/{source}": loss for source, loss in row["validation"].items()}
            last = row["step"]
            metrics += [Metric(name, value, run.info.start_time + last, last) for name, value in values.items()]
    for begin in range(0, len(metrics), 1000):  # MLflow takes no more at once
        client.log_batch(run.info.run_id, metrics[begin : begin + 1000])
    if last:
        client.set_tag(run.info.run_id, "step", last)
    for path, status in ends[:1]:
        client.set_terminated(run.info.run_id, status, int(path.stat().st_mtime * 1000))


def summary_of(catalog: Catalog, scale: str, scores: Path, address: Address) -> tuple[dict[str, float], dict[str, str]]:
    """Return the metrics of an arm with losses (below `scores`, scores/<scale>), means over seeds, and its tags.

    Losses are in nats per token, accuracies in %; of other settings than those of the losses these are left out.
    """
    arm = ArmLosses(scores, address)
    by_seed = {f"final/{mix}_loss": arm.loss(mix).to_numpy() for mix in ("prose", "all") if arm.scored}
    for recipe in (recipe for recipe in catalog.recipes.values() if recipe.tasks):
        items = ArmItems(scores, address, recipe)
        if address in store.scored(scores, "benchmarks") and items.summary["params_hash"] == arm.summary["params_hash"]:
            groups = {f"final/{group}_accuracy": group for group in recipe.groups}
            for name, group in (groups | {f"tasks/{task}": task for task in recipe.tasks}).items():
                by_seed[name] = items.sample("accuracy", group).by_seed
    metrics = {name: float(np.mean(values)) for name, values in by_seed.items() if np.isfinite(values).all()}
    varied = {name.split("/")[1]: np.std(by_seed[name], ddof=1) for name in metrics if len(by_seed[name]) > 1}
    metrics |= {f"variation_over_seeds/{name}": float(value) for name, value in varied.items()}
    counts = {f"{kind}_parameters": arm.summary["parameters"][kind] for kind in ("active", "tables", "total")}
    counts |= {"flops_per_token": arm.summary["forward_flops_per_token"]}
    metrics |= {f"model/{name}": float(value) for name, value in counts.items()}
    track = catalog.variant(address.variant).track or catalog.scale(scale).model.track
    dense = ArmLosses(scores, Address(address.variant, REFERENCE))
    shaped = changes_width(track, catalog.arms[address.arm])
    if arm.scored and (lead := gap(arm, dense, shaped)) is not None:
        metrics["final/prose_gap"] = lead
    names = ", ".join(name for name, recipe in catalog.recipes.items() if address in recipe.wanted())
    tags = {"arm": address.arm, "variant": address.variant, "seeds": str(len(arm.scored)), "recipes": names}
    return {name: round(value, 6) for name, value in metrics.items()}, tags


def log_arm(
    client: MlflowClient, experiment: str, known: dict[str, Run], at: Address, catalog: Catalog, scale: str
) -> None:
    """Make the summary of an arm that was scored, in place of one of other scores."""
    scores = SCORES / scale
    arms = [(kind, at) for kind in SCORE_KINDS], [("losses", Address(at.variant, REFERENCE))]
    state = digest([store.key_of(scores, kind, address) for kind, address in itertools.chain(*arms)])
    before = [run for run in known.values() if run.data.tags.get("kind") == "arm" and run.info.run_name == str(at)]
    if [run.data.tags.get("state") for run in before] == [state]:
        return
    for run in before:
        client.delete_run(run.info.run_id)
    (metrics, tags), now = summary_of(catalog, scale, scores, at), int(time.time() * 1000)
    run_id = client.create_run(experiment, now, tags | {"kind": "arm"}, str(at)).info.run_id
    numbers = [Metric(key, value, now, 0) for key, value in metrics.items()]
    client.log_batch(run_id, numbers, tags=[RunTag("state", state)])
    client.set_terminated(run_id)


def track(scale: str, catalog: Catalog, names: Sequence[str] = ()) -> tuple[str, int, int]:
    """Bring MLflow up to date with run folders and scores of a scale, all or those of some addresses.

    Returns the experiment's id, and how many arms and runs it has now of these. UserError where MLflow can't be used,
    or a run folder is damaged.
    """
    for library in ("alembic", "mlflow"):
        logging.getLogger(library).setLevel(logging.ERROR)
    title = os.environ.get("MLFLOW_EXPERIMENT_NAME") or f"stemrepro {scale}"
    folders = [path.parent for path in sorted((RUNS / scale).glob("*/*/seed*/config.yaml"))]
    scored = sorted(store.with_losses(SCORES / scale))
    asked = {folder: at for folder in folders if str(at := Address(*folder.parts[-3:-1])) in names or not names}
    trained = {folder: settings for folder, at in asked.items() if (settings := read_config(folder)).address == at}
    for copy in [folder for folder in asked if folder not in trained]:
        print(f"stemrepro: {copy} is left out: it holds a run of another folder's name", file=sys.stderr)
    arms = [at for at in scored if str(at) in names or not names]
    try:
        with locked(RUNS):  # two commands would both make the database, and a run that is missing
            client = MlflowClient(tracking_uri())
            found = client.get_experiment_by_name(title)
            experiment = found.experiment_id if found else client.create_experiment(title)
            known = {run.info.run_id: run for run in client.search_runs([experiment], max_results=50_000)}
            for folder, settings in trained.items():
                log_run(client, experiment, known, folder, settings)
            for address in arms:
                if address.arm in catalog.arms and address.variant in (MAIN, *catalog.variants):
                    log_arm(client, experiment, known, address, catalog, scale)
    except (MlflowException, SQLAlchemyError, sqlite3.Error, OSError, ImportError) as error:
        remedy = f"see {URI}" if os.environ.get(URI) else "the file may be deleted, and is made anew"
        why = f"MLflow at {tracking_uri()} can't be used ({' '.join(str(error).split())}); {remedy}"
        raise UserError(public(why)) from error
    return experiment, len({*arms, *(settings.address for settings in trained.values())}), len(trained)
