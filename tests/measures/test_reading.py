"""Readers of score files: what is missing, cut off or not finite is named."""

import json
import shutil

import numpy as np
import pandas as pd
import pytest

from stemrepro.common.errors import UserError
from stemrepro.measures.capacity import ArmCapacity
from stemrepro.measures.knowledge import ArmEdits, ArmFacts
from stemrepro.measures.losses import ArmLosses
from stemrepro.measures.needle import ArmHaystack
from stemrepro.measures.reading import ArmScores, read_csv, read_npz, read_summary
from stemrepro.measures.recall import ArmRecall
from tests.conftest import ROOT

SCORES = ROOT / "scores"


def test_an_array_that_is_not_what_it_must_be_is_named(tmp_path):
    path, arrays = tmp_path / "a.npz", {"seeds": np.arange(3), "loss": np.ones(3), "gap": np.array([1.0, np.nan, 1.0])}
    np.savez(path, **arrays)
    assert read_npz(path, "seeds", "loss", seeds=3)["loss"].tolist() == [1, 1, 1]
    assert np.isnan(read_npz(path, "gap", gaps=True)["gap"][1])
    for names, seeds, words in (
        (("loss", "nats"), None, "no array 'nats'"),
        (("gap",), None, "'gap' holds a number that is not finite"),
        (("seeds",), 5, r"it has 3 seeds, summary\.json 5"),
    ):
        with pytest.raises(UserError, match=rf"a\.npz is missing or damaged \({words}"):
            read_npz(path, *names, seeds=seeds)
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(UserError, match=r"a\.npz is missing or damaged"):
        read_npz(path, "loss")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda rows: rows.drop(columns="nats"), "no column 'nats'"),
        (lambda rows: rows.assign(nats=[1.0, np.nan]), "column 'nats' holds a number that is not finite"),
        (lambda rows: rows.assign(nats=[1.0, np.inf]), "column 'nats' holds a number that is not finite"),
    ],
)
def test_a_table_that_is_not_what_it_must_be_is_named(tmp_path, change, words):
    rows = pd.DataFrame({"seed": [0, 1], "nats": [1.0, 2.0]})
    rows.to_csv(tmp_path / "a.csv", index=False)
    assert read_csv(tmp_path / "a.csv", "seed", "nats").equals(rows)
    change(rows).to_csv(tmp_path / "a.csv", index=False)
    with pytest.raises(UserError, match=rf"a\.csv is missing or damaged \({words}"):
        read_csv(tmp_path / "a.csv", "seed", "nats")


@pytest.mark.parametrize("change", [lambda rows: rows[rows.seed != 1], lambda rows: pd.concat([rows, rows[:1]])])
def test_a_seed_that_is_missing_or_a_line_that_occurs_twice(tmp_path, change):
    folder = tmp_path / "capacity/main/dense"
    shutil.copytree(SCORES / "capacity/capacity/main/dense", folder)
    change(ArmCapacity(folder).frame.reset_index()).to_csv(folder / "capacity.csv", index=False)
    with pytest.raises(UserError, match="a seed is missing or a line occurs twice"):
        _ = ArmCapacity(folder).frame


def test_a_requested_key_that_is_missing_is_damage(tmp_path):
    path = tmp_path / "summary.json"
    path.write_text(json.dumps({"params_hash": "p", "data_hash": "d", "seeds": 3, "tasks": {"copa": {"items": 3}}}))
    with pytest.raises(UserError, match=r"summary\.json is missing or damaged \(no 'parameters' in it\)"):
        _ = ArmScores(tmp_path).summary["parameters"]["total"]
    with pytest.raises(UserError, match=r"no 'chance' in it"):
        _ = read_summary(path)["tasks"]["copa"]["chance"]
    for text in ("[" * 100_000, "[]", "{}"):
        path.write_text(text)
        with pytest.raises(UserError, match=r"summary\.json is missing or damaged"):
            read_summary(path)


READERS = {
    "losses": lambda folder: (ArmLosses(folder).losses, ArmLosses(folder).curve, ArmLosses(folder).documents),
    "facts": lambda folder: (ArmFacts(folder).arrays, ArmFacts(folder).facts),
    "edits": lambda folder: (ArmEdits(folder).arrays, ArmEdits(folder).cases),
    "recall": lambda folder: ArmRecall(folder).frame,
    "capacity": lambda folder: ArmCapacity(folder).frame,
    "haystack": lambda folder: ArmHaystack(folder).frame,
}


def test_committed_scores_whose_verdicts_nothing_judges_anew_are_what_they_must_be():
    folders = [path.parent for path in SCORES.glob("*/*/*/*/summary.json")]
    folders = [folder for folder in folders if folder.parts[-4] in ("atlas", "capacity", "needle", "recall")]
    assert {folder.parts[-3] for folder in folders} == READERS.keys()
    for folder in folders:
        READERS[folder.parts[-3]](folder)
