"""Steps of a published model's studies: what a killed one made stays, and committed tables need no rows."""

import pkgutil
from pathlib import Path

import pandas as pd
import pytest

from stemrepro.pipeline.plan import make_plan
from stemrepro.pipeline.reproduce import studies_of
from stemrepro.pipeline.study import KEY, parts_of, run_study_steps, study_steps
from tests.conftest import ROOT


@pytest.fixture
def plan(catalog, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("recipes", "stemrepro"):
        Path(name).symlink_to(ROOT / name)
    return make_plan("smollm2", (), catalog)


def test_a_killed_study_resumes_and_another_begins_anew(plan, monkeypatch):
    seen = []

    def make(*arguments):
        parts = arguments[-1]
        seen.append(sorted(path.name for path in parts.glob("*.parquet")))
        pd.DataFrame({"run": [len(seen)]}).to_parquet(parts / f"shares.{len(seen)}.parquet")
        if len(seen) == 1:
            raise KeyboardInterrupt
        (parts / "rows.npy").touch()

    monkeypatch.setattr(pkgutil, "resolve_name", lambda _: make)
    *needed, study = study_steps(plan, ["premise"])
    (out,), parts = study.outs, parts_of(study.outs[0])
    assert [step.name for step in needed] == ["fetch", "corpus", "rows"]
    with pytest.raises(KeyboardInterrupt):
        study.do()
    assert not study.done()
    assert study.do()
    assert seen == [[], ["shares.1.parquet"]]
    assert {path.name for path in out.iterdir()} == {"shares.parquet", "rows.npy", "made.json"}
    assert pd.read_parquet(out / "shares.parquet")["run"].tolist() == [1, 2]
    assert not parts.exists()
    assert [step.name for step in study_steps(plan, ["premise"])] == ["premise"]  # it needs neither text nor rows
    study.forget()
    parts.mkdir()
    (parts / KEY).write_text("of other settings")
    (parts / "shares.1.parquet").touch()
    assert study_steps(plan, ["premise"])[-1].do()
    assert seen[-1] == []
    assert pd.read_parquet(out / "shares.parquet")["run"].tolist() == [3]


def test_committed_tables_are_those_of_todays_code(catalog, monkeypatch):
    monkeypatch.chdir(ROOT)
    names = studies_of(catalog, catalog.at("smollm2").recipes)
    steps = study_steps(make_plan("smollm2", (), catalog), names)
    assert {step.name for step in steps} == {*names}  # neither text nor rows are needed


def test_a_scale_that_trains_has_studies_of_its_runs_alone(catalog, plan, make_run, monkeypatch):
    """They are done again where the weights are others."""
    trained, run = make_plan("sizes", (), catalog), make_run("dense")
    assert study_steps(trained, ["sizes"]) == run_study_steps(plan, ["sizes"]) == []
    assert run_study_steps(trained, []) == []
    monkeypatch.setattr("stemrepro.pipeline.study.runs_of", lambda _: [run])
    monkeypatch.setattr(pkgutil, "resolve_name", lambda _: lambda runs, out: (out / f"{len(runs)}").touch())
    run.folder.mkdir(parents=True)
    for weights in (b"one", b"two"):
        run.weights.write_bytes(weights)
        (step,) = run_study_steps(trained, ["sizes"])
        assert not step.done()
        assert step.do()
        assert (step.home, step.done()) == (Path("scores/sizes/sizes"), True)
        assert (step.home / "1").exists()
