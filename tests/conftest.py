"""Shared small things: a tiny scale, and token blocks made from the vendored sample by the real data stages."""

import gc
import os
import shutil
import signal
import sqlite3
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from pkgutil import resolve_name

import pytest
import yaml

from stemrepro.common.files import sha256
from stemrepro.config.address import MAIN, Address
from stemrepro.config.arm import Arm, run_settings
from stemrepro.config.mixes import Mix, SampleMix
from stemrepro.config.scale import Scale, Variant
from stemrepro.config.scores import SCORE_KINDS, PlannedTasks
from stemrepro.data.archives import fetch
from stemrepro.data.corpus import build_corpus
from stemrepro.data.encoding import write_blocks
from stemrepro.data.items import write_items
from stemrepro.data.tokenizer import train_tokenizer
from stemrepro.measures.catalog import load
from stemrepro.measures.store import PLACE, checked
from stemrepro.training.run import Run

os.environ["OMP_NUM_THREADS"] = "1"  # torch: two threads wait for each other on a busy machine; golden losses need one
os.environ["OMP_WAIT_POLICY"] = "passive"  # where a test has two threads, they wait asleep
os.fsync = lambda _: None  # tests kill processes, which lose nothing that was written, and never the machine
ROOT = Path(__file__).parent.parent


LONG = [
    "pipeline/test_pipeline.py",
    "test_notebook.py",
    "benchmarks/test_gpu_job.py",
    "distributed/test_training.py",
    "cli/test_cli.py",
    "training/test_train.py",
    "test_analyses.py",
    "sweeps/test_search.py",
    "report/test_style.py",
    "report/test_pages.py",
    "test_made_mixes.py",
    "report/test_explain.py",
    "training/test_kill.py",
    "common/test_workers.py",
    "test_own_text.py",
    "test_clone.py",
    "distributed/test_plan.py",
    "benchmarks/test_peers.py",
    "measures/test_fits.py",
]
"""From the longest on."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put files that take long first, so that two workers end together; a browser and MLflow's database are slow."""
    places = {ROOT / "tests" / name: place for place, name in enumerate(LONG)}
    items.sort(key=lambda item: places.get(item.path, len(LONG)))
    for item in items:
        if {"browser", "empty_database"} & set(item.fixturenames):
            item.add_marker("slow")


def pytest_collection_finish() -> None:
    """Spare the garbage collector what imports have made: a million objects that stay, a second for each full pass."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def catalog():
    return load(ROOT / "recipes")


RECORDS = ("arms", "mixes", "paper", "shapes", "variants")


def copy_recipes(folder: Path, *names: str) -> None:
    """Copy recipes/ with these recipes alone, which are read several times as fast as all."""
    for part in ("scales", "sweeps"):
        shutil.copytree(ROOT / "recipes" / part, folder / "recipes" / part)
    for name in (*RECORDS, *names):
        shutil.copy(ROOT / f"recipes/{name}.yaml", folder / "recipes")


def make_text(folder: Path, mix: Mix, vocab: int) -> Path:
    """Write raw/, corpus/, tokenizer.json and blocks/ of a mix into a folder, by the real data stages; return it."""
    fetch(mix, folder / "raw")
    build_corpus("own", mix, folder / "raw", folder / "corpus")
    train_tokenizer(folder / "corpus/corpus.parquet", vocab, folder / "tokenizer.json")
    write_blocks(folder / "corpus/corpus.parquet", folder / "tokenizer.json", folder / "blocks")
    return folder


@pytest.fixture(scope="session")
def sample(tmp_path_factory):
    """corpus/, items/, tokenizer.json and blocks/ of the vendored sample at vocabulary 300."""
    mix = SampleMix(kind="sample")
    folder = make_text(tmp_path_factory.mktemp("sample"), mix, 300)
    write_items(mix, folder / "raw", folder / "corpus/corpus.parquet", folder / "items")
    return folder


@pytest.fixture(scope="session")
def atlas_sample(tmp_path_factory, catalog):
    """corpus/ with facts.json, tokenizer.json and blocks/ of the vendored countries at vocabulary 512."""
    return make_text(tmp_path_factory.mktemp("atlas"), catalog.mixes["atlas-sample"], 512)


TINY = yaml.safe_load("""
data: sample
scoreboard: results/tiny
model: {vocab: 300, width: 16, layers: 4, heads: 2, kv_heads: 1, ffn_width: 24, sequence: 32}
training: {
  tokens: 1536, batch: 4, micro_batch: 2, warmup: 0.25, final_rate: 0.1, betas: [0.9, 0.95], weight_decay: 0.1,
  clip: 1.0, precision: 32-true, accelerator: cpu, threads: 1, evals: 3, eval_tokens: 256, eval_batch: 4,
  save_every: 5, snapshots: [0.25, 0.5]}
evaluation: {tokens: 512, batch: 4}
benchmarks: {items: 6, batch: 4}
counting: {vocab: 320, length: 64, cache_tokens: 600}
geometry: {tokens: 40, bins: 40}
workers: 1
learning_rate: 0.01
seeds: [0]
""")


@pytest.fixture(scope="session")
def tiny():
    return Scale.model_validate(TINY)


TASKS = ("openbookqa", "atlas_capital")


def run_of(folder: Path, text: Path, mix: str, arm: str, chosen: Arm, scale: Scale, seed: int = 0) -> Run:
    """Return a run in a folder, of an arm at a scale, on a text that `make_text` wrote."""
    address, data_hash = Address(MAIN, arm), sha256(text / "blocks/train.bin")
    model, training = run_settings(address, chosen, Variant(), scale)
    run_folder = folder / address.path / f"seed{seed}"
    return Run(address, seed, model, training, run_folder, mix, text / "blocks", data_hash)


def with_vocab(scale: Scale, vocab: int, **training: object) -> Scale:
    """Return a scale with another vocabulary, and other fields of `training`."""
    changed = scale.training.model_copy(update=training)
    return scale.model_copy(update={"model": scale.model.model_copy(update={"vocab": vocab}), "training": changed})


def retrained(run: Run, name: str = "", **training: object) -> Run:
    """Return a run with other fields of `training`, in a folder next to its own where a name is given."""
    folder = run.folder.with_name(name) if name else run.folder
    return replace(run, folder=folder, training=run.training.model_copy(update=training))


def written(run: Run) -> dict[str, bytes]:
    """Return what a run has left in its folder, but for its provenance."""
    return {path.name: path.read_bytes() for path in run.folder.iterdir() if path.name != "provenance.json"}


@pytest.fixture(scope="session")
def runs_in(sample, tiny, catalog):
    """runs_in(folder)("stem-full", seed) -> a Run of 12 steps in the folder."""

    def make(folder: Path, arm: str, seed: int = 0, scale: Scale = tiny, **fields: object) -> Run:
        chosen = Arm.model_validate(catalog.arms[arm].model_dump() | fields)
        return run_of(folder, sample, "sample", arm, chosen, scale, seed)

    return lambda folder: partial(make, folder)


@pytest.fixture
def make_run(runs_in, tmp_path):
    """make_run("stem-full", seed) -> a Run of 12 steps in a temporary folder."""
    return runs_in(tmp_path)


@pytest.fixture(scope="session")
def atlas_run(atlas_sample, tiny, catalog, tmp_path_factory):
    """atlas_run("stem-full", seed) -> a trained Run of 12 steps on the mix of facts."""
    from stemrepro.training.train import train  # needs torch, which .ci/run's second Python hasn't

    folder = tmp_path_factory.mktemp("atlas-runs") / "runs/tiny"

    def make(arm: str, seed: int = 0) -> Run:
        run = run_of(folder, atlas_sample, "atlas-sample", arm, catalog.arms[arm], with_vocab(tiny, 512), seed)
        train(run, quiet)
        return run

    return make


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory):
    """MLflow takes seconds to make one; tests copy it. From then on this process waits for no disk at a commit."""
    from mlflow import MlflowClient  # seconds, which most tests don't need
    from sqlalchemy import Engine, event

    @event.listens_for(Engine, "connect")
    def be_quick(connection, _record):
        with suppress(sqlite3.Error):  # one that is locked or damaged, by a test
            connection.execute("PRAGMA synchronous = OFF")

    path = tmp_path_factory.mktemp("mlflow") / "mlflow.db"
    MlflowClient(f"sqlite:///{path}").search_experiments()
    return path


@pytest.fixture
def few_draws(monkeypatch):
    """Let bootstraps draw a twentieth of their samples: for pictures of intervals, not for their ends."""
    from scipy import stats  # a second

    bootstrap = stats.bootstrap
    monkeypatch.setattr(stats, "bootstrap", lambda *args, **fields: bootstrap(*args, **fields | {"n_resamples": 50}))


@pytest.fixture
def asked(tiny):
    """How tiny runs are scored on benchmarks."""
    return PlannedTasks(**tiny.benchmarks.model_dump(), tasks=TASKS)


def tables_of(kind: str, runs: list[Run], results: list, given: dict | None = None) -> tuple[dict, dict]:
    """Return what a kind of scores knows of an arm, and its tables as they would be written."""
    from stemrepro.evaluation.writing import Scored

    about, made = resolve_name(f"stemrepro.evaluation.{kind}:tables")(Scored(runs, results, given or {}))
    place = dict(zip(PLACE, (runs[0].address.variant, runs[0].address.arm), strict=True))
    schema = SCORE_KINDS[kind].tables
    whole = {name: checked(Path(name), frame.assign(**place), schema[name]) for name, frame in made.items()}
    return about, {name: frame.drop(columns=list(PLACE)).reset_index(drop=True) for name, frame in whole.items()}


def hear_signals() -> None:
    """For a child process, which inherits deafness: to SIGINT in a shell's background, to SIGHUP below nohup."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def quiet(*_: object) -> None:
    """A progress report that nobody reads."""
