"""The leaderboard's table, from numbers whose words are known."""

import pandas as pd
import pytest

from stemrepro.common.errors import UserError
from stemrepro.report.leaderboard import leaderboard_table, ranks, write_leaderboards

COSTS = {"shape": 2.75, "parameters": 135072, "active parameters": 135000, "FLOPs": 302080, "bytes of rows": 128}


def rows(arm, lead, track="FLOPs", **more):
    """Lines of data.csv."""
    first = {"panel": "lead", "value": lead, "ci_low": lead - 0.5, "ci_high": lead + 0.5, "count": 5}
    others = [{"panel": panel.replace("_", " "), "value": value} for panel, value in (COSTS | more).items()]
    return [{"what": arm, "x": track} | row for row in (first, *others)]


@pytest.fixture
def data():
    """Two methods, one of them without a study, dense and a control on one track; one method on another."""
    lines = [
        *rows("dense", 0.0, rank=2, best_rank=1, worst_rank=2, step_time=1.0),
        *rows("stem-frozen", 3.0),
        *rows("stem-full", 6.25, rank=1, best_rank=1, worst_rank=2, ahead_of_the_next=0.873, step_time=1.162),
        *rows("jtok", 4.0),
        *rows("joint-token-mixture", -13.0, shape=26.6),
        *rows("engram", 5.0, "time", rank=1, best_rank=1, worst_rank=1, ahead_of_the_next=0.9999),
    ]
    return pd.DataFrame(lines)


def test_methods_stand_by_rank_and_what_has_none_says_why(data, catalog):
    table = ranks(leaderboard_table(data, catalog))
    assert list(table) == ["FLOPs", "time"]
    assert [(row["method"], row["rank"]) for row in table["FLOPs"]] == [
        ("STEM full", "1 to 2"),
        ("dense", "1 to 2"),
        ("JTok", "no study"),
        ("STEM, frozen rows", "control"),
        ("JTok-M", "shape"),
    ]
    first = "1 to 2|STEM full|arXiv 2601.10639|6.25 (5.75 to 6.75)|87%|2.8|135,072|135,000|302,080|128|1.16|5"
    assert "|".join(table["FLOPs"][0].values()) == first
    assert table["FLOPs"][1]["loss below dense's"] == "0"
    assert (table["time"][0]["rank"], table["time"][0]["ahead of the next"]) == ("1", ">99%")


def test_the_table_of_a_page_is_written_next_to_it(data, tmp_path):
    folder = tmp_path / "leaderboard/leaderboard"
    assert write_leaderboards("leaderboard", tmp_path) == []  # nothing is drawn yet
    folder.mkdir(parents=True)
    data.to_csv(folder / "data.csv", index=False)
    assert write_leaderboards("leaderboard", tmp_path) == [tmp_path / "leaderboard.md"]
    page = (tmp_path / "leaderboard.md").read_text()
    assert page.splitlines()[0].endswith(" Dense: 0.14M parameters, 9 tokens per parameter")
    assert "## Equal time" in page
    assert "`leaderboard/leaderboard/provenance.json`" in page
    numbers = pd.read_csv(tmp_path / "leaderboard.csv")
    assert numbers[numbers["track"] == "FLOPs"].set_index("arm").loc["stem-full", "lead_percent"] == 6.25


def test_damaged_data_are_named(tmp_path):
    (tmp_path / "leaderboard/leaderboard").mkdir(parents=True)
    (tmp_path / "leaderboard/leaderboard/data.csv").write_text("panel,what\nlead,dense\n")
    with pytest.raises(UserError, match=r"data\.csv is missing or damaged"):
        write_leaderboards("leaderboard", tmp_path)
