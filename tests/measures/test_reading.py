"""Every array, column and key that is read of score files: a wrong one is refused in one sentence.

The wrong ones are the committed scores, changed a little.
"""

import json
import shutil

import numpy as np
import pandas as pd
import pytest

from stemrepro.common.errors import UserError
from stemrepro.measures.capacity import ArmCapacity
from stemrepro.measures.context import ArmContext
from stemrepro.measures.geometry import ArmGeometry
from stemrepro.measures.items import ArmItems
from stemrepro.measures.knowledge import ArmEdits, ArmFacts
from stemrepro.measures.losses import ArmLosses
from stemrepro.measures.needle import ArmHaystack
from stemrepro.measures.reading import read_summary
from stemrepro.measures.reasoning import ArmDistance, ArmReasoning
from stemrepro.measures.recall import ArmRecall
from stemrepro.measures.text import TextCounts
from tests.conftest import ROOT
from tests.measures.test_items import RECIPE
from tests.measures.test_reasoning import items

SCORES = ROOT / "scores"


def _edits(folder):
    arm = ArmEdits(folder)
    fields = ("success", "kept", "new", "old", "to_target", "to_source")
    return arm.arrays, arm.cases, [arm.values(method, field) for method in arm.methods[:2] for field in fields]


def _geometry(folder):
    arm = ArmGeometry(folder.parents[2], folder.name)
    kinds = ("rows", "up", "gated:centred")
    return arm.cosines, arm.spread, arm.tokens, [arm.density(kind, arm.layers) for kind in kinds]


def _losses(folder):
    arm = ArmLosses(folder)
    return arm.losses, arm.curve, arm.documents, (folder / "steps.npz").exists() and arm.steps


READERS = {
    "laptop/losses/main/stem-third": _losses,
    "laptop/losses/main/dense": lambda folder: ArmContext(folder),
    "laptop/benchmarks/main/dense": lambda folder: ArmItems(folder, RECIPE).arrays,
    "laptop/geometry/main/stem-third": _geometry,
    "laptop/distance/main/dense": lambda folder: ArmDistance(folder).arrays,
    "atlas/facts/main/dense": lambda folder: (ArmFacts(folder).arrays, ArmFacts(folder).facts),
    "atlas/edits/main/stem-full": _edits,
    "made/reasoning/main/dense": lambda folder: ArmReasoning(folder, RECIPE).arrays,
}
FILES = {
    "documents.npz": "laptop/losses/main/stem-third", "steps.npz": "laptop/losses/main/stem-third",
    "context.npz": "laptop/losses/main/dense", "items.npz": "laptop/benchmarks/main/dense",
    "spread.npz": "laptop/geometry/main/stem-third", "density.npz": "laptop/geometry/main/stem-third",
    "tokens.npz": "laptop/geometry/main/stem-third", "distance.npz": "laptop/distance/main/dense",
    "facts.npz": "atlas/facts/main/dense", "edits.npz": "atlas/edits/main/stem-full",
    "reasoning.npz": "made/reasoning/main/dense",
}  # fmt: skip
UNREAD = ("gold",)
"""Arrays that are written and never read."""
CHANGES = {
    "is missing": lambda values: None,
    "holds text": lambda values: values.astype(str) if values.dtype.kind != "U" else values == "",
    "has an axis more": lambda values: values[None],
    "lacks its last": lambda values: values[..., :-1],
    "holds sevens": lambda values: np.full(values.shape, 7.5) if values.dtype.kind in "bUiu" else -1 - np.abs(values),
    "holds NaN": lambda values: np.where(np.ones(values.shape, bool), np.nan, 0.0),
    "holds infinity": lambda values: np.where(np.ones(values.shape, bool), np.inf, 0.0),
}
HARMLESS = {
    ("steps.npz", "holds NaN"), ("spread.npz", "holds NaN"),
    ("spread.npz", "lacks its last"), ("density.npz", "lacks its last"),
}  # fmt: skip
"""Changes that are allowed: gaps, and fewer tokens or bins."""
SIGNED = ("margin", "to_target", "to_source")
"""Arrays of numbers that may be below 0."""


def home_of(tmp_path, name):
    """A copy of an arm's scores, and of the losses next to them."""
    place = name.split("/")
    if place[0] == "made":
        items(tmp_path / "made", "dense", [1.0, 2.0, 3.0, 4.0])
        return tmp_path / name
    for part in {place[1], "losses"} if place[1] == "geometry" else {place[1]}:
        address = "/".join([place[0], part, *place[2:]])
        shutil.copytree(SCORES / address, tmp_path / address)
    return tmp_path / name


@pytest.mark.parametrize("file", FILES)
def test_an_array_that_is_not_what_it_must_be_is_named(tmp_path, file):
    folder = home_of(tmp_path, FILES[file])
    read = READERS[FILES[file]]
    read(folder)
    path = folder / file
    if file == "tokens.npz":
        path = tmp_path / "laptop/losses/main/stem-third" / file
    with np.load(path) as opened:
        arrays = dict(opened)
    tasks = list(dict.fromkeys(name.split("/")[0] for name in arrays if "/" in name))[:1]
    names = [name for name in arrays if "/" not in name or name.split("/")[0] in tasks]
    names = [name for name in names if name.split("/")[-1] not in UNREAD]
    if file == "density.npz":
        names = ["layers", "rows", "up", "gated:centred"]
    for name in names:
        for what, change in CHANGES.items():
            if (file, what) in HARMLESS and name != "seeds" and name != "layers":
                continue
            if what == "holds sevens" and name.split("/")[-1] in SIGNED:
                continue
            new = change(arrays[name])
            changed = {key: value for key, value in arrays.items() if key != name} | (
                {} if new is None else {name: new}
            )
            np.savez(path, **changed)
            with pytest.raises(UserError) as refused:
                read(folder)
            message = str(refused.value)
            assert file in message, (name, what, message)
            assert "\n" not in message
    np.savez(path, **arrays)
    read(folder)


def test_accuracies_times_seven_are_no_accuracies(tmp_path):
    folder = home_of(tmp_path, "laptop/benchmarks/main/dense")
    with np.load(folder / "items.npz") as opened:
        arrays = dict(opened)
    name = next(name for name in arrays if name.endswith("/acc"))
    np.savez(folder / "items.npz", **arrays | {name: arrays[name] * 7})
    with pytest.raises(
        UserError, match=rf"items\.npz .*'{name}' must hold yes or no of \d+ seeds x \d+ items; it holds int"
    ):
        _ = ArmItems(folder, RECIPE).arrays


TABLES = {
    "losses.csv": (
        "laptop/losses/main/stem-third", lambda f: ArmLosses(f).losses, "seed by source bucket tokens nats bytes"
    ),
    "curve.csv": ("laptop/losses/main/stem-third", lambda f: ArmLosses(f).curve, "seed tokens flops train"),
    "cosines.csv": (
        "laptop/geometry/main/stem-third", lambda f: ArmGeometry(f.parents[2], f.name).cosines,
        "seed share layer what bucket centred p95 mean mode peak",
    ),
    "facts.csv": ("atlas/facts/main/dense", lambda f: ArmFacts(f).facts, "told ambiguous rare"),
    "cases.csv": (
        "atlas/edits/main/stem-full", lambda f: ArmEdits(f).cases,
        "source target relation lengths source_tokens target_tokens ambiguous rare",
    ),
    "recall.csv": (
        "recall/recall/main/dense", lambda f: ArmRecall(f).frame,
        "seed pairs length queries right first_queries first_right",
    ),
    "capacity.csv": (
        "capacity/capacity/main/dense", lambda f: ArmCapacity(f).frame,
        "seed people facts bits known first",
    ),
    "haystack.csv": (
        "needle/haystack/main/dense", lambda f: ArmHaystack(f).frame,
        "seed length depth rows chosen generated other nats",
    ),
    "distinct.csv": ("laptop/text", lambda f: TextCounts(f).distinct, "vocab source window length distinct"),
    "cache.csv": ("laptop/text", lambda f: TextCounts(f).cache, "source asked policy share hit_rate"),
}  # fmt: skip


@pytest.mark.parametrize("file", TABLES)
def test_a_table_without_a_column_is_named(tmp_path, file):
    name, read, columns = TABLES[file]
    source = min(
        path for path in SCORES.glob(f"**/{file}") if path.parts[-4:-1] == ("main", "dense") or name in str(path)
    ).parent
    folder = tmp_path / source.relative_to(SCORES)
    shutil.copytree(source, folder)
    frame = pd.read_csv(folder / file, dtype={"bucket": str})
    read(folder)
    for column in columns.split():
        frame.drop(columns=column).to_csv(folder / file, index=False)
        with pytest.raises(UserError, match=rf"{file} is missing or damaged \(no column '{column}'\)"):
            read(folder)
    for column in frame.select_dtypes(bool).columns.intersection(columns.split()):
        frame.assign(**{column: "maybe"}).to_csv(folder / file, index=False)
        with pytest.raises(UserError, match=rf"{file} .*column '{column}' must hold True and False"):
            read(folder)


SUMMARY = {"key": "k", "params_hash": "p", "data_hash": "d", "seeds": 3}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"seeds": True}, "seeds: "),
        ({"params_hash": 3}, "params_hash: "),
        ({"diverged": {"x": 1}}, "diverged.*x"),
        ({"diverged": {"1": None}}, r"diverged\.1: "),
        ({"loss": {"bible": 3.0}}, r"loss\.bible: "),
        ({"loss": {"bible": {"nats_per_token": "3", "bits_per_byte": 1.0}}}, r"loss\.bible\.nats_per_token: "),
        (
            {"loss": {"bible": {"nats_per_token": float("nan"), "bits_per_byte": 1.0}}},
            r"loss\.bible\.nats_per_token: .*finite",
        ),
        ({"tasks": {"copa": [1]}}, r"tasks\.copa: "),
        ({"tasks": {"copa": {"items": -1}}}, r"tasks\.copa\.items: "),
        ({"tasks": {"copa": {"items": 3, "chance": 2}}}, r"tasks\.copa\.chance: "),
        ({"parameters": {"total": "5"}}, r"parameters\.total: "),
        ({"forward_flops_per_token": 0}, "forward_flops_per_token: "),
        ({"layers": ["one"]}, r"layers\.0: "),
        ({"methods": "rows"}, "methods: "),
        ({"unigram_nats_per_token": None}, "unigram_nats_per_token: "),
    ],
)
def test_a_summary_that_can_not_be_is_named_by_key(tmp_path, change, words):
    path = tmp_path / "summary.json"
    path.write_text(json.dumps(SUMMARY))
    assert read_summary(path) == SUMMARY
    path.write_text(json.dumps(SUMMARY | change))
    with pytest.raises(UserError, match=rf"summary\.json is missing or damaged \({words}"):
        read_summary(path)


def test_a_requested_key_that_is_missing_is_damage(tmp_path):
    path = tmp_path / "summary.json"
    path.write_text(json.dumps(SUMMARY | {"tasks": {"copa": {"items": 3}}}))
    summary = read_summary(path)
    with pytest.raises(UserError, match=r"summary\.json is missing or damaged \(no 'parameters' in it\)"):
        _ = summary["parameters"]["total"]
    with pytest.raises(UserError, match=r"no 'chance' in it"):
        _ = summary["tasks"]["copa"]["chance"]
    path.write_text("[" * 100_000)
    with pytest.raises(UserError, match=r"summary\.json is missing or damaged"):
        read_summary(path)


def test_committed_scores_whose_verdicts_nothing_judges_anew_are_what_they_must_be():
    parts = {
        "losses": _losses,
        "facts": READERS["atlas/facts/main/dense"],
        "edits": _edits,
        "recall": TABLES["recall.csv"][1],
        "capacity": TABLES["capacity.csv"][1],
        "haystack": TABLES["haystack.csv"][1],
    }
    folders = [path.parent for path in SCORES.glob("*/*/*/*/summary.json")]
    folders = [folder for folder in folders if folder.parts[-4] in ("atlas", "capacity", "needle", "recall")]
    assert {folder.parts[-3] for folder in folders} == parts.keys()
    for folder in folders:
        parts[folder.parts[-3]](folder)
