"""verdicts.json as it is read, counted and called."""

import json

import pytest

from stemrepro.common.errors import UserError
from stemrepro.config.recipe import ORIGINS
from stemrepro.report.verdicts import read_verdicts, tally, tally_table, verdict_label
from stemrepro.verdicts.rule import VERDICTS

NUMBERS = ("smallest_effect", "ours", "ci_low", "ci_high", "level", "tuned", "seed_se", "item_se", "p")
ROW = dict.fromkeys(("claim", "sentence", "kind", "metric", "unit", "scale", "reason"), "x") | dict.fromkeys(
    NUMBERS, 1.0
)
ROW |= {"origin": "paper", "verdict": "reproduced", "arms": ["dense"], "primary": False, "paper": None, "seeds": 3}
ROW |= {"expected": None, "untested": None}


def row(origin, verdict, claim="a"):
    return ROW | {"origin": origin, "verdict": verdict, "claim": claim}


def test_controls_have_labels_of_their_own():
    assert [verdict_label(row("paper", verdict)) for verdict in VERDICTS] == list(VERDICTS)
    assert [verdict_label(row("arithmetic", verdict)) for verdict in VERDICTS] == list(VERDICTS)
    labels = [verdict_label(row("control", verdict)) for verdict in VERDICTS]
    assert labels == ["holds", "leans", "does not hold", "can't tell", "not testable"]


def test_the_tally_counts_by_origin_and_verdict():
    rows = [
        row("paper", "contradicted"),
        row("control", "reproduced"),
        row("control", "reproduced"),
        row("arithmetic", "inconclusive"),
    ]
    counts = tally(rows)
    assert counts["control"]["reproduced"] == 2
    assert counts["paper"]["contradicted"] == counts["arithmetic"]["inconclusive"] == 1
    assert sum(sum(verdicts.values()) for verdicts in counts.values()) == len(rows)
    head, _, *lines = tally_table(rows)
    assert head.startswith("| claims | reproduced / *holds* |")
    assert lines[list(ORIGINS).index("control")] == "| our control (2) | 2 | 0 | 0 | 0 | 0 |"


def test_the_official_init_may_be_left_out(tmp_path):
    rows = [ROW | {"claim": "a"}, ROW | {"claim": "b", "official_init": 0.1, "official_init_same_sign": False}]
    path = tmp_path / "verdicts.json"
    path.write_text(json.dumps(rows))
    assert read_verdicts(path) == rows


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "missing or damaged"),
        ('{"a": 1}', "holds no list of claims"),
        ("[1]", "holds no list of claims"),
        (json.dumps([ROW | {"ours": "much"}]), r"claim 'x'\.ours: .*'much'"),
        (json.dumps([ROW | {"ours": float("nan")}]), r"ours: .*finite"),
        (json.dumps([ROW | {"ours": 10**400}]), r"ours: .*finite"),
        (json.dumps([ROW | {"ours": None}]), "an interval has two ends and a value within"),
        (json.dumps([ROW | {"ci_high": None}]), "an interval has two ends and a value within"),
        (json.dumps([ROW | {"smallest_effect": 0}]), r"smallest_effect: .*greater than 0"),
        (json.dumps([ROW | {"smallest_effect": None}]), r"smallest_effect: "),
        (json.dumps([ROW | {"arms": [1]}]), r"arms\.0: .*string .*1"),
        (json.dumps([{key: value for key, value in ROW.items() if key != "unit"}]), r"unit: Field required"),
        (json.dumps([ROW | {"seeds": True}]), r"seeds: .*True"),
        (json.dumps([ROW | {"arms": None}]), r"arms: .*None"),
        (json.dumps([ROW | {"paper": {"unit": "nats"}}]), r"paper\.value: Field required"),
        (json.dumps([ROW | {"sentence": 3}]), r"sentence: .*3"),
        (json.dumps([ROW | {"official_init": 0.1}]), "official_init_same_sign stand together"),
        (json.dumps([ROW | {"official_init_same_sign": True}]), "official_init_same_sign stand together"),
        (json.dumps([ROW | {"official_init": "much", "official_init_same_sign": True}]), r"official_init: .*'much'"),
        (json.dumps([ROW | {"official_init": 0.1, "official_init_same_sign": 1}]), r"official_init_same_sign: .*1"),
        (json.dumps([ROW | {"verdict": "true"}]), r"verdict: .*'reproduced'.*'true'"),
        (json.dumps([ROW | {"origin": "ours"}]), r"origin: .*'control'.*'ours'"),
        (json.dumps([ROW, ROW]), "has a claim twice"),
    ],
)
def test_damage_is_named(tmp_path, text, words):
    path = tmp_path / "verdicts.json"
    path.write_text(text)
    with pytest.raises(UserError, match=words) as error:
        read_verdicts(path)
    assert str(path) in str(error.value)
