import pytest

from stemrepro.common.errors import UserError
from stemrepro.report.ladder import OPEN, OTHER, SAME, Rung, agreement, counted, read_ladder, rungs_of

CSV = """panel,what,x,value,ci_low,ci_high
gap,stem-full,286.2,9,9,9
pair,dense - stem-full,286.2,0.3,0.2,0.4
pair,dense - stem-full,2.4,-0.1,-0.2,-0.05
pair,dense - stem-frozen,286.2,0.01,-0.05,0.07
"""


def claim(high, low, ci_low, ci_high, **fields):
    row = {
        "metric": "prose",
        "kind": "greater",
        "scale": "laptop",
        "arms": [high, low],
        "ci_low": ci_low,
        "ci_high": ci_high,
    }
    return row | fields


@pytest.fixture
def results(tmp_path):
    (tmp_path / "ladder/token_ladder").mkdir(parents=True)
    (tmp_path / "ladder/token_ladder/data.csv").write_text(CSV)
    return tmp_path


def test_every_pair_is_read_in_both_orders(results):
    ladder = read_ladder(results)
    assert ladder["dense", "stem-full"] == (Rung(-0.1, -0.2, -0.05, 2.4), Rung(0.3, 0.2, 0.4, 286.2))
    assert ladder["stem-full", "dense"] == (Rung(0.1, 0.05, 0.2, 2.4), Rung(-0.3, -0.4, -0.2, 286.2))
    assert len(ladder) == 4


def test_a_claim_agrees_where_both_intervals_lie_on_one_side(results):
    ladder = read_ladder(results)
    rows = [
        claim("dense", "stem-full", 0.1, 0.2),
        claim("stem-full", "dense", 0.1, 0.2, kind="not-better"),
        claim("dense", "stem-full", -0.1, 0.2),
        claim("dense", "stem-frozen", 0.1, 0.2),
    ]
    assert [agreement(row, rungs_of(row, ladder)[-1]) for row in rows] == [SAME, OTHER, OPEN, OPEN]
    assert counted(rows, ladder) == {SAME: 1, OTHER: 1, OPEN: 2}


@pytest.mark.parametrize(
    "fields",
    [{"metric": "drift"}, {"scale": "ladder"}, {"ci_low": None}, {"arms": ["dense", "ple"]}],
)
def test_other_claims_have_no_rungs(results, fields):
    assert rungs_of(claim("dense", "stem-full", 0.1, 0.2) | fields, read_ladder(results)) == ()


def test_without_a_file_there_are_no_rungs(tmp_path):
    assert read_ladder(tmp_path) == {}


def test_a_damaged_file_is_named(results):
    (results / "ladder/token_ladder/data.csv").write_text("panel,what,x\npair,a - b,3\n")
    with pytest.raises(UserError, match=r"token_ladder/data\.csv"):
        read_ladder(results)
