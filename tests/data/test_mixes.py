"""Bad entries of mixes.yaml are named."""

from pathlib import Path

import pytest

from stemrepro.data.mixes import parse_mix
from stemrepro.errors import UserError

FILE = Path("recipes/mixes.yaml")


@pytest.mark.parametrize(
    ("sources", "message"),
    [
        (["speeches", "poems"], r"recipes/mixes\.yaml: own\.sources: there is no source 'poems'; choose of speeches, "),
        (["bible", "bible"], r"own\.sources: a source stands there twice"),
        ([], r"own\.sources: .*at least 1 item"),
    ],
)
def test_sources_that_are_none_are_named(sources, message):
    with pytest.raises(UserError, match=message):
        parse_mix({"kind": "archives", "sources": sources}, FILE, "own")


def test_a_mix_of_archives_names_its_sources():
    with pytest.raises(UserError, match=r"own\.sources: Field required"):
        parse_mix({"kind": "archives"}, FILE, "own")
