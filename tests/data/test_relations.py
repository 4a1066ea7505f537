"""What the factbook says of a country, and the sentences that say it."""

import json

import pytest

from stemrepro.data.relations import FRAMES, HELD_OUT, RELATIONS, countries, held_out_prompt, trained_prompts
from tests.data.test_readers import archive as archive_of

BORDER = ("Geography", "Land boundaries", "border countries")


def country(name="Spain", changed=()):
    """A record as the factbook has it."""
    texts = {
        ("Government", "Country name", "conventional short form"): name,
        ("Government", "Capital", "name"): "Madrid; note - since 1561",
        ("Economy", "Exchange rates", "Currency"): "euros (EUR) per US dollar -",
        ("People and Society", "Nationality", "adjective"): "Spanish",
        ("Geography", "Map references"): "Europe",
        ("Communications", "Internet country code"): ".es; note - .cat",
        BORDER: "Andorra 63 km; France 646 km; Portugal 1,224 km; Morocco (Ceuta) 8 km",
    } | dict(changed)
    record = {}
    for path, text in texts.items():
        node = record
        for key in path:
            node = node.setdefault(key, {})
        node["text"] = text
    return record


def archive(*records):
    return archive_of(**{f"europe/{number}.json": json.dumps(record) for number, record in enumerate(records)})


def test_every_relation_is_read_without_notes():
    (spain,) = countries(archive(country()))
    assert list(spain) == ["name", *RELATIONS]
    assert list(spain.values()) == ["Spain", "Madrid", "euro", "Spanish", "Europe", ".es", "Portugal"]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (("Government", "Capital", "name"), "none"),
        (("Economy", "Exchange rates", "Currency"), "Communaute Financiere Africaine francs (XOF) per US dollar -"),
        (("Government", "Country name", "conventional short form"), "Bahamas, The"),
        (("Communications", "Internet country code"), "no code"),
    ],
)
def test_a_country_without_a_relation_or_a_plain_name_is_left_out(path, text):
    left = list(countries(archive(country(), country("Portugal", {path: text}))))
    assert [record["name"] for record in left] == ["Spain"]


def test_islands_have_no_border():
    (island,) = countries(archive(country(changed={BORDER: "none"})))
    assert "border" not in island


def test_templates():
    for relation, wordings in RELATIONS.items():
        trained = trained_prompts(relation, "Chad")
        held_out = [held_out_prompt(relation, "Chad", k) for k in range(len(HELD_OUT))]
        assert len(set(trained)) == len(trained) == len(FRAMES) * len(wordings) - len(HELD_OUT)
        assert not set(trained) & set(held_out)
        for words in trained + held_out:
            assert " Chad" in words  # after a space, so that its tokens are always the same
            assert not words.endswith(" ")
