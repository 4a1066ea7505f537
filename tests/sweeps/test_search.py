"""Sweeps: what is queued, run, kept, tried again and taken over, on real studies, with real runs and processes."""

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from contextlib import closing
from pathlib import Path
from threading import Thread

import optuna
import pandas as pd
import pytest
import yaml
from rich.console import Console
from sqlalchemy import event

from stemrepro.common.code_hash import _read
from stemrepro.common.errors import UserError
from stemrepro.common.files import atomic_write, sha256, write_json
from stemrepro.common.yaml_records import dumped, parse
from stemrepro.config.arm import Arm
from stemrepro.model.ffn.base import ffn_class
from stemrepro.sweeps import search
from stemrepro.sweeps.search import open_studies, run_sweep
from stemrepro.sweeps.trials import ARM_FIELDS, Range, Sweep, counting, read_sweep, run_of, space_of
from stemrepro.training.run import run_code
from tests.conftest import ROOT, TINY


def sweep_of(sampler, space, **more):
    return {"title": "t", "sampler": sampler, "space": yaml.safe_load(space)} | more


GRID = sweep_of(
    "grid", "{arm: [dense, stem-full], learning_rate: [0.01, 0.02], table_rate_factor: [1.0, 2.0], seed: [100, 101]}"
)
POINTS = 2 * 2 + 2 * 2 * 2  # dense has no tables, and so no factor of them
DATA, OUT = Path("data/tiny/blocks"), Path("sweeps/tiny/sweep")


@pytest.fixture
def project(sample, tiny, catalog, tmp_path, monkeypatch):
    """A folder with recipes/, a scale `tiny` and its blocks; in it the catalog."""
    shutil.copytree(ROOT / "recipes", tmp_path / "recipes")
    (tmp_path / "recipes/scales/tiny.yaml").write_text(yaml.safe_dump(TINY))
    (tmp_path / "data/tiny").mkdir(parents=True)
    (tmp_path / "data/tiny/blocks").symlink_to(sample / "blocks")
    monkeypatch.chdir(tmp_path)
    return catalog.model_copy(update={"scales": {"tiny": tiny}})


def swept(value, catalog, number=1, console=None):
    """Run a sweep; return its data.csv."""
    Path("sweep.yaml").write_text(yaml.safe_dump(value))
    run_sweep(Path("sweep.yaml"), catalog, "tiny", DATA, Path("results"), number, 0, console or Console(quiet=True))
    return pd.read_csv("results/tiny/sweeps/sweep/data.csv")


def every_trial():
    """Each trial in the sweep's database."""
    storage = f"sqlite:///{OUT}/study.db"
    names = optuna.get_all_study_names(storage)
    return [trial for name in names for trial in optuna.load_study(study_name=name, storage=storage).trials]


def fake_objective(trial, values, sweep, **_):
    """Best at 0.02 and factor 2, without a training."""
    settings = {key: values.get(key, ARM_FIELDS.get(key)) for key in sweep.space}
    trial.set_user_attr("settings", settings)
    table = 1 / values.get("table_rate_factor", 1.0)
    return 10 * abs(settings["learning_rate"] - 0.02) + table + settings["seed"] / 1e6


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(search, "objective", fake_objective)


@pytest.mark.slow
def test_a_grid_runs_every_point_once_and_grows_by_what_is_new(project, quick):
    table = swept(GRID, project)
    assert len(table) == len(every_trial()) == POINTS
    best = pd.read_csv("results/tiny/sweeps/sweep/best.csv").set_index("arm")
    assert best.loc["stem-full", ["learning_rate", "table_rate_factor"]].tolist() == [0.02, 2.0]
    assert Path("results/tiny/sweeps/sweep/figure.svg").stat().st_size > 5_000
    assert swept(GRID, project).equals(table)
    assert len(every_trial()) == POINTS
    more = {"arm": ["blend", "stem-full", "dense"], "learning_rate": [0.04, 0.02, 0.01]}
    grown = swept(GRID | {"space": GRID["space"] | more}, project)
    assert len(grown) == len(every_trial()) == 3 * 2 * (2 + 1 + 2)
    assert set(grown["arm"]) == {"dense", "stem-full", "blend"}
    assert swept(GRID, project).equals(table)  # what is no longer asked for isn't listed
    assert len(every_trial()) == len(grown)


LISTS = yaml.safe_load("""
{arm: [stem-full], learning_rate: [0.004, 0.008], table_rate_factor: {low: 0.5, high: 2.0, log: true},
 table_decay_factor: [0.5, 1], warmup: [0.125, 0.25], table_init: [xavier, small], placement: [third, full],
 seed: [100, 1000]}
""")


@pytest.mark.slow
@pytest.mark.parametrize("sampler", ["grid", "tpe"])
def test_every_value_that_ran_is_one_that_was_asked_for(project, sampler):
    """In the trials, in the table, and in the settings that the runs were trained with."""
    space, asked = LISTS, {"title": "t", "sampler": sampler}
    if sampler == "grid":
        space = LISTS | {"table_rate_factor": [0.5], "table_init": ["small"], "warmup": [0.25], "seed": [1000]}
    else:
        asked |= {"trials": 6}
    table = swept(asked | {"space": space}, project)
    assert len(table) == (2 * 2 * 2 if sampler == "grid" else 6)
    configs = [yaml.safe_load(path.read_text()) for path in OUT.glob("runs/*/config.yaml")]
    assert len(configs) == len(table)
    for key, values in space.items():
        for value in table[key]:
            assert values["low"] <= value <= values["high"] if isinstance(values, dict) else value in values
        if key == "placement":
            ran = [{1: "third", 3: "full"}[len(config["model"]["replaced_layers"])] for config in configs]
        else:
            ran = [(config | config["training"] | config["model"])[key] for config in configs]
        drawn = sorted(trial.params.get(key, "stem-full") for trial in every_trial())
        assert drawn == sorted(ran)


OWN = """
from torch import Tensor

from stemrepro.model.ffn.stem import Stem


class Rows(Stem):
    def forward(self, x: Tensor, tokens: Tensor) -> Tensor:
        return super().forward(x, tokens)
"""


@pytest.mark.slow
def test_results_of_other_code_do_not_count(project):
    """They stay in the database, and only what changed is trained."""
    network = Path("my/searched.py")
    atomic_write(network, OWN)
    arms = project.arms | {"mine": Arm(ffn="my/searched.py:Rows", placement="full")}
    catalog = project.model_copy(update={"arms": arms})
    value = sweep_of("grid", "{arm: [dense, mine], learning_rate: [0.01], seed: [100]}")
    first = swept(value, catalog)
    network.write_text(OWN.replace("super()", "0 * super()"))
    for known in (run_code, _read, ffn_class):  # as in another process
        known.cache_clear()
    assert (swept(value, catalog)["prose"] == first["prose"]).tolist() == [True, False]
    assert Counter(trial.user_attrs["settings"]["arm"] for trial in every_trial()) == {"dense": 1, "mine": 2}


def test_another_budget_text_or_space_has_a_study_of_its_own(project):
    def studies(catalog=project, **changes):
        space = {"arm": ["dense", "stem-full"], "learning_rate": {"low": 0.01, "high": 0.04}, "seed": [100]}
        value = {"title": "t", "sampler": "tpe", "trials": 2, "space": space | {"placement": ["third"]} | changes}
        found = open_studies("sweep", parse(Sweep, value, Path()), catalog, "tiny", DATA, OUT)
        return {one.study.study_name for one in found}

    first, tiny = studies(), project.scales["tiny"]
    assert len(first) == 2
    assert studies(arm=["dense"]) < first
    assert not studies(learning_rate={"low": 0.01, "high": 0.04, "log": True}) & first
    assert len(studies(placement=["third", "half"]) & first) == 1  # dense has none
    longer = tiny.training.model_copy(update={"tokens": 2 * tiny.training.tokens})
    scale = tiny.model_copy(update={"training": longer})
    assert not studies(project.model_copy(update={"scales": {"tiny": scale}})) & first
    index = json.loads((DATA / "index.json").read_text())
    blocks, tune = DATA.resolve(), DATA / "tune.bin"
    DATA.unlink()
    shutil.copytree(blocks, DATA)
    tune.write_bytes(tune.read_bytes()[::-1])
    index["splits"]["tune"]["sha256"] = sha256(tune)
    write_json(DATA / "index.json", index)
    assert not studies() & first


@pytest.mark.slow
def test_a_trial_is_a_run_scored_on_the_tune_split(project):
    from stemrepro.data.blocks import TokenBlocks
    from stemrepro.evaluation.weights import load_run
    from stemrepro.training.validation import losses_by_source

    values = {"arm": "stem-full", "learning_rate": 0.01, "table_rate_factor": 2.0, "seed": 100}
    (row,) = swept(GRID | {"space": {key: [value] for key, value in values.items()}}, project).to_dict("records")
    run = run_of(values, project, "tiny", DATA, OUT)
    assert run.training.table_rate_factor == 2.0
    losses = losses_by_source(load_run(run), TokenBlocks(DATA, "tune", 32, 300), 512, 4)
    prose = [losses[source] for source in ("speeches", "bible") if source in losses]
    assert row["prose"] == pytest.approx(sum(prose) / len(prose), rel=1e-5)
    assert {key: row[key] for key in values} == values


def test_fields_of_the_scale_reach_the_run_and_name_its_folder(project):
    plain = {"arm": "dense", "learning_rate": 0.01, "seed": 100}
    own = {"embedding_std": 0.7, "head_std": 0.03, "embedding_rate_factor": 2.0}
    own |= {"embedding_decay_factor": 0.0, "warmup": 0.5}
    asked = ((plain | own, "main"), (plain, "main"), (plain, "half"))
    run, other, half = (run_of(values, project, "tiny", DATA, OUT, at) for values, at in asked)
    fields = run.model.settings | run.training.model_dump()
    assert {key: fields[key] for key in own} == own
    assert half.training.tokens * 2 == other.training.tokens
    assert run_of(plain, project, "tiny", DATA, OUT, "rate-64").training.learning_rate == 0.01
    assert len({run.folder, other.folder, half.folder}) == 3
    with pytest.raises(UserError, match="'hafl' is unknown; did you mean 'half'"):
        run_of(plain, project, "tiny", DATA, OUT, "hafl")


def test_a_variant_of_another_vocabulary_reads_the_text_in_it(project):
    """Its blocks and, for as many bytes, tokens; a grid there is another study where this text is another one."""
    twice = project.variant("half").model_copy(update={"vocab": 2.0, "tokens": 1.0})
    catalog = project.model_copy(update={"variants": project.variants | {"twice": twice}})
    blocks = DATA.parent / "vocabularies/600/blocks"
    values = {"arm": "dense", "learning_rate": 0.01, "seed": 100}
    with pytest.raises(UserError, match="vocabularies/600/blocks has no text yet"):
        run_of(values, catalog, "tiny", DATA, OUT, "twice")
    shutil.copytree(DATA, blocks)
    index = json.loads((blocks / "index.json").read_text())
    index["vocab"] = 600
    index["splits"]["train"]["tokens"] //= 2
    (blocks / "index.json").write_text(json.dumps(index))
    run, own = (run_of(values, catalog, "tiny", DATA, OUT, at) for at in ("twice", "main"))
    assert (run.blocks, run.model.vocab, own.blocks) == (blocks, 600, DATA)
    assert run.training.tokens == own.training.tokens // 2
    sweep = Sweep(**GRID | {"variant": "twice"})
    study = [counting("dense", sweep, sweep.space, catalog, "tiny", DATA)]
    tune = blocks / "tune.bin"
    tune.write_bytes(tune.read_bytes()[::-1])
    index["splits"]["tune"]["sha256"] = sha256(tune)
    (blocks / "index.json").write_text(json.dumps(index))
    assert counting("dense", sweep, sweep.space, catalog, "tiny", DATA) not in study


@pytest.mark.parametrize("at", ["mid", "people-sixth"])
def test_a_sweep_goes_on_from_no_run_and_reads_no_other_people(project, at):
    with pytest.raises(UserError, match=f"variant '{at}' resumes from another run, or reads other people"):
        run_of({"arm": "dense", "learning_rate": 0.01, "seed": 100}, project, "tiny", DATA, OUT, at)


def test_only_an_arm_with_tables_has_their_fields(project):
    fields = {"learning_rate", "table_rate_factor", "seed"}
    assert set(space_of("dense", GRID["space"], project, "tiny")) == fields - {"table_rate_factor"}
    for arm in ("stem-full", "value-embeddings"):  # this has no table in its FFN, but one in its attention
        assert set(space_of(arm, GRID["space"], project, "tiny")) == fields


@pytest.mark.slow
def test_a_search_stops_what_falls_behind(project):
    space = "{learning_rate: {low: 0.0001, high: 0.03, log: true}, table_init: [xavier, normal], seed: [100]}"
    value = sweep_of("tpe", space, trials=9)
    value["space"]["arm"] = ["stem-full"]
    states = swept(value, project)["state"].value_counts()
    assert states.sum() == 9
    assert states["pruned"] > 0
    assert states["complete"] > 3


@pytest.mark.slow
def test_each_arm_of_a_search_has_as_many_trials_and_begins_with_the_grid(project, quick):
    """All else is at the scale's values there. An arm without tables has no table rate."""
    space = """
    {arm: [dense, stem-full], learning_rate: {low: 0.001, high: 0.1, log: true}, seed: [100],
     embedding_std: {low: 0.1, high: 2.0, log: true}, warmup: {low: 0.05, high: 0.5},
     table_rate_factor: {low: 0.5, high: 4.0}}
    """
    first = {"learning_rate": [0.01, 0.02], "embedding_std": [0.25, 1.0]}
    table = swept(sweep_of("tpe", space, trials=5, first=first), project)
    assert table["arm"].value_counts().to_dict() == {"dense": 5, "stem-full": 5}
    for arm, factor in (("dense", None), ("stem-full", 1.0)):
        tried = [trial.params for trial in every_trial() if trial.user_attrs["settings"]["arm"] == arm]
        begun = tried[:4]
        grid = [(rate, std) for rate in first["learning_rate"] for std in first["embedding_std"]]
        assert sorted((own["learning_rate"], own["embedding_std"]) for own in begun) == grid
        assert {(own["warmup"], own.get("table_rate_factor")) for own in begun} == {(0.25, factor)}
        assert len({own["learning_rate"] for own in tried}) == 3


@pytest.mark.slow
def test_points_that_failed_are_tried_again_and_missing_ones_give_no_results(project, monkeypatch):
    broken = True

    def breaks(trial, values, **rest):
        if broken and values["seed"] == 101:
            raise UserError("no room left on the disk")
        return fake_objective(trial, values, **rest)

    monkeypatch.setattr(search, "objective", breaks)
    for _ in range(2):
        with pytest.raises(UserError, match=r"6 trials have no result \(no room left on the disk\); start the sweep"):
            swept(GRID, project)
    assert not Path("results").exists()
    broken = False
    assert len(swept(GRID, project)) == POINTS
    states = Counter(trial.state.name for trial in every_trial())
    assert states == {"COMPLETE": POINTS, "FAIL": 2 * 6}


WAITS = """
import sys, time
from pathlib import Path
from stemrepro.measures.catalog import load
from stemrepro.sweeps import search
search.HEARTBEAT = 1
def wait(trial, values):
    print(trial.number, flush=True)
    while not Path("go").exists():
        time.sleep(0.1)
    trial.set_user_attr("settings", values | {"by": "waiting"})
    return 1.0
sweep, data, out = search.read_sweep(Path("sweep.yaml")), Path("data/tiny/blocks"), Path("sweeps/tiny/sweep")
(one,) = search.open_studies("sweep", sweep, load(), "tiny", data, out, 1)
one.queue()
one.work(wait)
"""
ONE = sweep_of("grid", "{arm: [dense], learning_rate: [0.01, 0.02, 0.04], seed: [100]}")
SEARCH = sweep_of("tpe", "{arm: [dense], learning_rate: {low: 0.01, high: 0.02}, seed: [100]}", trials=3)


@pytest.mark.slow
@pytest.mark.parametrize("value", [ONE, SEARCH], ids=["grid", "tpe"])
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_what_a_killed_or_suspended_worker_had_is_taken_over(project, quick, monkeypatch, value, how):
    """With its settings. A worker that goes on later leaves the result that there is."""
    monkeypatch.setattr(search, "HEARTBEAT", 1)
    Path("sweep.yaml").write_text(yaml.safe_dump(value))
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    victim = subprocess.Popen([sys.executable, "-c", WAITS], env=environment, stdout=subprocess.PIPE, text=True)
    assert victim.stdout.readline() == "0\n"
    victim.send_signal(how)
    table = swept(value, project)
    (taken,) = [trial for trial in every_trial() if trial.system_attrs.get("failed_trial") == 0]
    assert taken.params == every_trial()[0].params
    assert len(table) == 3
    assert value == SEARCH or "number" not in table  # which depends on kills
    if how == signal.SIGSTOP:
        Path("go").touch()
        victim.send_signal(signal.SIGCONT)
        assert victim.wait(60) == 0
        assert swept(value, project).equals(table)
    victim.wait()


@pytest.mark.slow
@pytest.mark.parametrize("value", [ONE, SEARCH], ids=["grid", "tpe"])
def test_a_worker_that_died_before_its_first_sign_of_life(project, quick, monkeypatch, value):
    monkeypatch.setattr(search, "HEARTBEAT", 1)
    (one,) = open_studies("sweep", parse(Sweep, value, Path()), project, "tiny", DATA, OUT)
    one.queue()
    one.study.ask()
    assert len(swept(value, project)) == 3


def test_two_workers_never_take_one_trial(project):
    """One asks for a trial while the other is between its look at the queue and its mark on a trial."""
    sweep = parse(Sweep, ONE, Path())
    (first,), (second,) = (open_studies("sweep", sweep, project, "tiny", DATA, OUT, worker) for worker in (0, 1))
    first.queue()
    numbers = []
    other = Thread(target=lambda: numbers.append(second.study.ask().number))

    def between(connection, cursor, statement, *_):
        if "WHERE trials.trial_id" in statement and not other.ident:
            other.start()
            other.join(1)  # it ends at once where it can read

    event.listen(first.storage.engine, "after_cursor_execute", between)
    numbers.append(first.study.ask().number)
    other.join()
    assert sorted(numbers) == [0, 1]


@pytest.mark.slow
def test_workers_are_processes_that_share_the_points(project, tmp_path):
    """Each point is run once by one of them, and a second command meanwhile runs none again."""
    Path("sweep.yaml").write_text(yaml.safe_dump(GRID))
    line = [sys.executable, "-m", "stemrepro.cli", "sweep", "sweep.yaml", "--scale", "tiny", "--workers", "2"]
    commands = [subprocess.Popen(line, env=os.environ | {"PYTHONPATH": str(ROOT)}) for _ in range(2)]
    assert [command.wait(300) for command in commands] == [0, 0]
    done = [trial for trial in every_trial() if trial.state == optuna.trial.TrialState.COMPLETE]
    assert len(done) == len(pd.read_csv("results/tiny/sweeps/sweep/data.csv")) == POINTS
    assert len(list(OUT.glob("runs/*/weights.safetensors"))) == POINTS


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("nobase://name:secret@127.0.0.1/x", "used: Can't load plugin"),
        ("sqlite:///file:made.db?mode=ro&uri=true", r"used: attempt to write a readonly database; start the sweep ag"),
    ],
)
def test_a_database_that_cannot_be_used_is_a_sentence(project, quick, monkeypatch, address, words):
    optuna.storages.RDBStorage("sqlite:///made.db")
    monkeypatch.setenv("OPTUNA_STORAGE", address)
    with pytest.raises(UserError, match=f"^the database of OPTUNA_STORAGE can't be {words}") as told:
        swept(GRID, project)
    assert "secret" not in str(told.value)


def test_a_database_that_is_damaged_meanwhile_is_a_sentence(project, monkeypatch):
    def lose(*_, **__):
        with closing(sqlite3.connect(OUT / "study.db")) as database:
            for table in ("trial_user_attributes", "trial_values", "trials"):
                database.execute(f"drop table {table}")
        return 1.0

    monkeypatch.setattr(search, "objective", lose)
    with pytest.raises(UserError, match=r"^study\.db of the sweep, in sweeps/, can't be used: no such table: tri"):
        swept(GRID, project)


def test_arms_without_a_finite_loss_are_named_in_place_of_an_empty_table(project, monkeypatch, capsys):
    """All of them; or some, while the others have their best."""
    for lost, words in ((("dense",), "dense"), (("dense", "stem-full"), "dense, stem-full")):

        def diverge(trial, values, lost=lost, **rest):
            loss = fake_objective(trial, values, **rest)
            return float("inf") if values["arm"] in lost else loss

        monkeypatch.setattr(search, "objective", diverge)
        value = GRID | {"title": words, "space": GRID["space"] | {"seed": [len(lost)]}}
        swept(value, project, console=Console())
        shown = capsys.readouterr().out
        assert f"no trial of {words} ended with a finite loss; try lower learning rates in sweep.yaml\n" in shown
        assert ("stem-full: {learning_rate: 0.02, table_rate_factor: 2}" in shown) == (len(lost) == 1)
        assert "Empty" not in shown
        assert ("'tuned'" in shown) == (len(lost) == 1)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"sampler": "random"}, "sampler"),
        ({"trials": 3}, "has as many trials as points"),
        ({"sampler": "tpe"}, "needs `trials`"),
        ({"space": GRID["space"] | {"colour": ["red"]}}, r"space\.colour"),
        ({"space": {"arm": ["dense"], "seed": [1]}}, "space needs"),
        ({"space": GRID["space"] | {"learning_rate": {"low": 1, "high": 2}}}, "a grid needs lists"),
        ({"space": GRID["space"] | {"learning_rate": {"low": 2, "high": 1}}}, "2 to 1 is no range"),
        ({"space": GRID["space"] | {"learning_rate": [-1]}}, "learning_rate must be above 0"),
        ({"space": GRID["space"] | {"seed": [-1]}}, "whole numbers from 0 on"),
        ({"space": GRID["space"] | {"arm": []}}, r"space\.arm"),
    ],
)
def test_mistakes_are_named(tmp_path, change, words):
    path = tmp_path / "sweep.yaml"
    path.write_text(yaml.safe_dump(GRID | change))
    with pytest.raises(UserError, match=words):
        read_sweep(path)


def test_rates_may_be_written_as_powers_of_ten(tmp_path):
    for rates, read in (("[1e-2, 2e-2]", (0.01, 0.02)), ("{low: 1e-4, high: 1e-1}", Range(low=1e-4, high=0.1))):
        text = f"{{title: t, sampler: {'grid' if rates[0] == '[' else 'tpe, trials: 2'}, "
        (tmp_path / "a.yaml").write_text(f"{text}space: {{arm: [dense], learning_rate: {rates}, seed: [1]}}}}")
        assert read_sweep(tmp_path / "a.yaml").space["learning_rate"] == read


def test_a_missing_module_is_the_databases_where_there_is_a_server(monkeypatch):
    for server, kind in (("", ImportError), ("postgresql://somewhere", UserError)):
        monkeypatch.setenv("OPTUNA_STORAGE", server)
        with pytest.raises(kind), search.database():
            raise ImportError("No module named 'psycopg2'")


def test_workers_of_a_sweep_take_a_gpu_each(catalog, tmp_path, monkeypatch):
    """As workers of training do (tests/common/test_workers.py); else all would share the first."""
    seen = []
    monkeypatch.setattr(search, "open_studies", lambda *_: [])
    monkeypatch.setattr(search, "see_one_device", seen.append)
    monkeypatch.chdir(tmp_path)
    Path("a.yaml").write_text("{title: t, sampler: grid, space: {arm: [dense], learning_rate: [0.1], seed: [1]}}")
    for scale, worker in (("gpu", 1), ("smoke", 1), ("gpu", 2)):
        run_sweep(Path("a.yaml"), catalog, scale, tmp_path, tmp_path, 3, worker, Console())
    assert seen == [1, 2]


def test_the_shipped_sweeps_have_a_seed_of_their_own(catalog):
    used = {seed for scale in catalog.scales.values() for seed in scale.seeds}
    for path in set((ROOT / "recipes/sweeps").glob("*.yaml")) - {ROOT / "recipes/sweeps/dvc.yaml"}:
        sweep = read_sweep(path)
        assert set(sweep.arms) <= set(catalog.arms)
        assert not used & set(sweep.space["seed"])


def test_the_laptops_start_and_best_rates_are_the_studys_winners(catalog):
    """The common start of all arms is dense's best."""
    studies = (pd.read_csv(ROOT / f"results/start/sweeps/{study}/best.csv") for study in ("start", "equal_size"))
    best = pd.concat(studies).set_index("arm").drop(columns=["prose", "at_edge"], errors="ignore")
    laptop = catalog.scales["laptop"]
    assert laptop.tuned.keys() == set(best.index)
    for arm, own in laptop.tuned.items():
        assert {key: value for key, value in dumped(own).items() if value is not None} == best.loc[arm].to_dict()
    common = laptop.model.model_dump() | laptop.training.model_dump() | {"learning_rate": laptop.learning_rate}
    dense = best.loc["dense"].drop("table_rate_factor")
    assert {key: common[key] for key in dense.index} == dense.to_dict()


def test_the_leaderboards_rates_are_the_studys_winners(catalog):
    """Of all studies of the scale, as an entry has one of its own."""
    studies = map(pd.read_csv, (ROOT / "results/leaderboard/sweeps").glob("*/best.csv"))
    best = pd.concat(studies).set_index("arm")
    tuned = catalog.scales["leaderboard"].tuned
    families = {catalog.arms[arm].family or arm for arm in catalog.recipes["leaderboard"].arms}
    assert set(tuned) == set(best.index) >= families
    for arm, own in tuned.items():
        fields = ("learning_rate", "table_rate_factor", "table_decay_factor", "table_init")
        assert {name: getattr(own, name) for name in fields} == best.loc[arm, list(fields)].to_dict()
