"""What a run is: its address, its identity, and how it ended."""

from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from stemrepro.common import code_hash
from stemrepro.common.errors import UserError
from stemrepro.common.files import atomic_write, write_json
from stemrepro.config.address import MAIN, Address
from stemrepro.training.run import DECIDING_NOTHING, run_code
from tests.conftest import retrained


@pytest.mark.parametrize(
    ("text", "variant", "arm"), [("dense", MAIN, "dense"), ("stem-full@rate-16", "rate-16", "stem-full")]
)
def test_an_address_is_read_as_it_is_written(text, variant, arm):
    address = Address.parse(text)
    assert (address.variant, address.arm) == (variant, arm)
    assert str(address) == text
    assert address.path.parts == (variant, arm)


def test_settings_and_text_are_a_runs_identity_and_seed_folder_and_looks_are_not(make_run):
    run = make_run("stem-full")
    same = [replace(run, seed=3), replace(run, folder=run.folder / "elsewhere")]
    same += [make_run("stem-full", label="another", hue="blue")]
    other = [replace(run, data_hash="0"), retrained(run, learning_rate=0.5)]
    other += [make_run("stem-full", **fields) for fields in ({"placement": "half"}, {"table_rate_factor": 2.0})]
    assert {each.params_hash for each in same} == {run.params_hash}
    assert run.params_hash not in {each.params_hash for each in other}
    assert len({each.params_hash for each in other}) == len(other)


def test_the_code_of_a_run_is_that_of_its_own_networks(make_run):
    assert make_run("stem-full").code == run_code(("dense", "stem")) == make_run("stem-half").code
    assert make_run("dense").code == run_code(("dense",)) != make_run("stem-full").code
    assert make_run("jtok").code not in (make_run("dense").code, make_run("stem-full").code)


def test_a_file_that_a_network_of_ones_own_imports_counts_as_it_does(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("my").mkdir()
    Path("my/rows.py").write_text("from my.factor import FACTOR\nclass Rows: factor = FACTOR\n")
    codes = set()
    for text in ("FACTOR = 1.0", "FACTOR = 2.0", "FACTOR = 2.0  # no other"):
        Path("my/factor.py").write_text(text)
        code_hash._read.cache_clear()
        codes.add(run_code.__wrapped__(("my/rows.py:Rows",)))
    assert len(codes) == 2


def test_a_run_has_ended_when_this_very_run_has(make_run):
    run = make_run("dense")
    assert not run.ended
    run.folder.mkdir(parents=True)
    atomic_write(run.weights, b"")
    assert not run.ended
    assert "arm: None there, dense requested" in run.other_settings()
    atomic_write(run.folder / "config.yaml", yaml.safe_dump(run.config))
    assert run.ended
    faster = retrained(run, learning_rate=0.5)
    assert not faster.ended
    assert faster.other_settings() == "training.learning_rate: 0.01 there, 0.5 requested"


def test_a_run_that_diverged_has_ended_without_weights(make_run):
    run = make_run("dense")
    assert run.diverged is None
    atomic_write(run.folder / "config.yaml", yaml.safe_dump(run.config))
    write_json(run.folder / "diverged.json", {"step": 7})
    assert (run.diverged, run.ended) == (7, True)
    (run.folder / "diverged.json").write_text('{"step": "never"}')
    with pytest.raises(UserError, match=r"diverged\.json is damaged .* train that run again"):
        _ = run.diverged


def test_how_devices_share_a_run_is_no_part_of_its_identity():
    reached = code_hash.files(["stemrepro.training.train"], DECIDING_NOTHING)
    assert code_hash.file_of("stemrepro.training.module") in reached
    assert not {code_hash.file_of(name) for name in DECIDING_NOTHING} & set(reached)
