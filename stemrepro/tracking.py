"""Run folders -> MLflow. The folder is the record and MLflow the view: what is missing there is added, nothing else.

Every run folder is one MLflow run, found again by its tag `run_key`, so a run that was killed and resumed, or synced
twice, stays one, and a deleted database is rebuilt. The runs of an arm stand under one run that holds their means, which
is what one compares arms by. SQLite by default (mlflow.db); MLFLOW_TRACKING_URI names a server.
"""

import json
import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd
import yaml

from stemrepro.arm import HUES
from stemrepro.book import Book
from stemrepro.errors import UserError
from stemrepro.files import digest, flat, locked, read_rows, sha256
from stemrepro.runs import MAIN, Address, params_hash
from stemrepro.scores.geometry import ArmGeometry
from stemrepro.scores.items import ArmItems
from stemrepro.scores.losses import ArmLosses
from stemrepro.tracked import state, tracking_uri

os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")

from mlflow import MlflowClient
from mlflow.entities import Metric, Param, Run, RunTag
from mlflow.exceptions import MlflowException
from sqlalchemy.exc import SQLAlchemyError

BATCH = 1000  # MLflow takes no more metrics at once
POINTS = 500  # of training that MLflow gets of a run, evenly spaced, beside every mark: a database of all steps is slow to fill and to open


@contextmanager
def plainly() -> Iterator[None]:
    """What is wrong with the database becomes one sentence. (MLflow itself waits 20 s for a locked one.)"""
    try:
        yield
    except Exception as error:
        reason, uri = " ".join(str(error).split()), tracking_uri()
        if "database is locked" in reason:
            raise UserError(f"{uri} is locked by another process; stop that or run 'stemrepro track' later") from error
        if "file is not a database" in reason or "malformed" in reason:
            raise UserError(f"{uri} is damaged; delete the file and run 'stemrepro track' to build it anew") from error
        if isinstance(error, MlflowException | OSError | SQLAlchemyError):
            raise UserError(f"MLflow at {uri} can't be used ({reason[:200]})") from error
        raise


def steps_of(config: dict) -> int:
    """Optimiser steps of a run of these settings."""
    training = config["training"]
    return int(training["tokens"]) // (int(training["batch"]) * int(training["sequence"]))


def read_config(folder: Path) -> dict:
    """The settings in a run folder; UserError when they can't be read."""
    try:
        config = yaml.safe_load((folder / "config.yaml").read_text())
        names = {"arm": str(config["arm"]), "point": str(config["point"]), "data": dict(config["data"])}
        steps_of(config)
        return config | names | {"seed": int(config["seed"])}
    except (OSError, ValueError, KeyError, TypeError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"{folder}/config.yaml is damaged ({reason}); train that run again") from error


def ended(folder: Path) -> tuple[str, int] | None:
    """How a run ended in MLflow's words, and when (ms); None for one that hasn't. A run that diverged failed."""
    for name, status in (("weights.safetensors", "FINISHED"), ("diverged.json", "FAILED")):
        if (folder / name).exists():
            return status, int((folder / name).stat().st_mtime * 1000)
    return None


def made_at(folder: Path) -> str:
    """The commit that a run was made at, or "unknown"."""
    try:
        return str(json.loads((folder / "provenance.json").read_text())["commit"])
    except (OSError, ValueError, KeyError, TypeError):
        return "unknown"


class Tracker:
    """Syncs one scale's run folders: arms at the scale itself into one experiment, those at points, which are many, into another.

    Experiments are made with the first run that belongs into them.
    """

    def __init__(self, scale: str, book: Book, runs: Path, scores: Path, results: Path) -> None:
        for name in ("alembic", "mlflow"):
            logging.getLogger(name).setLevel(logging.ERROR)
        self.scale, self.book, self.all_runs = scale, book, runs
        self.runs, self.scores, self.results = runs / scale, scores / scale, results / scale
        self._synced: dict[Address, tuple[list, int]] = {}

    @cached_property
    def client(self) -> MlflowClient:
        """MLflow; the first one makes the database."""
        return MlflowClient(tracking_uri())

    @cached_property
    def experiment(self) -> str:
        """The experiment of arms at the scale itself, and of sweeps."""
        return self._experiment(f"stemrepro {self.scale}")

    @cached_property
    def points(self) -> str:
        """The experiment of arms at points."""
        return self._experiment(f"stemrepro {self.scale}, points")

    @property
    def page(self) -> str:
        """Where MLflow's own page shows the arms side by side."""
        place = f"experiments/{self.experiment}/runs?workflowType=machine_learning&compareRunsMode=CHART"
        return f"http://127.0.0.1:5000/#/{place}"

    def _experiment(self, name: str) -> str:
        found = self.client.get_experiment_by_name(name)
        if found:
            return found.experiment_id
        return self.client.create_experiment(name, tags={"mlflow.experimentKind": "custom_model_development"})

    def _run(self, key: str, name: str, tags: dict[str, str], started: int, point: str = MAIN) -> Run:
        """The MLflow run of a key, made when it isn't there."""
        experiment = self.experiment if point == MAIN else self.points
        found = self.client.search_runs([experiment], f"tags.run_key = '{key}'", max_results=1)
        if found:
            return found[0]
        return self.client.create_run(experiment, started, tags | {"run_key": key}, name)

    def _add(self, run: Run, metrics: list[Metric], params: dict, tags: dict) -> None:
        """Logs what the run doesn't have yet."""
        new = [Param(key, str(value)) for key, value in params.items() if key not in run.data.params]
        changed = [RunTag(key, str(value)) for key, value in tags.items() if run.data.tags.get(key) != str(value)]
        for first in range(0, len(new), 100):
            self.client.log_batch(run.info.run_id, params=new[first : first + 100])
        for first in range(0, len(metrics), BATCH):
            self.client.log_batch(run.info.run_id, metrics=metrics[first : first + BATCH])
        if changed:
            self.client.log_batch(run.info.run_id, tags=changed)

    def recipes(self, address: Address) -> list[str]:
        """The recipes that want an address."""
        return [name for name, recipe in self.book.recipes.items() if address in recipe.wanted()]

    def colour(self, arm: str) -> str:
        """An arm's colour in figures."""
        return HUES[self.book.arms[arm].hue if arm in self.book.arms else "grey"]

    def arm_scores(self, address: Address, params_hash: str) -> dict[str, dict[int, float]]:
        """Final metrics of an address by name and seed, where they were scored from runs of these settings."""
        found: dict[str, dict[int, float]] = {}
        losses = ArmLosses(self.scores / "losses" / address.path)
        if (losses.folder / "losses.csv").exists() and losses.summary["params_hash"] == params_hash:
            for metric in ("prose", "all"):
                found[f"final/{metric}_loss"] = losses.loss(metric).to_dict()
        for recipe in (recipe for recipe in self.book.recipes.values() if recipe.tasks):
            items = ArmItems(self.scores / "benchmarks" / address.path, recipe)
            if (items.folder / "summary.json").exists() and items.summary["params_hash"] == params_hash:
                names = {what: f"final/{what}_accuracy" for what in recipe.groups} | {
                    what: f"tasks/{what}" for what in recipe.tasks
                }
                for what, name in names.items():
                    values = items.sample(f"accuracy:{what}").by_seed
                    if np.isfinite(values).all():
                        found[name] = dict(zip(items.arrays["seeds"].tolist(), values.tolist(), strict=True))
        if address.point == MAIN and (self.scores / "geometry" / address.path / "summary.json").exists():
            angles = ArmGeometry(self.scores, address.arm)
            if angles.summary["params_hash"] == params_hash:
                found["final/p95_cosine"] = angles.by_layer("p95", "up").mean(axis=1).to_dict()
        return found

    def sync_run(self, folder: Path, parent: Run, scores: dict[str, dict[int, float]]) -> list[dict]:
        """Brings one run folder's MLflow run up to date; returns the rows of metrics.jsonl."""
        config = read_config(folder)
        address, seed = Address(config["point"], config["arm"]), config["seed"]
        started = int((folder / "config.yaml").stat().st_mtime * 1000)
        ends = ended(folder)
        tags = {
            "scale": self.scale, "arm": address.arm, "point": address.point, "seed": seed,
            "recipes": ", ".join(self.recipes(address)), "dvc_stage": f"train@{self.scale}", "params_hash": params_hash(config),
            "data_hash": config["data"]["train_sha256"][:12], "commit": made_at(folder),
            "mlflow.parentRunId": parent.info.run_id, "mlflow.source.name": "stemrepro train",
            "mlflow.runColor": self.colour(address.arm),
        }  # fmt: skip
        key, strings = f"{self.scale}/{address}/seed{seed}/{digest(config)}", {k: str(v) for k, v in tags.items()}
        run = self._run(key, f"{address} seed {seed}", strings, started, address.point)
        rows = read_rows(folder / "metrics.jsonl") if (folder / "metrics.jsonl").exists() else []
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
            parent = self._run(f"{self.scale}/sweep/{name}", f"sweep {name}", {"scale": self.scale, "sweep": name}, now)
            for row in table.to_dict("records"):
                settings = {key: value for key, value in row.items() if key not in ("prose", "state")}
                tags = {
                    "scale": self.scale,
                    "sweep": name,
                    "state": row["state"],
                    "mlflow.parentRunId": parent.info.run_id,
                }
                label = f"{row['arm']} {row['learning_rate']:g} seed {row['seed']}"
                run = self._run(f"{self.scale}/sweep/{name}/{digest(settings)}", label, tags, now)
                metrics = (
                    [Metric("tune/prose_loss", row["prose"], now, 0)]
                    if "tune/prose_loss" not in run.data.metrics
                    else []
                )
                self._add(run, metrics, settings, tags)
                self.client.set_terminated(run.info.run_id)
            for figure in sorted(folder.glob("*.png")):
                self.client.log_artifact(parent.info.run_id, str(figure), "figures")
            self.client.set_terminated(parent.info.run_id)

    def sync_arm(self, address: Address) -> int:
        """Brings the runs of an address up to date, and the run above them that holds their means and the figures."""
        folders = sorted(path.parent for path in (self.runs / address.path).glob("seed*/config.yaml"))
        if not folders:
            return 0
        configs = [read_config(folder) for folder in folders]
        key = f"{self.scale}/{address}/{params_hash(configs[0])}"
        started = int((folders[0] / "config.yaml").stat().st_mtime * 1000)
        recipes = self.recipes(address)
        tags = {"scale": self.scale, "arm": address.arm, "point": address.point, "recipes": ", ".join(recipes)}
        tags |= {"kind": "mean over seeds", "mlflow.runColor": self.colour(address.arm)}
        parent = self._run(key, str(address), tags, started, address.point)
        scores = self.arm_scores(address, params_hash(configs[0]))
        curves = [self.sync_run(folder, parent, scores) for folder in folders]
        shared = {name: value for name, value in flat(configs[0]).items() if name != "seed"}
        metrics, marks = self._means(parent, curves, scores, started)
        self._add(parent, metrics, shared | {"seeds": len(folders)}, tags | {"marks": marks})
        for recipe in recipes:
            figure = self.results / recipe / "figure.png"
            if figure.exists() and parent.data.tags.get(f"figure.{recipe}") != (found := sha256(figure)[:12]):
                self.client.log_artifact(parent.info.run_id, str(figure), f"figures/{recipe}")
                self.client.set_tag(parent.info.run_id, f"figure.{recipe}", found)
        ends = [ended(folder) for folder in folders]
        if parent.info.status != "FINISHED" and None not in ends:
            self.client.set_terminated(parent.info.run_id, "FINISHED", max(time for _, time in ends))
        return len(folders)

    def _means(self, parent: Run, curves: list[list[dict]], scores: dict, started: int) -> tuple[list[Metric], int]:
        """Means over seeds that the arm's run lacks: losses at the marks that every seed has reached, final scores; and
        how many marks those are."""
        done, metrics = int(parent.data.tags.get("marks", 0)), []
        marked = [[row for row in rows if "validation" in row] for rows in curves]
        shared = min(map(len, marked))
        for rows in list(zip(*marked, strict=False))[done:shared]:
            step = rows[0]["step"]
            values = {
                f"loss_curve/{source}": float(np.mean([row["validation"][source] for row in rows]))
                for source in rows[0]["validation"]
            }
            metrics += [Metric(name, value, started + step, step) for name, value in values.items()]
        for name, values in scores.items():
            seeds, spread = list(values.values()), f"variation_over_seeds/{name.split('/')[1]}"
            found = {name: float(np.mean(seeds))} | ({spread: float(np.std(seeds, ddof=1))} if len(seeds) > 1 else {})
            metrics += [
                Metric(key, value, started, 0) for key, value in found.items() if parent.data.metrics.get(key) != value
            ]
        return metrics, max(done, shared)

    def _sync_changed(self, address: Address) -> int:
        """Brings an address up to date unless this tracker did and nothing has changed since; returns how many runs it has.

        Looking at all of a scale's runs takes longer than the pause between two looks, on cores that train.
        """
        found = state(self.runs, self.scores, self.results, address.path)
        if address not in self._synced or self._synced[address][0] != found:
            self._synced[address] = found, self.sync_arm(address)
        return self._synced[address][1]

    def sync(self, *names: str) -> int:
        """Syncs addresses by their names, or all that have run folders; returns how many runs that were."""
        folders = {config.parent.parent for config in self.runs.glob("*/*/seed*/config.yaml")}
        addresses = sorted(Address(folder.parent.name, folder.name) for folder in folders)
        chosen = [address for address in addresses if not names or str(address) in names]
        with locked(self.all_runs), plainly():  # two trackers would both make what neither finds
            return sum(self._sync_changed(address) for address in chosen)
