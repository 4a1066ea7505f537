"""What decides whether committed tables are kept; the tool itself runs for three minutes."""

from types import SimpleNamespace

import pandas as pd

from benchmarks import same_tables
from benchmarks.same_tables import adopt, difference
from stemrepro.common.files import read_json, write_json


def test_values_decide_and_not_what_is_timed(tmp_path):
    before, now = tmp_path / "before.parquet", tmp_path / "now.parquet"
    table = pd.DataFrame({"layer": [0, 1], "nats": [0.5, 1.5], "seconds": [1.0, 2.0]})
    table.to_parquet(before)
    assert difference(before, now) == "only there"
    table.assign(seconds=3.0).to_parquet(now)
    assert difference(before, now) == ""
    table.assign(nats=[0.5, 1.5 + 2**-52]).to_parquet(now)
    assert difference(before, now) == "nats"
    table[:1].to_parquet(now)
    assert difference(before, now).startswith("2 rows of")


def test_tables_of_that_code_alone_are_kept(tmp_path, monkeypatch):
    steps = []
    for name, made_by in (("premise", "older"), ("edits", "another"), ("rows", None)):
        home = tmp_path / name
        write_json(home / "made.json", {name: made_by} if made_by else {})
        record = lambda home=home, name=name: write_json(home / "made.json", {name: "new"})  # noqa: E731
        steps.append(SimpleNamespace(name=name, home=home, key="new", record=record))
    monkeypatch.setattr(same_tables, "study_steps", lambda *_: steps)
    assert adopt("smollm2", dict.fromkeys(("premise", "edits", "rows"), "older")) == ["premise"]
    assert read_json(tmp_path / "premise/made.json") == {"premise": "new"}
    assert read_json(tmp_path / "edits/made.json") == {"edits": "another"}
