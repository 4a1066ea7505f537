"""Sweeps: points, extension, pruning and results in-process; workers, kills and retries as real processes."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from functools import partial
from pathlib import Path
from threading import Thread, Timer

import numpy as np
import optuna
import pandas as pd
import pytest
import yaml
from mlflow import MlflowClient
from rich.console import Console

from stemrepro.common.code_hash import _read
from stemrepro.common.errors import UserError
from stemrepro.common.files import atomic_write, digest, sha256, write_json
from stemrepro.config.arm import Arm
from stemrepro.model.ffn.loading import ffn_class
from stemrepro.sweeps import search, trials
from stemrepro.sweeps.best import best_settings
from stemrepro.sweeps.figures import rate_figure
from stemrepro.sweeps.search import extended, run_sweep
from stemrepro.sweeps.spec import Range, Sweep, read_sweep
from stemrepro.sweeps.study import (
    Part,
    check_complete,
    kept,
    open_points,
    open_study,
    parts_of,
    progress_of,
    trial_table,
    work,
    work_all,
)
from stemrepro.sweeps.trials import run_of, settings_of
from stemrepro.tracking.server import tracking_uri
from stemrepro.training.run import run_code
from tests.conftest import ROOT, TINY

GRID = {
    "title": "t", "sampler": "grid", "extend": ["learning_rate"],
    "space": {"arm": ["dense", "stem-full"], "learning_rate": [0.01, 0.02], "table_rate_factor": [1.0, 2.0],
              "seed": [100, 101]},
}  # fmt: skip


@pytest.fixture
def project(sample, tiny, catalog, tmp_path, monkeypatch, empty_database):
    """A folder with recipes/, a scale `tiny`, its blocks and a database of MLflow; in it the book."""
    shutil.copytree(ROOT / "recipes", tmp_path / "recipes")
    (tmp_path / "recipes/scales/tiny.yaml").write_text(yaml.safe_dump(TINY))
    (tmp_path / "data/tiny").mkdir(parents=True)
    (tmp_path / "data/tiny/blocks").symlink_to(sample / "blocks")
    monkeypatch.chdir(tmp_path)
    shutil.copy(empty_database, tmp_path / "mlflow.db")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    return catalog.model_copy(update={"scales": {"tiny": tiny}})


def sweep_file(project_path, value, name="sweep"):
    path = project_path / f"{name}.yaml"
    path.write_text(yaml.safe_dump(value))
    return path


def fake_loss(arm, rate, factor, seed):
    """Best at 0.04 for dense, at 0.02 and factor 2 for STEM."""
    best = 0.04 if arm == "dense" else 0.02
    return 10 * abs(rate - best) + (0.001 if arm == "dense" or factor == 2.0 else 0.002) + seed / 1e6


def fake_objective(trial, space, **_):
    values = trials.suggested(trial, space)
    if values["arm"] == "dense":
        values["table_rate_factor"] = 1.0
    trial.set_user_attr("settings", values)
    return fake_loss(values["arm"], values["learning_rate"], values["table_rate_factor"], values["seed"])


@pytest.mark.slow
def test_a_grid_visits_every_point_and_grows_until_no_arm_is_at_its_edge(project, tmp_path, monkeypatch):
    monkeypatch.setattr(search, "objective", fake_objective)
    file = sweep_file(tmp_path, GRID)
    run_sweep(file, project, "tiny", tmp_path / "data/tiny/blocks", tmp_path / "results", 1, 0, Console(quiet=True))
    folder = tmp_path / "results/tiny/sweeps/sweep"
    table = pd.read_csv(folder / "data.csv")
    assert sorted(table["learning_rate"].unique()) == [0.01, 0.02, 0.04, 0.08]
    assert len(table) == 4 * (1 + 2) * 2  # rates x (dense + STEM's two factors) x seeds
    best = pd.read_csv(folder / "best.csv").set_index("arm")
    assert best.loc["dense", "learning_rate"] == 0.04
    assert list(best.loc["stem-full", ["learning_rate", "table_rate_factor"]]) == [0.02, 2.0]
    assert (folder / "figure.svg").stat().st_size > 10_000
    runs = MlflowClient(tracking_uri()).search_runs(["1"])
    parents = [run for run in runs if "mlflow.parentRunId" not in run.data.tags]
    assert len(runs) == 25
    assert [run.info.run_name for run in parents] == ["sweep sweep"]
    again = pd.read_csv(folder / "data.csv")
    run_sweep(file, project, "tiny", tmp_path / "data/tiny/blocks", tmp_path / "results", 1, 0, Console(quiet=True))
    assert pd.read_csv(folder / "data.csv").equals(again)
    drawn = {path.name: path.read_bytes() for path in folder.iterdir()}
    for name in ("figure.svg", "importances.csv", "best.csv"):
        (folder / name).unlink()
    search.redraw(file, project, "tiny", tmp_path / "results")
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == drawn


OWN = """
from torch import Tensor

from stemrepro.model.ffn.stem import Stem


class Rows(Stem):
    def forward(self, x: Tensor, tokens: Tensor) -> Tensor:
        return super().forward(x, tokens)
"""


def swept(value, catalog, call=fake_objective):
    """What is said of other results, what is listed, and how many trials of each arm there are in the studies."""
    sweep, data, out = Sweep.model_validate(value), Path("data/tiny/blocks"), Path("sweeps")
    parts = parts_of(
        "s", sweep, sweep.space, partial(trials.identity, catalog=catalog, scale="tiny", data=data, out=out)
    )
    work_all(parts, sweep, partial(call, sweep=sweep, catalog=catalog, scale="tiny", data=data, out=out), out)
    studies = [(part, open_study(part.name, sweep, out)) for part in parts]
    arms = Counter(trial.user_attrs["settings"]["arm"] for _, study in studies for trial in study.get_trials())
    return kept(out, studies), pd.concat([trial_table(study, part) for part, study in studies]), arms


def with_tokens(catalog, share):
    """The book with a scale of other budget."""
    scale = catalog.scales["tiny"]
    training = scale.training.model_copy(update={"tokens": int(share * scale.training.tokens)})
    return catalog.model_copy(update={"scales": {"tiny": scale.model_copy(update={"training": training})}})


@pytest.mark.slow
def test_results_of_other_code_text_or_budget_are_not_shown_as_todays(project, tmp_path):
    """They stay in the study, and only what changed is trained."""
    network, blocks, text = Path("my/searched.py"), tmp_path / "data/tiny/blocks", tmp_path / "other"
    atomic_write(network, OWN)
    arms = project.arms | {"mine": Arm(ffn="my/searched.py:Rows", placement="full")}
    catalog = project.model_copy(update={"arms": arms})
    space = {"arm": ["dense", "mine"], "learning_rate": [0.01], "seed": [100]}
    value = {"title": "t", "sampler": "grid", "space": space}
    words, first, _ = swept(value, catalog, trials.objective)
    assert words == ""
    network.write_text(OWN.replace("super()", "0 * super()"))
    for known in (run_code, _read, ffn_class):  # as in another process
        known.cache_clear()
    words, other, trained = swept(value, catalog, trials.objective)
    assert words.startswith("1 results in sweeps/study.db are of other code, text, settings or points")
    assert (other["prose"] == first["prose"]).tolist() == [True, False]
    assert trained == {"dense": 1, "mine": 2}
    _, half, trained = swept(value, with_tokens(catalog, 0.5), trials.objective)
    assert len(half) == 2
    assert not set(half["prose"]) & set(other["prose"])
    assert trained == {"dense": 2, "mine": 3}
    shutil.copytree(blocks, text)
    np.fromfile(text / "tune.bin", np.uint16)[::-1].tofile(text / "tune.bin")
    index = json.loads((text / "index.json").read_text())
    index["splits"]["tune"]["sha256"] = sha256(text / "tune.bin")
    write_json(text / "index.json", index)
    blocks.unlink()
    blocks.symlink_to(text)
    assert swept(value, with_tokens(catalog, 0.5), trials.objective)[2] == {"dense": 3, "mine": 4}


@pytest.mark.slow
def test_a_finished_grid_grows_by_an_arm_and_a_choice_and_shrinks(project):
    """What is done stays done, and what is no longer asked for is not listed."""
    space = GRID["space"] | {"arm": ["dense"], "table_init": ["xavier"], "seed": [100]}
    value = GRID | {"extend": [], "space": space}
    assert swept(value, project)[2] == {"dense": 2}
    more = space | {"arm": ["stem-full", "dense"], "table_init": ["normal", "xavier"], "seed": [101, 100]}
    _, table, done = swept(value | {"space": more}, project)
    assert done == {"dense": 2 * 2, "stem-full": 2 * 2 * 2 * 2}
    assert set(table["table_init"]) == {"normal", "xavier"}
    words, table, again = swept(value, project)
    assert (again, set(table["arm"])) == (done, {"dense"})
    assert words.startswith("18 results")


@pytest.mark.slow
def test_an_open_search_of_another_space_begins_anew(project):
    space = {"arm": ["dense", "stem-full"], "learning_rate": {"low": 0.01, "high": 0.04},
             "table_rate_factor": [1.0, 2.0], "placement": ["third", "half"], "seed": [100]}  # fmt: skip
    value = {"title": "t", "sampler": "tpe", "trials": 2, "space": space}
    assert swept(value, project)[2] == {"dense": 2, "stem-full": 2}
    for others, more in (
        (4, {"learning_rate": {"low": 0.01, "high": 0.04, "log": True}}),
        (8, {"placement": ["third", "half", "full"]}),
        (10, {"arm": ["dense"]}),  # its first study goes on
    ):
        words, table, _ = swept(value | {"space": space | more}, project)
        assert words.startswith(f"{others} results")
        assert set(table["arm"].value_counts()) == {2}


def test_what_a_grid_has_grown_to_is_its_own(tmp_path):
    """Neither an edited file's nor another of its name: both have one folder."""
    sweep, other = Sweep.model_validate(GRID), Sweep.model_validate(GRID | {"space": GRID["space"] | {"seed": [1]}})
    write_json(tmp_path / "grown.json", {"grid": search.grid_of(sweep), "values": {"learning_rate": [0.005, 0.01]}})
    assert search.grown_space(sweep, tmp_path / "grown.json")["learning_rate"] == (0.005, 0.01)
    assert search.grown_space(other, tmp_path / "grown.json") == other.space
    assert search.grown_space(sweep, tmp_path / "none.json") == sweep.space


def test_what_was_never_run_cannot_be_redrawn(project, tmp_path):
    with pytest.raises(UserError, match=r"tiny/sweeps/sweep/data\.csv is missing or damaged"):
        search.redraw(sweep_file(tmp_path, GRID), project, "tiny", tmp_path / "results")


def test_extension_is_by_the_grids_own_factor_on_the_side_that_needs_it():
    rows = [{"arm": arm, "learning_rate": rate, "seed": 0, "prose": 100 * abs(rate - best), "state": "complete"}
            for arm, best in (("a", 0.01), ("b", 0.02)) for rate in (0.01, 0.02, 0.04)]  # fmt: skip
    assert extended(pd.DataFrame(rows), ("learning_rate",)) == {"learning_rate": [0.005, 0.01, 0.02, 0.04]}
    assert extended(pd.DataFrame(rows[3:]), ("learning_rate",)) == {}


def test_extension_in_two_keys_leaves_out_arms_that_know_only_one_value():
    keys = ("learning_rate", "table_rate_factor")
    rows = [
        {"arm": "dense", "learning_rate": rate, "table_rate_factor": 1.0, "prose": abs(rate - 2)} for rate in (1, 2, 4)
    ]
    rows += [{"arm": "stem", "learning_rate": rate, "table_rate_factor": factor,
              "prose": abs(rate - 2) + abs(factor - 2)}
             for rate in (1, 2, 4) for factor in (1.0, 2.0)]  # fmt: skip
    table = pd.DataFrame([row | {"seed": 0, "state": "complete"} for row in rows])
    assert extended(table, keys) == {"learning_rate": [1, 2, 4], "table_rate_factor": [1, 2, 4]}  # dense's 1 is no edge
    more = table[table.arm == "stem"].assign(table_rate_factor=4.0, prose=table.prose + 1)
    assert extended(pd.concat([table, more]), keys) == {}
    table.loc[table.table_rate_factor == 2, "prose"] += 0.995
    assert extended(table, keys) == {}  # 0.005 better than the next is a seed's noise
    table.loc[table.learning_rate == 4, "prose"] -= 10
    assert extended(table, keys) == {"learning_rate": [1, 2, 4, 8], "table_rate_factor": [1, 2]}  # rates first


def test_a_trial_is_a_run_scored_on_the_tune_split(project, tmp_path):
    from stemrepro.data.blocks import TokenBlocks
    from stemrepro.evaluation.weights import load_run
    from stemrepro.training.callbacks import losses_by_read

    space = {"arm": ("stem-full",), "learning_rate": (0.01,), "table_rate_factor": (2.0,), "seed": (100,)}
    sweep = Sweep(title="t", sampler="grid", space=space)
    data, out = tmp_path / "data/tiny/blocks", tmp_path / "sweeps"
    call = partial(trials.objective, sweep=sweep, space=space, catalog=project, scale="tiny", data=data, out=out)
    (part,) = parts_of("s", sweep, space, digest)
    work(part, sweep, call, out)
    study = open_study("s", sweep, out)
    values = {"arm": "stem-full", "learning_rate": 0.01, "table_rate_factor": 2.0, "seed": 100}
    run = run_of(values, project, "tiny", data, out)
    assert run.training.table_rate_factor == 2.0
    losses = losses_by_read(load_run(run), TokenBlocks(data, "tune", 32, 300), 512, 4)
    prose = [losses[source] for source in ("speeches", "bible") if source in losses]
    (row,) = trial_table(study, part).to_dict("records")
    assert row["prose"] == pytest.approx(sum(prose) / len(prose))
    assert {key: row[key] for key in values} == values
    work(part, sweep, call, out)  # nothing is left to do
    assert len(study.get_trials()) == 1


def test_arms_without_tables_have_one_run_for_all_table_fields(project, tmp_path):
    data = tmp_path / "data/tiny/blocks"
    values = {"arm": "dense", "learning_rate": 0.01, "seed": 1}
    folders = {run_of(values | {"table_rate_factor": f}, project, "tiny", data, tmp_path).folder for f in (1.0, 2.0)}
    assert len(folders) == 1
    values["arm"] = "value-embeddings"  # no FFN table, but one in its attention
    folders = {run_of(values | {"table_rate_factor": f}, project, "tiny", data, tmp_path).folder for f in (1.0, 2.0)}
    assert len(folders) == 2


@pytest.mark.slow
def test_an_open_search_stops_what_falls_behind_and_draws_what_mattered(project, tmp_path):
    space = {"arm": ["stem-full"], "learning_rate": {"low": 1e-4, "high": 0.03, "log": True},
             "table_init": ["xavier", "normal"], "seed": [100]}  # fmt: skip
    file = sweep_file(tmp_path, {"title": "t", "sampler": "tpe", "trials": 9, "space": space}, "open")
    run_sweep(file, project, "tiny", tmp_path / "data/tiny/blocks", tmp_path / "results", 1, 0, Console(quiet=True))
    folder = tmp_path / "results/tiny/sweeps/open"
    states = pd.read_csv(folder / "data.csv")["state"].value_counts()
    assert states.sum() == 9
    assert states["pruned"] > 0
    assert states["complete"] > 3
    assert {"importances.svg", "parallel.svg"} <= {path.name for path in folder.iterdir()}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"sampler": "random"}, r"sampler: .*'grid' or 'tpe' \(got 'random'\)"),
        ({"trials": 3}, "a grid has as many as its points"),
        ({"sampler": "tpe"}, "needs `trials`"),
        ({"space": GRID["space"] | {"colour": ["red"]}}, "space has no 'colour'"),
        ({"space": {"arm": ["dense"], "seed": [1]}, "extend": []}, "space lacks 'learning_rate'"),
        ({"space": GRID["space"] | {"learning_rate": {"low": 1, "high": 2}}}, "a grid needs lists"),
        ({"space": GRID["space"] | {"learning_rate": {"low": 2, "high": 1}}}, "2 to 1 is no range"),
        ({"space": GRID["space"] | {"learning_rate": {"low": 0, "high": 1, "log": True}}}, "none with a logarithm"),
        ({"space": GRID["space"] | {"learning_rate": [-1]}}, "learning_rate must be above 0"),
        ({"space": GRID["space"] | {"seed": [-1]}}, "seed must be a list of whole numbers from 0 on"),
        ({"space": GRID["space"] | {"arm": []}}, "arm must be a list of arms"),
        ({"extend": ["table_init"]}, "must be a key of a grid's space"),
    ],
)
def test_mistakes_are_named(tmp_path, change, words):
    with pytest.raises(UserError, match=words):
        read_sweep(sweep_file(tmp_path, GRID | change))


def test_an_unknown_arm_is_named_before_anything_runs(project, tmp_path):
    file = sweep_file(tmp_path, GRID | {"space": GRID["space"] | {"arm": ["dens"]}})
    with pytest.raises(UserError, match="arm 'dens' is unknown"):
        run_sweep(file, project, "tiny", tmp_path / "data/tiny/blocks", tmp_path / "results", 1, 0, Console(quiet=True))


def test_the_shipped_sweeps_are_valid(catalog):
    for path in (ROOT / "recipes/sweeps").glob("*.yaml"):
        sweep = read_sweep(path)
        assert set(sweep.space["arm"]) <= set(catalog.arms)
        used = {seed for scale in catalog.scales.values() for seed in scale.seeds}
        assert not used & set(sweep.space["seed"])
    assert isinstance(read_sweep(ROOT / "recipes/sweeps/tables.yaml").space["learning_rate"], Range)


def test_the_laptops_start_and_best_rates_are_the_studys_winners(catalog):
    """The common start of all arms is dense's best."""
    studies = (pd.read_csv(ROOT / f"results/start/sweeps/{study}/best.csv") for study in ("start", "equal_size"))
    best = pd.concat(studies).set_index("arm").drop(columns=["prose", "at_edge"], errors="ignore")
    laptop = catalog.scales["laptop"]
    assert laptop.tuned.keys() == set(best.index)
    for arm, own in laptop.tuned.items():
        assert own.model_dump(exclude_none=True) == best.loc[arm].to_dict()
    common = laptop.model.model_dump() | laptop.training.model_dump() | {"learning_rate": laptop.learning_rate}
    dense = best.loc["dense"].drop("table_rate_factor")
    assert {key: common[key] for key in dense.index} == dense.to_dict()


def test_the_leaderboards_rates_are_the_studys_winners(catalog):
    best = pd.read_csv(ROOT / "results/leaderboard/sweeps/leaderboard/best.csv").set_index("arm")
    tuned = catalog.scales["leaderboard"].tuned
    families = {catalog.arms[arm].family or arm for arm in catalog.recipes["leaderboard"].arms}
    assert set(tuned) == set(best.index) >= families
    for arm, own in tuned.items():
        fields = ("learning_rate", "table_rate_factor", "table_decay_factor", "table_init")
        assert {name: getattr(own, name) for name in fields} == best.loc[arm, list(fields)].to_dict()


@pytest.mark.slow
def test_a_point_that_failed_is_tried_again_and_missing_ones_give_no_results(project, tmp_path, monkeypatch, capsys):
    """Optuna's own grid counts a failed trial as visited, and would end without it, exit code 0."""
    broken = True

    def breaks(trial, space, **rest):
        if broken and trials.suggested(trial, space)["seed"] == 101:
            raise UserError("no room left on the disk")
        return fake_objective(trial, space, **rest)

    monkeypatch.setattr(search, "objective", breaks)
    file = sweep_file(tmp_path, GRID | {"extend": []})
    asked = (file, project, "tiny", tmp_path / "data/tiny/blocks", tmp_path / "results", 1, 0, Console(quiet=True))
    with pytest.raises(
        UserError, match=r"6 of the grid's 12 points have no result .*seed 101.* start 'stemrepro sweep'"
    ):
        run_sweep(*asked)
    assert "no room left on the disk" in capsys.readouterr().err
    assert not (tmp_path / "results").exists()
    broken = False
    run_sweep(*asked)
    table = pd.read_csv(tmp_path / "results/tiny/sweeps/sweep/data.csv")
    assert len(table) == 12  # dense knows one table factor
    assert set(table["seed"]) == {100, 101}


def test_workers_take_each_point_once(project, tmp_path):
    """A point that another has is left to it; whoever is done waits for that, and leaves it where it has a result."""
    sweep = Sweep.model_validate(GRID | {"extend": []})
    out, done, (part,) = tmp_path / "sweeps", [], parts_of("s", sweep, sweep.space, digest)

    def second(trial, **_):
        done.append("second")
        return 1.0

    other = Thread(target=work, args=(part, sweep, second, out))

    def first(trial, **_):
        if not other.is_alive():
            other.start()
        while done.count("second") < 15:
            time.sleep(0.01)
        assert other.is_alive()  # it waits
        return 1.0

    work(part, sweep, first, out)
    other.join()
    study = open_study("s", sweep, out)
    assert done.count("second") == 15
    assert len(study.get_trials()) == 16
    assert open_points(study, part.points) == {}
    check_complete(part, sweep, study)


HOLDS = """
import sys, time
from pathlib import Path
from stemrepro.common.files import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.mark.slow
def test_a_point_is_taken_over_when_its_worker_is_killed(project, tmp_path):
    sweep = Sweep.model_validate(GRID | {"extend": []})
    out, (part,) = tmp_path / "sweeps", parts_of("s", sweep, sweep.space, digest)
    run, point = list(part.points.items())[3]
    held = str(out / "points" / run)
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    victim = subprocess.Popen([sys.executable, "-c", HOLDS, held], env=environment, stdout=subprocess.PIPE, text=True)
    assert victim.stdout.readline() == "held\n"
    taken = []

    def call(trial, **_):
        taken.append(trial.user_attrs["point"])
        if len(taken) == 15:
            assert point not in taken
            Timer(0.5, victim.kill).start()
        return 1.0

    work(part, sweep, call, out)
    victim.wait()
    assert taken[-1] == point
    assert len(taken) == 16


def test_a_worker_that_fails_leaves_its_work_to_the_first():
    done = []
    failing = ["sweep", "nowhere.yaml"]
    assert search.work_together(failing, 3, lambda: done.append("all")) == 2
    assert done == ["all"]


OPEN = {"title": "t", "sampler": "tpe", "trials": 3,
        "space": {"arm": ["dense"], "learning_rate": {"low": 0.01, "high": 0.02}, "seed": [100]}}  # fmt: skip


@pytest.mark.slow
def test_an_open_search_takes_over_what_a_worker_had_that_died_before_its_first_sign_of_life(tmp_path, monkeypatch):
    monkeypatch.setattr("stemrepro.sweeps.study.HEARTBEAT", 1)
    sweep = Sweep.model_validate(OPEN)
    open_study("s", sweep, tmp_path).ask()
    work(Part("s", sweep.space), sweep, lambda trial, space: 1.0, tmp_path)
    assert progress_of([(Part("s", sweep.space), open_study("s", sweep, tmp_path))], sweep) == (3, 3)


@pytest.mark.slow
def test_an_open_search_takes_over_what_a_suspended_worker_had(project, tmp_path, monkeypatch):
    """Its trial is put back with its settings when it has given no sign of life for long enough.

    It continues later.
    """
    monkeypatch.setattr("stemrepro.sweeps.study.HEARTBEAT", 1)
    sweep = Sweep.model_validate(OPEN)
    victim = subprocess.Popen(
        [sys.executable, "-c", WAITS, json.dumps(sweep.model_dump(mode="json")), str(tmp_path)],
        env=os.environ | {"PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    rate = float(victim.stdout.readline())
    victim.send_signal(signal.SIGSTOP)
    rates = []

    def call(trial, space):
        rates.append(trials.suggested(trial, space)["learning_rate"])
        return rates[-1]

    part = Part("s", sweep.space)
    work(part, sweep, call, tmp_path)
    assert len(rates) == 3
    assert rate in rates
    assert progress_of([(part, open_study("s", sweep, tmp_path))], sweep) == (3, 3)
    (tmp_path / "go").touch()
    victim.send_signal(signal.SIGCONT)
    assert victim.wait() == 0


WAITS = """
import json, sys, time
from pathlib import Path
from stemrepro.sweeps import study, trials
from stemrepro.sweeps.spec import Sweep
study.HEARTBEAT = 1
def call(trial, space):
    rate = trials.suggested(trial, space)["learning_rate"]
    print(rate, flush=True)
    while not Path(sys.argv[2], "go").exists():
        time.sleep(0.1)
    return rate
sweep = Sweep.model_validate(json.loads(sys.argv[1]))
study.work(study.Part("s", sweep.space), sweep, call, Path(sys.argv[2]))
"""


def test_progress_is_never_above_its_total(project, tmp_path):
    """Two workers may each begin a last trial; and a point may have two results."""
    sweep = Sweep.model_validate(OPEN)
    studies = [(Part("open", sweep.space), open_study("open", sweep, tmp_path))]
    studies[0][1].optimize(lambda trial: 1.0, n_trials=2)
    assert progress_of(studies, sweep) == (2, 3)
    studies[0][1].optimize(lambda trial: 1.0, n_trials=2)
    assert progress_of(studies, sweep) == (3, 3)
    sweep = Sweep.model_validate(GRID | {"extend": []})
    (part,) = parts_of("grid", sweep, sweep.space, digest)
    study, runs = open_study("grid", sweep, tmp_path), list(part.points)
    for run in [*runs, runs[0], "of other code"]:
        assert progress_of([(part, study)], sweep)[0] < 17
        trial = study.ask()
        trial.set_user_attr("run", run)
        study.tell(trial, 1.0)
    assert progress_of([(part, study)], sweep) == (16, 16)


def test_an_open_search_that_lacks_trials_gives_no_results(project, tmp_path):
    sweep = Sweep.model_validate(OPEN)
    study = open_study("s", sweep, tmp_path)
    study.optimize(lambda trial: 1.0, n_trials=2)
    with pytest.raises(UserError, match="2 of 3 trials have a result"):
        check_complete(Part("s", sweep.space), sweep, study)


def test_one_seed_that_diverged_is_enough_and_an_arm_without_a_best_has_no_panel():
    """0.02 is better on one seed and lost the other."""
    rows = [("dense", 0.01, 0, 4.1), ("dense", 0.01, 1, 4.0), ("dense", 0.02, 0, 3.9), ("dense", 0.02, 1, float("inf")),
            ("blend", 0.01, 0, float("inf")), ("blend", 0.02, 0, float("inf"))]  # fmt: skip
    table = pd.DataFrame(rows, columns=["arm", "learning_rate", "seed", "prose"])
    table["state"] = ["complete" if loss < 9 else "diverged" for loss in table["prose"]]
    best = best_settings(table)
    assert best[["arm", "learning_rate"]].to_numpy().tolist() == [["dense", 0.01]]
    assert best["prose"].item() == pytest.approx(4.05)
    assert not extended(table[table["arm"] == "blend"], ("learning_rate",))
    assert sum(axes.get_visible() for axes in rate_figure(table, []).axes) == 1


@pytest.mark.slow
def test_a_setting_that_diverged_is_never_the_best(project, tmp_path, monkeypatch):
    def diverges(trial, space, **rest):
        loss = fake_objective(trial, space, **rest)
        return float("inf") if trial.user_attrs["settings"]["learning_rate"] > 0.015 else loss

    monkeypatch.setattr(search, "objective", diverges)
    file = sweep_file(tmp_path, GRID | {"extend": []})
    run_sweep(file, project, "tiny", tmp_path / "data/tiny/blocks", tmp_path / "results", 1, 0, Console(quiet=True))
    folder = tmp_path / "results/tiny/sweeps/sweep"
    assert set(pd.read_csv(folder / "best.csv")["learning_rate"]) == {0.01}
    assert pd.read_csv(folder / "data.csv")["state"].value_counts().to_dict() == {"complete": 3 * 2, "diverged": 3 * 2}


@pytest.mark.slow
def test_every_arm_of_an_open_search_has_a_study_of_its_own_that_begins_with_the_grid(project, tmp_path):
    """As many trials each, the first ones the grid with all else at the scale's values.

    An arm without tables has no table rate.
    """
    space = {"arm": ["dense", "stem-full"], "learning_rate": {"low": 0.001, "high": 0.1, "log": True},
             "embedding_std": {"low": 0.1, "high": 2.0, "log": True}, "warmup": {"low": 0.05, "high": 0.5},
             "table_rate_factor": {"low": 0.5, "high": 4.0}, "seed": [100]}  # fmt: skip
    first = {"learning_rate": [0.01, 0.02], "embedding_std": [0.25, 1.0]}
    value = {"title": "t", "sampler": "tpe", "trials": 5, "first": first, "space": space}
    file = sweep_file(tmp_path, value, "open")
    run_sweep(file, project, "tiny", tmp_path / "data/tiny/blocks", tmp_path / "results", 1, 0, Console(quiet=True))
    out = "sqlite:///sweeps/tiny/open/study.db"
    names = sorted(optuna.get_all_study_names(out))
    for arm, name in zip(("dense", "stem-full"), names, strict=True):
        assert name.startswith(f"open@{arm}-")
        trials_of = optuna.load_study(study_name=name, storage=out).get_trials()
        begun = [trial.params for trial in trials_of[:4]]
        assert sorted((own["learning_rate"], own["embedding_std"]) for own in begun) == [
            (rate, std) for rate in (0.01, 0.02) for std in (0.25, 1.0)
        ]
        assert {own["warmup"] for own in begun} == {0.25}
        assert {own.get("table_rate_factor") for own in begun} == ({None} if arm == "dense" else {1.0})
        assert len(trials_of) == 5
    table = pd.read_csv(tmp_path / "results/tiny/sweeps/open/data.csv")
    assert table["arm"].value_counts().to_dict() == {"dense": 5, "stem-full": 5}
    names = {path.name for path in (tmp_path / "results/tiny/sweeps/open").glob("*.svg")}
    assert names == {"figure.svg", "importances.svg", "parallel.svg"}
    shares = pd.read_csv(tmp_path / "results/tiny/sweeps/open/importances.csv")
    assert shares.groupby("arm")["field"].apply(set).to_dict() == {
        "dense": {"learning_rate", "embedding_std", "warmup"},
        "stem-full": {"learning_rate", "embedding_std", "warmup", "table_rate_factor"},
    }


def test_fields_of_the_scale_reach_the_run_and_name_its_folder(project, tmp_path):
    data = tmp_path / "data/tiny/blocks"
    plain = {"arm": "dense", "learning_rate": 0.01, "seed": 100}
    own = {
        "embedding_std": 0.7,
        "head_std": 0.03,
        "embedding_rate_factor": 2.0,
        "embedding_decay_factor": 0.0,
        "warmup": 0.5,
    }
    run, other = (run_of(values, project, "tiny", data, tmp_path) for values in (plain | own, plain))
    assert (run.model.embedding_std, run.model.head_std) == (0.7, 0.03)
    assert (run.training.embedding_rate_factor, run.training.embedding_decay_factor, run.training.warmup) == (
        2.0,
        0.0,
        0.5,
    )
    assert run.folder != other.folder
    asked = settings_of(other, plain | dict.fromkeys(own))
    assert (asked["embedding_std"], asked["warmup"]) == (
        0.25,
        0.25,
    )  # the official start at width 16, and the scale's own


def test_a_sweep_at_a_point_has_the_points_runs(project, tmp_path):
    data, values = tmp_path / "data/tiny/blocks", {"arm": "dense", "learning_rate": 0.01, "seed": 100}
    run, whole = (run_of(values, project, "tiny", data, tmp_path, at) for at in ("half", "main"))
    assert run.training.tokens * 2 == whole.training.tokens
    assert run_of(values, project, "tiny", data, tmp_path, "rate-64").training.learning_rate == 0.01
    assert run.folder != whole.folder
    with pytest.raises(UserError, match="'hafl' is unknown; did you mean 'half'"):
        run_of(values, project, "tiny", data, tmp_path, "hafl")
