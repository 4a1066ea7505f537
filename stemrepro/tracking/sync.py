"""Run folders and scores -> MLflow. These are the record and MLflow the view: it gets what it lacks, and what they no longer hold leaves it.

Every run folder is one MLflow run, found again by its tag `run_key`, so a run that was killed and resumed, or synced
twice, stays one, and a deleted database is rebuilt. The runs of an arm stand under one run that holds what one compares arms by
(stemrepro.tracking.arm); an arm that was scored has it also where its run folders aren't. SQLite by default (mlflow.db);
MLFLOW_TRACKING_URI names a server, or a database elsewhere: there each folder has runs of its own, and touches no others.
"""

import logging
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from stemrepro.common.errors import UserError
from stemrepro.common.files import digest, flat, locked, sha256
from stemrepro.config.address import MAIN, Address
from stemrepro.config.arm import HUES
from stemrepro.config.catalog import Catalog
from stemrepro.tracking.arm import (
    REFERENCE,
    ArmView,
    Spoken,
    arm_view,
    claims_on,
    describe,
    losses_of,
    recipes_of,
    spoken,
)
from stemrepro.tracking.page import KIND, NOTE, note, place, saved_views
from stemrepro.tracking.run import UNKNOWN, ended, made_at, steps_of
from stemrepro.tracking.state import clone, made_whole, private, settle, state, tracking_uri
from stemrepro.training.run import params_hash
from stemrepro.training.run_folder import read_config, read_metrics

os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")
os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")

from mlflow import MlflowClient
from mlflow.entities import Metric, Param, Run, RunTag, ViewType
from mlflow.exceptions import MlflowException
from sqlalchemy.exc import SQLAlchemyError

DAMAGED = ("file is not a database", "malformed", "duplicate column name", "already exists [SQL: CREATE")
"""What is said of a file that is no database, and of one that 'mlflow ui' was making when it was killed."""
BATCH = 1000  # MLflow takes no more metrics at once
POINTS = 500  # of training that MLflow gets of a run, evenly spaced, beside every mark: a database of all steps is slow to fill and to open


class Synced(NamedTuple):
    """How many arms and runs by seed the view has."""

    arms: int
    runs: int


@contextmanager
def plainly() -> Iterator[None]:
    """What is wrong with the database becomes one sentence. (MLflow itself waits 20 s for a locked one.)"""
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


class Tracker:
    """Syncs one scale: arms at the scale itself into one experiment, those at variants, which are many, into another.

    Experiments are made with the first run that belongs into them.
    """

    def __init__(self, scale: str, catalog: Catalog, runs: Path, scores: Path, results: Path) -> None:
        for name in ("alembic", "mlflow"):
            logging.getLogger(name).setLevel(logging.ERROR)
        self.scale, self.catalog, self.all_runs = scale, catalog, runs
        self.runs, self.scores, self.results = runs / scale, scores / scale, results / scale
        self._synced: dict[Address, tuple[list, Synced]] = {}
        self._claims: list[Spoken] = []
        self._addresses: list[Address] | None = None

    @cached_property
    def client(self) -> MlflowClient:
        """MLflow; the first one makes the database."""
        with made_whole() as new:
            if new:
                MlflowClient(new).search_experiments(max_results=1)
        settle()
        return MlflowClient(tracking_uri())

    @cached_property
    def clone(self) -> str:
        """What this folder's runs are marked with; "" in a database that holds no others."""
        return "" if private() else clone()

    @cached_property
    def own(self) -> str:
        """What keys of this folder's runs begin with."""
        return f"{self.clone}/{self.scale}" if self.clone else self.scale

    @cached_property
    def experiment(self) -> str:
        """The experiment of arms at the scale itself, and of sweeps."""
        return self._experiment(MAIN)

    @cached_property
    def variants(self) -> str:
        """The experiment of arms at variants."""
        return self._experiment("variants")

    @property
    def place(self) -> str:
        """Where MLflow's own page shows the arms side by side, below the server's address."""
        return place(self.experiment)

    def _title(self, variant: str) -> str:
        return f"stemrepro {self.scale}" if variant == MAIN else f"stemrepro {self.scale}, variants"

    def _experiment(self, variant: str) -> str:
        """Return the experiment of a variant's arms, made when it isn't there, with its description and views."""
        name = self._title(variant)
        found = self.client.get_experiment_by_name(name)
        if not found:
            try:
                self.client.create_experiment(name, tags={"mlflow.experimentKind": "custom_model_development"})
            except MlflowException:  # another clone may have made it just now
                if not self.client.get_experiment_by_name(name):
                    raise
            found = self.client.get_experiment_by_name(name)
        about = {NOTE: note(self.scale, variant, found.experiment_id)}
        for key, value in (about | saved_views(found.creation_time, bool(self.clone))).items():
            if found.tags.get(key) != value:
                self.client.set_experiment_tag(found.experiment_id, key, value)
        return found.experiment_id

    def _search(self, experiment: str, condition: str = "", which: int = ViewType.ACTIVE_ONLY) -> Iterator[Run]:
        """Return all runs of an experiment that a filter of MLflow's lets through."""
        token = None
        while token != "":
            page = self.client.search_runs([experiment], condition, which, page_token=token)
            yield from page
            token = page.token or ""

    def _run(self, key: str, name: str, tags: dict[str, str], started: int, variant: str = MAIN) -> Run:
        """Return the MLflow run of a key, made when it isn't there; one that had left comes back."""
        experiment = self.experiment if variant == MAIN else self.variants
        for found in self._search(experiment, f"tags.run_key = '{key}'", ViewType.ALL):
            if found.info.lifecycle_stage == "deleted":
                self.client.restore_run(found.info.run_id)
            return found
        mark = {"clone": f"{Path.cwd().name} {self.clone}"} if self.clone else {}
        return self.client.create_run(experiment, started, tags | {"run_key": key} | mark, name)

    def _add(self, run: Run, metrics: list[Metric], params: dict, tags: dict) -> None:
        """Log what the run doesn't have yet."""
        new = [Param(key, str(value)) for key, value in params.items() if key not in run.data.params]
        changed = [RunTag(key, str(value)) for key, value in tags.items() if run.data.tags.get(key) != str(value)]
        for first in range(0, len(new), 100):
            self.client.log_batch(run.info.run_id, params=new[first : first + 100])
        for first in range(0, len(metrics), BATCH):
            self.client.log_batch(run.info.run_id, metrics=metrics[first : first + BATCH])
        if changed:
            self.client.log_batch(run.info.run_id, tags=changed)

    def _remove(self, runs: list[Run]) -> None:
        """Take runs out of the view, but for those of other folders; MLflow keeps them under State: Deleted, whence `_run` or a person
        gets them back.
        """
        for run in runs:
            if run.data.tags.get("run_key", "").startswith(f"{self.own}/"):
                self.client.delete_run(run.info.run_id)

    def colour(self, arm: str) -> str:
        """Return an arm's colour in figures."""
        return HUES[self.catalog.arms[arm].hue if arm in self.catalog.arms else "grey"]

    def run_key(self, folder: Path) -> str:
        """By which a run folder's MLflow run is found."""
        config = read_config(folder)
        return f"{self.own}/{Address(config['point'], config['arm'])}/seed{config['seed']}/{digest(config)}"

    def sync_run(self, folder: Path, parent: Run, scores: dict[str, dict[int, float]]) -> list[dict]:
        """Bring one run folder's MLflow run up to date; returns the rows of metrics.jsonl."""
        config = read_config(folder)
        address, seed = Address(config["variant"], config["arm"]), config["seed"]
        started = int((folder / "config.yaml").stat().st_mtime * 1000)
        ends = ended(folder)
        tags = {
            "scale": self.scale, "arm": address.arm, "variant": address.variant, "seed": seed,
            "recipes": ", ".join(recipes_of(self.catalog, address)), "dvc_stage": f"train@{self.scale}", "params_hash": params_hash(config),
            "data_hash": config["data"]["train_sha256"][:12], "commit": made_at(folder),
            "mlflow.parentRunId": parent.info.run_id, "mlflow.source.name": "stemrepro train",
            "mlflow.runColor": self.colour(address.arm),
        }  # fmt: skip
        strings = {k: str(v) for k, v in tags.items()}
        run = self._run(self.run_key(folder), f"{address} seed {seed}", strings, started, address.variant)
        rows = read_metrics(folder) if (folder / "metrics.jsonl").exists() else []
        done, every = int(run.data.tags.get("rows", 0)), -(-steps_of(config) // POINTS)
        metrics = [
            Metric(name, value, started + row["step"], row["step"])  # rows carry no clock: equal runs have equal rows
            for row in rows[done:]
            if "validation" in row or row["step"] % every == 0
            for name, value in {
                "training/loss": row["loss"], "training/rate": row["rate"], "training/gradient_norm": row["norm"],
                **{f"loss_curve/{source}": loss for source, loss in row.get("validation", {}).items()},
            }.items()
        ]  # fmt: skip
        last = rows[-1]["step"] if rows else 0
        finals = {
            name: values[seed]
            for name, values in scores.items()
            if seed in values and run.data.metrics.get(name) != values[seed]
        }
        metrics += [Metric(name, value, started + last + 1, last) for name, value in finals.items()]
        self._add(run, metrics, flat(config), tags | {"rows": len(rows)})
        if ends and run.info.status != ends[0]:
            self.client.set_terminated(run.info.run_id, *ends)
        return rows

    def sync_sweep(self, name: str, table: pd.DataFrame, folder: Path) -> None:
        """A sweep as one run with its figures, and a run below it a setting: what was set and the loss on the tune split."""
        with locked(self.all_runs), plainly():
            now = int(time.time() * 1000)
            parent = self._run(f"{self.own}/sweep/{name}", f"sweep {name}", {"scale": self.scale, "sweep": name}, now)
            for row in table.to_dict("records"):
                settings = {key: value for key, value in row.items() if key not in ("prose", "state")}
                tags = {
                    "scale": self.scale,
                    "sweep": name,
                    "state": row["state"],
                    "mlflow.parentRunId": parent.info.run_id,
                }
                label = f"{row['arm']} {row['learning_rate']:g} seed {row['seed']}"
                run = self._run(f"{self.own}/sweep/{name}/{digest(settings)}", label, tags, now)
                metrics = (
                    [Metric("tune/prose_loss", row["prose"], now, 0)]
                    if run.data.metrics.get("tune/prose_loss") != row["prose"]
                    else []
                )
                self._add(run, metrics, settings, tags)
                self.client.set_terminated(run.info.run_id)
            for figure in sorted(folder.glob("*.png")):
                self.client.log_artifact(parent.info.run_id, str(figure), "figures")
            self.client.set_terminated(parent.info.run_id)

    def sync_arm(self, address: Address) -> Synced:
        """Bring all of an address up to date. Its arm is there once, and twice where it was scored with other settings than the run
        folders have; what has neither settings leaves.
        """
        folders = sorted(path.parent for path in (self.runs / address.path).glob("seed*/config.yaml"))
        trained = params_hash(read_config(folders[0])) if folders else ""
        own = losses_of(self.scores, address)
        scored = str(own.summary["params_hash"]) if own else ""
        keys = {self.run_key(folder) for folder in folders}
        for settings in filter(None, dict.fromkeys([scored, trained])):
            below = folders if settings == trained else []
            keys.add(key := f"{self.own}/{address}/{settings}")
            view = arm_view(self.catalog, self.scores, self.results, address, settings, below)
            self._sync_view(key, view, below)
        experiment = self.experiment if address.variant == MAIN else self.variants
        there = self._search(experiment, f"tags.arm = '{address.arm}' and tags.variant = '{address.variant}'")
        self._remove([run for run in there if run.data.tags.get("run_key") not in keys])
        return Synced(1, len(folders))

    def _sync_view(self, key: str, view: ArmView, folders: list[Path]) -> None:
        """Bring the run of an arm up to date, with the figures that it stands in, and the runs of its folders below it."""
        address = view.address
        claims = claims_on(address, self._claims) if view.scores else []
        made = folders[0] / "config.yaml" if folders else self.scores / "losses" / address.path / "summary.json"
        started = int(made.stat().st_mtime * 1000)
        tags = {
            "scale": self.scale, "arm": address.arm, "variant": address.variant, "recipes": ", ".join(view.recipes), "kind": KIND,
            "seeds": len(view.seeds), "commit": view.trained or view.drawn or UNKNOWN,
            "dvc_stage": f"{'losses' if view.scores else 'train'}@{self.scale}", "mlflow.runColor": self.colour(address.arm),
            NOTE: describe(self.catalog, self.scale, view, claims),
        }  # fmt: skip
        parent = self._run(key, str(address), {name: str(tag) for name, tag in tags.items()}, started, address.variant)
        curves = [self.sync_run(folder, parent, view.scores) for folder in folders]
        metrics, marks = self._mean_curves(parent, curves, started)
        now = int(time.time() * 1000)  # of two values MLflow shows the later: a mean changes with the seeds
        metrics += [
            Metric(name, value, now, 0)
            for name, value in view.metrics().items()
            if parent.data.metrics.get(name) != value
        ]
        shared = (
            {name: value for name, value in flat(read_config(folders[0])).items() if name != "seed"} if folders else {}
        )
        self._add(parent, metrics, shared, tags | {"marks": marks})
        for recipe in view.recipes:
            figure = self.results / recipe / "figure.png"
            if figure.exists() and parent.data.tags.get(f"figure.{recipe}") != (found := sha256(figure)[:12]):
                self.client.log_artifact(parent.info.run_id, str(figure), f"figures/{recipe}")
                self.client.set_tag(parent.info.run_id, f"figure.{recipe}", found)
        ends = [ended(folder) for folder in folders]
        if parent.info.status != "FINISHED" and None not in ends:
            self.client.set_terminated(parent.info.run_id, "FINISHED", max((time for _, time in ends), default=started))

    def _mean_curves(self, parent: Run, curves: list[list[dict]], started: int) -> tuple[list[Metric], int]:
        """Return mean losses over seeds at the marks that every seed has reached and the arm's run lacks; and how many marks those are."""
        done, metrics = int(parent.data.tags.get("marks", 0)), []
        marked = [[row for row in rows if "validation" in row] for rows in curves]
        shared = min(map(len, marked), default=0)
        for rows in list(zip(*marked, strict=False))[done:shared]:
            step = rows[0]["step"]
            values = {
                f"loss_curve/{source}": float(np.mean([row["validation"][source] for row in rows]))
                for source in rows[0]["validation"]
            }
            metrics += [Metric(name, value, started + step, step) for name, value in values.items()]
        return metrics, max(done, shared)

    def _sync_changed(self, address: Address) -> Synced:
        """Bring an address up to date unless this tracker did and nothing has changed since, there or of the arm that gaps are taken to.

        Looking at all of a scale's runs takes longer than the pause between two looks, on cores that train.
        """
        places = [address.path, Address(address.variant, REFERENCE).path]
        found = [state(self.runs, self.scores, self.results, path.as_posix()) for path in places]
        if address not in self._synced or self._synced[address][0] != found:
            self._claims = self._claims or spoken(self.catalog, self.results)
            self._synced[address] = found, self.sync_arm(address)
        return self._synced[address][1]

    def _remove_gone(self, addresses: list[Address]) -> None:
        """Remove all of addresses that have neither run folders nor scores any more."""
        if addresses == self._addresses or ((file := private()) and not file.exists()):
            return
        self._addresses = addresses
        for variant in (MAIN, "variants"):
            if found := self.client.get_experiment_by_name(self._title(variant)):
                tracked = [run for run in self._search(found.experiment_id) if "arm" in run.data.tags]
                gone = [
                    run for run in tracked if Address(run.data.tags["variant"], run.data.tags["arm"]) not in addresses
                ]
                self._remove(gone)

    def sync(self, *names: str) -> Synced:
        """Sync addresses by their names, or all that have run folders or losses; returns how many arms and runs that were."""
        folders = {config.parent.parent for config in self.runs.glob("*/*/seed*/config.yaml")}
        folders |= {table.parent for table in (self.scores / "losses").glob("*/*/losses.csv")}
        addresses = sorted({Address(folder.parent.name, folder.name) for folder in folders})
        chosen = [address for address in addresses if not names or str(address) in names]
        with locked(self.all_runs), plainly():  # two trackers would both make what neither finds
            self._claims = []
            found = [self._sync_changed(address) for address in chosen]
            if not names:
                self._remove_gone(addresses)
        return Synced(len(found), sum(own.runs for own in found))
