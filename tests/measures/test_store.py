"""The score tables: whole or absent after any end of the process, and refused where a number can't be."""

import multiprocessing
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from stemrepro.common.errors import UserError
from stemrepro.common.files import locked
from stemrepro.config.address import MAIN, Address
from stemrepro.config.scores import Column
from stemrepro.measures import store
from tests.made_up import write_arm, write_scores

DENSE, STEM = Address(MAIN, "dense"), Address("wide", "stem-full")


def edits(first: int, seeds: int = 2, known: bool = True) -> dict[str, pd.DataFrame]:
    """Return tables of one case, whose probability `new` is `first` hundredths."""
    case = {"case": [0], "source": "Chad", "target": "Peru", "relation": "capital", "lengths": "equal"}
    case |= {"source_tokens": 1, "target_tokens": 1, "ambiguous": False, "rare": True}
    trial = {"seed": range(seeds), "method": "rows", "case": 0, "success": True, "kept": False, "new": first / 100}
    trial |= {"old": 0.5, "to_target": -0.1, "to_source": 2.0}
    told = {"known": pd.DataFrame({"seed": range(seeds), "case": 0, "known": True})} if known else {}
    return {"cases": pd.DataFrame(case), "edits": pd.DataFrame(trial), **told}


def new_of(folder: Path, address: Address) -> list[float]:
    return store.lines(folder, "edits", address, "edits")["new"].tolist()


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("*.parquet")}


def test_what_is_written_is_read_and_a_second_time_replaces_it(tmp_path):
    assert store.key_of(tmp_path, "edits", DENSE) is None
    store.write(tmp_path, "edits", STEM, "k0", {"tables": 3}, edits(1))
    store.write(tmp_path, "edits", DENSE, "k1", {"tables": 0}, edits(10))
    store.write(tmp_path, "edits", DENSE, "k2", {"tables": 1}, edits(20, seeds=3, known=False))
    assert store.key_of(tmp_path, "edits", DENSE) == "k2"
    assert store.about(tmp_path, "edits", DENSE) == {"tables": 1, "lines": {"cases": 1, "edits": 3}}
    assert (new_of(tmp_path, DENSE), new_of(tmp_path, STEM)) == ([0.2] * 3, [0.01] * 2)
    assert store.scored(tmp_path, "edits") == [DENSE, STEM]
    with pytest.raises(UserError, match=r"known\.parquet has nothing of dense"):
        store.lines(tmp_path, "edits", DENSE, "known")
    frame = pd.read_parquet(tmp_path / "known.parquet")
    assert frame[["variant", "arm", "seed"]].to_numpy().tolist() == [["wide", "stem-full", seed] for seed in (0, 1)]


def test_equal_scores_give_equal_bytes_in_whichever_order_they_came(tmp_path):
    facts = {"facts": pd.DataFrame({"fact": [0], "entity": "Chad", "relation": "capital", "answer": "N'Djamena"})}
    facts["facts"][["told", "ambiguous", "rare"]] = True
    writes = [("edits", DENSE, edits(1)), ("facts", DENSE, facts), ("edits", STEM, edits(2))]
    for name, order in (("a", (0, 1, 2)), ("b", (2, 1, 0)), ("c", (0, 1, 2, 0))):
        for kind, address, tables in (writes[k] for k in order):
            store.write(tmp_path / name, kind, address, "key", {"seeds": 2}, tables)
    assert files(tmp_path / "a") == files(tmp_path / "b") == files(tmp_path / "c")


@pytest.mark.parametrize("killed", range(5))
def test_whoever_is_killed_leaves_old_rows_or_none(tmp_path, monkeypatch, killed):
    """Its writes are: the protocol without its row, three tables, the protocol with it."""
    store.write(tmp_path, "edits", STEM, "k0", {}, edits(1))
    store.write(tmp_path, "edits", DENSE, "k1", {}, edits(10))
    write, left = store.atomic_write, [killed]

    def dying_write(path, content):
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        write(path, content)

    monkeypatch.setattr(store, "atomic_write", dying_write)
    with pytest.raises(KeyboardInterrupt):
        store.write(tmp_path, "edits", DENSE, "k2", {}, edits(20, seeds=3))
    if killed == 0:
        assert store.key_of(tmp_path, "edits", DENSE) == "k1"
        assert new_of(tmp_path, DENSE) == [0.1, 0.1]
    else:
        assert store.key_of(tmp_path, "edits", DENSE) is None
        with pytest.raises(UserError, match="no edits of dense"):
            store.lines(tmp_path, "edits", DENSE, "edits")
    assert new_of(tmp_path, STEM) == [0.01] * 2
    monkeypatch.undo()
    store.write(tmp_path, "edits", DENSE, "k2", {}, edits(20, seeds=3))
    assert (new_of(tmp_path, DENSE), new_of(tmp_path, STEM)) == ([0.2] * 3, [0.01] * 2)


def write_often(folder: Path, address: Address, times: int) -> None:
    for k in range(times):
        with locked(folder):
            store.write(folder, "edits", address, f"k{k}", {}, edits(k))


def test_two_processes_write_different_arms(tmp_path):
    context = multiprocessing.get_context("spawn")
    folder = tmp_path / "tiny"
    writers = [context.Process(target=write_often, args=(folder, address, 10)) for address in (DENSE, STEM)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0, 0]
    for address in (DENSE, STEM):
        assert store.key_of(folder, "edits", address) == "k9"
        assert new_of(folder, address) == [0.09] * 2


TABLE = {
    "seed": Column("whole", least=0, key=True),
    "task": Column("text", key=True),
    "rows": Column("whole", least=0),
    "right": Column("whole", least=0, most="rows"),
    "share": Column("number", least=0, most=1),
    "margin": Column("number"),
    "told": Column("flag"),
}


def table() -> pd.DataFrame:
    place = {"variant": MAIN, "arm": "dense", "seed": [0, 1], "task": ["a", "b"], "told": [True, False]}
    return pd.DataFrame(place | {"rows": [4, 4], "right": [1, 4], "share": [0.0, 1.0], "margin": [-3.5, 2.0]})


def changed(column: str, value: object) -> pd.DataFrame:
    """Return the table with another value in its second row."""
    return table().assign(**{column: [table()[column].iloc[0], value]})


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (changed("margin", np.nan), r"row 1 \(dense, seed 1\): 'margin' is empty or NaN"),
        (changed("task", None), r"row 1 \(dense, seed 1\): 'task' is empty or NaN"),
        (changed("margin", -np.inf), r"row 1 \(dense, seed 1\): 'margin' is -inf"),
        (changed("share", 1.01), r"row 1 \(dense, seed 1\): 'share' is 1\.01; it goes from 0 up to 1"),
        (changed("share", -0.1), r"row 1 \(dense, seed 1\): 'share' is -0\.1; it goes from 0 up to 1"),
        (changed("right", 5), r"row 1 \(dense, seed 1\): 'right' is 5; it goes from 0 up to 'rows'"),
        (pd.concat([table(), table()[1:]]), r"row 2 \(dense, seed 1\) stands there twice"),
        (changed("rows", 4.5), "column 'rows' holds no wholes but float64"),
        (changed("told", "yes"), "column 'told' holds no flags but object"),
        (table().drop(columns="share"), "no column 'share'"),
        (table().drop(columns="arm"), "no column 'arm'"),
    ],
)
def test_what_can_not_be_is_refused_with_file_row_and_reason(frame, reason):
    assert store.checked(Path("made.parquet"), table(), TABLE).equals(table()[[*store.PLACE, *TABLE]])
    with pytest.raises(UserError, match=rf"made\.parquet is missing or damaged \({reason}"):
        store.checked(Path("made.parquet"), frame, TABLE)


def test_a_score_that_can_not_be_changes_nothing(tmp_path):
    store.write(tmp_path, "edits", DENSE, "k1", {}, edits(10))
    before = files(tmp_path)
    with pytest.raises(UserError, match=r"edits\.parquet gets no such line: row 0 \(dense, seed 0\): 'new' is 2;"):
        store.write(tmp_path, "edits", DENSE, "k2", {}, edits(200))
    assert files(tmp_path) == before


def test_lines_that_are_missing_are_refused_and_a_table_that_is_gone_is_not_up_to_date(tmp_path):
    store.write(tmp_path, "edits", DENSE, "k1", {}, edits(10))
    path = tmp_path / "edits.parquet"
    pd.read_parquet(path)[:1].to_parquet(path)
    with pytest.raises(UserError, match=r"edits\.parquet .*of dense 1 lines are there, and 2 were written"):
        new_of(tmp_path, DENSE)
    path.write_bytes(b"PAR1")
    with pytest.raises(UserError, match=r"edits\.parquet is missing or damaged"):
        new_of(tmp_path, DENSE)
    path.unlink()
    with pytest.raises(UserError, match=r"edits\.parquet is missing or damaged"):
        new_of(tmp_path, DENSE)
    assert store.key_of(tmp_path, "edits", DENSE) is None
    store.write(tmp_path, "edits", DENSE, "k1", {}, edits(10))
    assert new_of(tmp_path, DENSE) == [0.1] * 2


def test_an_arm_is_not_written_next_to_another_whose_lines_are_damaged(tmp_path):
    store.write(tmp_path, "edits", DENSE, "k1", {}, edits(10))
    path = tmp_path / "edits.parquet"
    whole = pd.read_parquet(path)
    for damaged in (whole.assign(new=float("nan")), whole.drop(columns="new"), pd.concat([whole, whole])):
        damaged.to_parquet(path)
        before = path.read_bytes()
        with pytest.raises(UserError, match=r"edits\.parquet is missing or damaged"):
            store.write(tmp_path, "edits", Address("main", "stem-full"), "k1", {}, edits(10))
        assert path.read_bytes() == before


@pytest.mark.parametrize("about", ["", "[]", "3", '{"seeds": '])
def test_a_damaged_protocol_is_named(tmp_path, about):
    store.write(tmp_path, "edits", DENSE, "k1", {}, edits(10))
    path = tmp_path / "protocol.parquet"
    pd.read_parquet(path).assign(about=about).to_parquet(path)
    with pytest.raises(UserError, match=r"protocol\.parquet is missing or damaged \(an 'about' is no JSON object"):
        store.key_of(tmp_path, "edits", DENSE)


def test_losses_by_step_alone_are_no_validation_losses(tmp_path):
    write_arm(tmp_path, "dense", (1.0, 2.0))
    steps = pd.DataFrame({"seed": [0], "step": [1], "loss": [2.0], "norm": [1.0]})
    write_scores(tmp_path, "losses", "dense@rate-4", 1, {"steps": steps})
    assert store.with_losses(tmp_path) == [Address(MAIN, "dense")]
    assert Address("rate-4", "dense") in store.scored(tmp_path, "losses")
