"""Bad entries of mixes.yaml are named."""

from pathlib import Path

import pytest

from stemrepro.common.errors import UserError
from stemrepro.common.yaml_records import dumped
from stemrepro.config.mixes import is_large, parse_mix

FILE = Path("recipes/mixes.yaml")


@pytest.mark.parametrize(
    ("sources", "message"),
    [
        (["speeches", "poems"], r"recipes/mixes\.yaml: own\.sources: there is no source 'poems'; choose one of spee"),
        (["bible", "bible"], r"own\.sources: a source is named twice"),
        ([], r"own\.sources: .*at least 1 item"),
    ],
)
def test_sources_that_are_none_are_named(sources, message):
    with pytest.raises(UserError, match=message):
        parse_mix({"kind": "archives", "sources": sources}, FILE, "own")


@pytest.mark.parametrize(
    ("name", "fields", "words"),
    [
        ("needles-sample", {"keys": 4000, "values": 4000}, "there are 4900 words"),
        ("needles-sample", {"of_document": (2, 32)}, "of_document 32: more than there are keys"),
        ("needles-sample", {"vendored": False}, "either `sources` of it or `vendored: true`"),
        ("recall-sample", {"length": 32}, "an odd number"),
        ("recall-sample", {"pairs": (16,)}, "a quarter of length"),
        ("invented-sample", {"people": 10**6}, "first and last names make"),
    ],
)
def test_made_mixes_that_can_not_be(catalog, name, fields, words):
    with pytest.raises(UserError, match=words):
        parse_mix(dumped(catalog.mixes[name]) | fields, FILE, name)


def test_the_shares_of_a_blend_come_to_one():
    part = {"share": 0.3, "mix": {"kind": "sample", "file": "code"}}
    whole = parse_mix({"kind": "blend", "own": 0.7, "parts": {"code": part}}, FILE, "own")
    assert whole.parts["code"].mix.file == "code"
    with pytest.raises(UserError, match=r"own: .*the shares of own and parts come to 0\.9; they must come to 1"):
        parse_mix({"kind": "blend", "own": 0.6, "parts": {"code": part}}, FILE, "own")


def test_a_large_text_streams():
    mix = {"kind": "hub", "dataset": "own", "megabytes": 1, "licence": "CC0", "attribution": "me", "sample": 9}
    assert is_large(parse_mix(mix, FILE, "own"))
    with pytest.raises(UserError, match=r"own: a mix with a sample is read as it streams; leave streaming out"):
        parse_mix(mix | {"streaming": False}, FILE, "own")
