"""Synchronisation of MLflow with run folders and scores: these are the record, and MLflow is the view.

Every run folder is one MLflow run below one of its arm. Each is identified by its tag `run_key`. So a run that
was killed and resumed, or synced twice, stays one, and a deleted database is rebuilt. An arm that was scored has a run
without run folders too. The database is mlflow.db. MLFLOW_TRACKING_URI names a server or another database, in which
each folder has separate runs.
"""

import logging
import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path

import pandas as pd

from stemrepro.common.errors import UserError
from stemrepro.common.files import digest, flat, locked, sha256
from stemrepro.common.provenance import read_provenance
from stemrepro.config.address import MAIN, Address
from stemrepro.config.arm import changes_width
from stemrepro.config.catalog import Catalog
from stemrepro.tracking.arm import GAP, REFERENCE, arm_metrics, final_scores, losses_of, recipes_of
from stemrepro.tracking.server import clone, page, saved_view, tracking_uri
from stemrepro.training.run_folder import Settings, read_config, read_metrics

os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")
os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")

from mlflow import MlflowClient
from mlflow.entities import Metric, Param, Run, RunTag, ViewType
from mlflow.exceptions import MlflowException
from sqlalchemy.exc import SQLAlchemyError

DAMAGED = ("file is not a database", "malformed", "duplicate column name", "already exists [SQL: CREATE")
"""In errors of a file that is no database, and of one that 'mlflow ui' was making when it was killed."""
MOST_METRICS, MOST_RUNS = 1000, 50_000
"""MLflow's limits of one request."""
NOTE = "mlflow.note.content"


@contextmanager
def plainly() -> Iterator[None]:
    """Turn an error of the database into one sentence; MLflow itself waits 20 s for a locked one."""
    try:
        yield
    except Exception as error:
        reason, uri = " ".join(str(error).split()), tracking_uri()
        if "database is locked" in reason:
            raise UserError(f"{uri} is locked by another process; stop that or run 'stemrepro track' later") from error
        if any(words in reason for words in DAMAGED):
            raise UserError(f"{uri} is damaged; delete the file and run 'stemrepro track' to build it anew") from error
        if isinstance(error, MlflowException | OSError | SQLAlchemyError | sqlite3.Error):
            raise UserError(f"MLflow at {uri} can't be used ({reason[:200]})") from error
        raise


def make_database() -> None:
    """Make a missing database, whole: killed meanwhile, MLflow would leave one that nobody can open."""
    file = Path(tracking_uri().removeprefix("sqlite:///"))
    if not tracking_uri().startswith("sqlite:///") or file.exists():
        return
    with locked(file.parent):
        if not file.exists():  # another process may have made it just now
            new = file.with_name(f"{file.name}.new")
            new.unlink(missing_ok=True)
            MlflowClient(f"sqlite:///{new}").search_experiments(max_results=1)
            os.replace(new, file)


def ended(folder: Path) -> tuple[str, int] | None:
    """Return MLflow's status of a run that ended, and when it did (ms); else None. A run that diverged failed."""
    for name, status in (("weights.safetensors", "FINISHED"), ("diverged.json", "FAILED")):
        if (folder / name).exists():
            return status, int((folder / name).stat().st_mtime * 1000)
    return None


def started(folder: Path) -> int:
    """Return when a run began (ms)."""
    return int((folder / "config.yaml").stat().st_mtime * 1000)


def made_at(folder: Path) -> str:
    """Return the commit that a run was made at; "" until its provenance is written."""
    path = folder / "provenance.json"
    return read_provenance(path)["commit"] if path.exists() else ""


def curves(folder: Path) -> list[tuple[str, float, int]]:
    """Read the measurements of a run's evaluations: name, value and step."""
    rows = read_metrics(folder) if (folder / "metrics.jsonl").exists() else []
    return [
        (name, value, row["step"])
        for row in rows
        if "validation" in row
        for name, value in {
            "training/loss": row["loss"], "training/rate": row["rate"], "training/gradient_norm": row["norm"],
            **{f"loss_curve/{source}": loss for source, loss in row["validation"].items()},
        }.items()
    ]  # fmt: skip


class Experiment:
    """One of MLflow's experiments, which is made where it is missing, and the runs in it."""

    def __init__(self, client: MlflowClient, name: str, prefix: str) -> None:
        self.client, self.prefix = client, prefix
        if not client.get_experiment_by_name(name):
            with suppress(MlflowException):  # another folder may make it just now
                client.create_experiment(name)
        experiment = client.get_experiment_by_name(name)
        self.id, self.made, self.tags = experiment.experiment_id, experiment.creation_time, experiment.tags
        ours = client.search_runs([self.id], f"tags.run_key LIKE '{prefix}/%'", ViewType.ALL, MOST_RUNS)
        self.runs = {run.data.tags["run_key"]: run for run in ours}

    def active(self, key: str) -> bool:
        """Tell whether the run of a key exists and isn't deleted."""
        return key in self.runs and self.runs[key].info.lifecycle_stage == "active"

    def log(
        self, key: str, name: str, tags: dict, params: dict, curve: Sequence[tuple[str, float, int]],
        finals: dict[str, float], begun: int | None, end: tuple[str, int | None] | None,
    ) -> Run:  # fmt: skip
        """Bring the run of a key up to date: log what it lacks, and its tags last, so that a kill loses nothing.

        Args:
            curve: name, value and step of all that was measured; equal runs have equal curves.
            finals: metrics of which MLflow shows the latest value.
            begun: when (ms); None for now.
            end: how it ended, and when (ms).
        """
        now = int(time.time() * 1000)
        if key not in self.runs:
            mark = {"run_key": key, "clone": f"{Path.cwd().name} {clone()}"} if clone() else {"run_key": key}
            self.runs[key] = self.client.create_run(self.id, begun or now, mark, name)
        elif not self.active(key):
            self.client.restore_run(self.runs[key].info.run_id)
        run = self.runs[key]
        have, first_time = run.data, run.info.start_time
        tags |= {"points": len(curve)}
        metrics = [
            Metric(name, value, first_time + step, step)
            for name, value, step in curve[int(have.tags.get("points", 0)) :]
        ]
        metrics += [Metric(name, value, now, 0) for name, value in finals.items() if have.metrics.get(name) != value]
        lacking = [Param(name, str(value)) for name, value in params.items() if name not in have.params]
        changed = [RunTag(name, str(value)) for name, value in tags.items() if have.tags.get(name) != str(value)]
        if end and run.info.status != end[0]:
            self.client.set_terminated(run.info.run_id, *end)
        while len(metrics) > MOST_METRICS:
            self.client.log_batch(run.info.run_id, metrics[:MOST_METRICS])
            metrics = metrics[MOST_METRICS:]
        self.client.log_batch(run.info.run_id, metrics, lacking, changed)
        return run

    def remove(self, kept: set[str], names: tuple[str, ...]) -> None:
        """Take all runs of arms out of the view but those kept; MLflow has them under State: Deleted.

        Args:
            names: addresses of the arms; none for all.
        """
        for key, run in self.runs.items():
            tags = run.data.tags
            if "arm" not in tags or (names and str(Address(tags["variant"], tags["arm"])) not in names):
                continue
            if self.active(key) and key not in kept:
                self.client.delete_run(run.info.run_id)

    def describe(self, scale: str) -> None:
        """Write the experiment's description, and the view that lists its arms."""
        note = (
            f"[Arms of scale `{scale}`]({page(self.id)}), the widest gap to dense first. `{GAP}` is dense's loss "
            "less the arm's, in nats per token and in pairs of runs with the same seed, as claims in "
            f"`results/{scale}/` have it. Group runs by the tag `arm` to see curves as means over seeds."
        )
        for name, value in ({NOTE: note} | saved_view(self.made)).items():
            if self.tags.get(name) != value:
                self.client.set_experiment_tag(self.id, name, value)


class Tracker:
    """The sync of one scale: arms at the scale itself in one experiment, the many at variants in another."""

    def __init__(self, scale: str, catalog: Catalog, runs: Path, scores: Path) -> None:
        for name in ("alembic", "mlflow"):
            logging.getLogger(name).setLevel(logging.ERROR)
        self.scale, self.catalog, self.all_runs = scale, catalog, runs
        self.runs, self.scores = runs / scale, scores / scale
        self.prefix = "/".join(filter(None, [clone(), scale]))

    @cached_property
    def client(self) -> MlflowClient:
        """The client of MLflow, whose database is made where it is missing."""
        make_database()
        return MlflowClient(tracking_uri())

    def title(self, at_variants: bool) -> str:
        """Return the name of the experiment of arms at variants, or of those at the scale itself and of sweeps."""
        return f"stemrepro {self.scale}, variants" if at_variants else f"stemrepro {self.scale}"

    def experiment(self, at_variants: bool = False) -> Experiment:
        """Return that experiment."""
        return Experiment(self.client, self.title(at_variants), self.prefix)

    def run_key(self, settings: Settings) -> str:
        """Return the key of a run folder's MLflow run."""
        return f"{self.prefix}/{settings.address}/seed{settings.seed}/{settings.hash}"

    def _state(self, address: Address, folders: list[Path], about: dict) -> str:
        """Return the hash of all that an arm's runs follow from: its files, the recipes, and the code that tracks."""
        files = [folder / name for folder in folders for name in ("config.yaml", "metrics.jsonl", "provenance.json")]
        files += self.scores.glob(f"*/{address.path}/summary.json")
        files += [self.scores / "losses" / Address(address.variant, REFERENCE).path / "summary.json"]
        files += Path(__file__).parent.glob("*.py")
        contents = sorted((str(path), sha256(path)) for path in files if path.exists())
        return digest([contents, about, [ended(folder) for folder in folders]])

    def _sync_arm(self, address: Address, experiment: Experiment) -> set[str]:
        """Bring an arm and its runs up to date; return their keys.

        The arm has one run for each settings of its run folders and its scores.
        """
        configs = sorted((self.runs / address.path).glob("seed*/config.yaml"))
        runs = {path.parent: read_config(path.parent) for path in configs}
        arm = losses_of(self.scores, address)
        scored = arm.summary["params_hash"] if arm else None
        hashes = {run.params_hash for run in runs.values()} | ({scored} if arm else set())
        parents = {f"{self.prefix}/{address}/{params_hash}": params_hash for params_hash in hashes}
        keys = {*parents, *map(self.run_key, runs.values())}
        about = {"scale": self.scale, "arm": address.arm, "variant": address.variant}
        about["recipes"] = recipes_of(self.catalog, address)
        state = self._state(address, list(runs), about)
        states = {experiment.runs[key].data.tags.get("state") for key in parents if key in experiment.runs}
        if states == {state} and all(map(experiment.active, keys)):
            return keys
        for key, params_hash in parents.items():
            below = {folder: run for folder, run in runs.items() if run.params_hash == params_hash}
            scores = final_scores(self.catalog, self.scores, address, params_hash)
            tags = about | {"kind": "arm", "seeds": len(arm.scored if params_hash == scored else below)}
            params = {name: value for run in below.values() for name, value in flat(run.written).items()}
            params.pop("seed", None)
            begun = min(map(started, below), default=None)
            ends = [end[1] for folder in below if (end := ended(folder))]
            end = ("FINISHED", max(ends, default=None)) if len(ends) == len(below) else None
            scale, track = self.catalog.scales.get(self.scale), self.catalog.variant(address.variant).track
            shaped = changes_width(track or (scale and scale.model.track), self.catalog.arms[address.arm])
            finals = arm_metrics(self.scores, address, scores, shaped)
            parent = experiment.log(key, str(address), tags, params, (), finals, begun, end)
            for folder, run in below.items():
                tags = about | {"seed": run.seed, "commit": made_at(folder), "mlflow.parentRunId": parent.info.run_id}
                finals = {name: values[run.seed] for name, values in scores.items() if run.seed in values}
                experiment.log(
                    self.run_key(run), f"{address} seed {run.seed}", tags, flat(run.written), curves(folder), finals,
                    started(folder), ended(folder),
                )  # fmt: skip
            self.client.set_tag(parent.info.run_id, "state", state)  # last, or a kill would leave gaps
        return keys

    def sync(self, *names: str) -> tuple[int, int]:
        """Sync addresses by their names, or all that have run folders or losses; count these arms and their runs.

        Runs whose settings or folder no longer exist leave the view.
        """
        folders = {config.parent.parent for config in self.runs.glob("*/*/seed*/config.yaml")}
        folders |= {table.parent for table in (self.scores / "losses").glob("*/*/losses.csv")}
        addresses = sorted({Address(folder.parent.name, folder.name) for folder in folders})
        chosen = [address for address in addresses if not names or str(address) in names]
        count = 0
        with locked(self.all_runs), plainly():  # two trackers would both make a missing run
            for at_variants in (False, True):
                here = [address for address in chosen if (address.variant != MAIN) == at_variants]
                if not (here or self.client.get_experiment_by_name(self.title(at_variants))):
                    continue
                experiment = self.experiment(at_variants)
                keys = set().union(*(self._sync_arm(address, experiment) for address in here))
                count += sum("/seed" in key for key in keys)
                experiment.remove(keys, names)
                experiment.describe(self.scale)
        return len(chosen), count

    def sync_sweep(self, name: str, table: pd.DataFrame) -> None:
        """Sync a sweep as one run, and a run below it for each setting with its loss on the tune split."""
        with locked(self.all_runs), plainly():
            experiment, about = self.experiment(), {"scale": self.scale, "sweep": name}
            now = int(time.time() * 1000)
            parent = experiment.log(
                f"{self.prefix}/sweep/{name}", f"sweep {name}", about, {}, (), {}, now, ("FINISHED", now)
            )
            for row in table.to_dict("records"):
                settings = {key: value for key, value in row.items() if key not in ("prose", "state")}
                experiment.log(
                    f"{self.prefix}/sweep/{name}/{digest(settings)}",
                    f"{row['arm']} {row['learning_rate']:g} seed {row['seed']}",
                    about | {"state": row["state"], "mlflow.parentRunId": parent.info.run_id},
                    settings, (), {"tune/prose_loss": row["prose"]}, now, ("FINISHED", now),
                )  # fmt: skip
