"""Bad entries of mixes.yaml are named."""

from pathlib import Path

import pytest

from stemrepro.common.errors import UserError
from stemrepro.config.mixes import is_large, parse_mix

FILE = Path("recipes/mixes.yaml")


@pytest.mark.parametrize(
    ("sources", "message"),
    [
        (
            ["speeches", "poems"],
            r"recipes/mixes\.yaml: own\.sources: there is no source 'poems'; choose one of speeches, ",
        ),
        (["bible", "bible"], r"own\.sources: a source is named twice"),
        ([], r"own\.sources: .*at least 1 item"),
    ],
)
def test_sources_that_are_none_are_named(sources, message):
    with pytest.raises(UserError, match=message):
        parse_mix({"kind": "archives", "sources": sources}, FILE, "own")


def test_a_mix_of_archives_names_its_sources():
    with pytest.raises(UserError, match=r"own\.sources: Field required"):
        parse_mix({"kind": "archives"}, FILE, "own")


def test_the_shares_of_a_blend_come_to_one():
    part = {"share": 0.3, "mix": {"kind": "sample", "file": "code"}}
    whole = parse_mix({"kind": "blend", "own": 0.7, "parts": {"code": part}}, FILE, "own")
    assert whole.parts["code"].mix.file == "code"
    with pytest.raises(UserError, match=r"own: .*the shares of own and parts come to 0\.9; they must come to 1"):
        parse_mix({"kind": "blend", "own": 0.6, "parts": {"code": part}}, FILE, "own")


def test_a_blend_has_no_blends_or_made_texts():
    part = {"share": 0.5, "mix": {"kind": "recall"}}
    with pytest.raises(UserError, match=r"own\.parts\.code\.mix: .*'archives', 'sample', 'hub'"):
        parse_mix({"kind": "blend", "own": 0.5, "parts": {"code": part}}, FILE, "own")


@pytest.mark.parametrize("name", ["own", "prose", "all"])
def test_parts_of_a_blend_have_names_of_their_own(name):
    part = {"share": 0.5, "mix": {"kind": "sample", "file": "code"}}
    with pytest.raises(UserError, match=f"a part can't be called '{name}'"):
        parse_mix({"kind": "blend", "own": 0.5, "parts": {name: part}}, FILE, "own")


def test_a_large_text_streams():
    mix = {"kind": "hub", "dataset": "own", "megabytes": 1, "licence": "CC0", "attribution": "me", "sample": 9}
    assert is_large(parse_mix(mix, FILE, "own"))
    with pytest.raises(UserError, match=r"own: a mix with a sample is read as it streams; leave streaming out"):
        parse_mix(mix | {"streaming": False}, FILE, "own")
