"""verdicts.json as it is read, counted and called."""

import json

import pytest

from stemrepro.common.errors import UserError
from stemrepro.report.verdicts import read_verdicts, sizes, tally, tally_table
from stemrepro.verdicts.rule import NOT_ATTEMPTED, SIZES

NUMBERS = ("smallest_effect", "ours", "ci_low", "ci_high", "ci99_low", "ci99_high", "item_se")
ROW = dict.fromkeys(("claim", "sentence", "kind", "metric", "unit", "scale", "reason"), "x")
ROW |= dict.fromkeys(NUMBERS, 1.0) | {"origin": "paper", "verdict": "supported", "arms": ["dense"], "seeds": 3}
ROW |= dict.fromkeys(("paper", "expected", "untested", "method", "size", "differences"))


def row(origin, verdict, claim="a"):
    return ROW | {"origin": origin, "verdict": verdict, "claim": claim}


def test_claims_are_counted_by_whose_they_are_and_nowhere_together():
    rows = [
        row("paper", "contradicted"),
        row("control", "supported"),
        row("control", "supported"),
        row("arithmetic", "undecided"),
        row("paper", "not tested") | {"untested": NOT_ATTEMPTED},
    ]
    counts = tally(rows)
    assert counts["control"]["supported"] == 2
    assert counts["paper"]["contradicted"] == counts["arithmetic"]["undecided"] == 1
    assert sum(sum(verdicts.values()) for verdicts in counts.values()) == len(rows)
    head, _, *lines = tally_table(rows)
    assert head == "| claims | supported | contradicted | undecided | not tested |"
    assert lines == [
        "| the paper's results (2) | 0 | 1 | 0 | 1 not attempted |",
        "| the paper's arithmetic (1) | 0 | 0 | 1 | 0 |",
        "| our own questions (2) | 2 | 0 | 0 | 0 |",
    ]


def test_sizes_are_counted_apart_from_verdicts():
    assert sizes([row("paper", "supported")]) == ""
    rows = [row("paper", "supported") | {"size": size} for size in (SIZES[0], SIZES[2], SIZES[2])]
    assert sizes(rows).startswith(
        "Of the paper's 3 tested effects 1 can be compared in size: 1 is within a factor of two of the paper's number, "
    )
    assert sizes(rows[1:]).startswith("2 of the paper's tested results are effects with a size. None can")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "missing or damaged"),
        ('{"a": 1}', "no list of claims"),
        ("[1]", "no list of claims"),
        (json.dumps([{key: value for key, value in ROW.items() if key != "unit"}]), "no list of claims"),
        (json.dumps([ROW | {"verdict": "true"}]), "no list of claims"),
        (json.dumps([ROW, ROW]), "no list of claims"),
    ],
)
def test_damage_is_named(tmp_path, text, words):
    path = tmp_path / "verdicts.json"
    path.write_text(text)
    with pytest.raises(UserError, match=words) as error:
        read_verdicts(path)
    assert str(path) in str(error.value)
