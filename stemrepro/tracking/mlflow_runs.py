"""MLflow's view of a scale: a run for each run folder with its curves, and a summary of each arm that was scored.

The command that waits for training processes logs for them: as they end, and every half minute before. So training
imports no MLflow, waits for no database, and no two processes write to one SQLite file. The id of a run's MLflow run
is in its folder: what was resumed goes on there.
"""

import logging
import os
import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path

os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")
os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")

from mlflow import MlflowClient
from mlflow.entities import Metric, Param, Run, RunTag
from mlflow.exceptions import MlflowException
from sqlalchemy.exc import SQLAlchemyError

from stemrepro.common.errors import UserError
from stemrepro.common.files import atomic_write, digest, flat, locked
from stemrepro.common.paths import RUNS, SCORES
from stemrepro.config.address import MAIN, Address
from stemrepro.config.catalog import Catalog
from stemrepro.tracking.arm import REFERENCE, summary_of
from stemrepro.tracking.server import tracking_uri
from stemrepro.training.run_folder import read_config, read_metrics

ID = "mlflow_run_id"
"""File of a run folder."""
MOST = 1000
"""Metrics of one request to MLflow."""


def ended(folder: Path) -> tuple[str, int] | None:
    """Return MLflow's status of a run that ended, and when it did (ms); else None. A run that diverged failed."""
    for name, status in (("weights.safetensors", "FINISHED"), ("diverged.json", "FAILED")):
        if (folder / name).exists():
            return status, int((folder / name).stat().st_mtime * 1000)
    return None


def log_run(client: MlflowClient, experiment: str, known: dict[str, Run], folder: Path) -> None:
    """Log what MLflow lacks of a run folder: the run itself with its settings, rows of its evaluations, its end.

    Args:
        known: the experiment's runs by id.
    """
    settings, file, end = read_config(folder), folder / ID, ended(folder)
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
    for begin in range(0, len(metrics), MOST):
        client.log_batch(run.info.run_id, metrics[begin : begin + MOST])
    if last:
        client.set_tag(run.info.run_id, "step", last)
    if end:
        client.set_terminated(run.info.run_id, *end)


def log_arm(
    client: MlflowClient, experiment: str, known: dict[str, Run], at: Address, catalog: Catalog, scale: str
) -> None:
    """Make the summary of an arm that was scored, in place of one of other scores."""
    scores = SCORES / scale
    files = [*scores.glob(f"*/{at.path}/summary.json"), scores / "losses" / at.variant / REFERENCE / "summary.json"]
    state = digest([path.read_text(encoding="utf-8") for path in sorted(files) if path.exists()])
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
    """Bring MLflow up to date with the run folders and scores of a scale, all or those of some addresses.

    Returns:
        The experiment's id, and how many arms and runs it has now of these.

    Raises:
        UserError: MLflow can't be used, or a run folder is damaged.
    """
    for library in ("alembic", "mlflow"):
        logging.getLogger(library).setLevel(logging.ERROR)
    title = os.environ.get("MLFLOW_EXPERIMENT_NAME") or f"stemrepro {scale}"
    folders = [path.parent for path in sorted((RUNS / scale).glob("*/*/seed*/config.yaml"))]
    scored = [path.parent for path in sorted((SCORES / scale / "losses").glob("*/*/losses.csv"))]
    trained = {folder: Address(*folder.parts[-3:-1]) for folder in folders}
    arms = [Address(*folder.parts[-2:]) for folder in scored]
    if names:
        trained = {folder: address for folder, address in trained.items() if str(address) in names}
        arms = [address for address in arms if str(address) in names]
    try:
        with locked(RUNS):  # two commands would both make the database, and a run that is missing
            client = MlflowClient(tracking_uri())
            found = client.get_experiment_by_name(title)
            experiment = found.experiment_id if found else client.create_experiment(title)
            known = {run.info.run_id: run for run in client.search_runs([experiment], max_results=50_000)}
            for folder in trained:
                log_run(client, experiment, known, folder)
            for address in arms:
                if address.arm in catalog.arms and address.variant in (MAIN, *catalog.variants):
                    log_arm(client, experiment, known, address, catalog, scale)
    except (MlflowException, SQLAlchemyError, sqlite3.Error, OSError) as error:
        reason = " ".join(str(error).split())[:200]
        raise UserError(
            f"MLflow at {tracking_uri()} can't be used ({reason}); it may be deleted, and is made anew"
        ) from error
    return experiment, len({*arms, *trained.values()}), len(trained)
