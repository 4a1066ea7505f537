"""Every array, column and key that is read of score files: a missing one is named, as is a number that isn't finite."""

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
    names = [name for name in names if name.split("/")[-1] != "gold"]  # which nothing reads
    if file == "density.npz":
        names = ["layers", "rows", "up", "gated:centred"]
    for name in names:
        np.savez(path, **{key: value for key, value in arrays.items() if key != name})
        with pytest.raises(UserError, match=rf"{file} is missing or damaged .no array '{name}'"):
            read(folder)
    if file not in ("steps.npz", "spread.npz"):  # where NaN is a gap
        name = next(name for name in names if arrays[name].dtype.kind == "f")
        np.savez(path, **arrays | {name: np.full_like(arrays[name], np.nan)})
        with pytest.raises(UserError, match=rf"{file} .*'{name}' holds a number that is not finite"):
            read(folder)


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


def test_a_requested_key_that_is_missing_is_damage(tmp_path):
    path = tmp_path / "summary.json"
    path.write_text(json.dumps({"params_hash": "p", "data_hash": "d", "seeds": 3, "tasks": {"copa": {"items": 3}}}))
    summary = read_summary(path)
    with pytest.raises(UserError, match=r"summary\.json is missing or damaged \(no 'parameters' in it\)"):
        _ = summary["parameters"]["total"]
    with pytest.raises(UserError, match=r"no 'chance' in it"):
        _ = summary["tasks"]["copa"]["chance"]
    for text in ("[" * 100_000, "[]", "{}"):
        path.write_text(text)
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
