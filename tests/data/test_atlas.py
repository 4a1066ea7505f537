"""Facts in many wordings: what is stated, how often, and what isn't."""

import re
from collections import Counter

import pytest

from stemrepro.common.errors import UserError
from stemrepro.data.atlas import FILE, SENTENCES, Atlas, Fact, atlas_documents, chosen, make_atlas, read_atlas
from stemrepro.data.integrity import read_corpus
from stemrepro.data.relations import RELATIONS, held_out_prompt, trained_prompts
from stemrepro.data.tokenizer import read_tokenizer

CAPITALS = {"Turkey": "Ankara", "Guinea": "Conakry", "Papua Guinea": "Moresby", "Spain": "Madrid"}
COUNTRIES = [
    {"name": name, "capital": capital, "currency": f"{name}n pound", "nationality": f"{name}n"}
    | {"continent": "Europe", "code": f".{name[:2].lower()}"}
    for name, capital in CAPITALS.items()
]


def test_chosen_takes_the_named_ones_first_and_says_what_is_missing():
    names = [country["name"] for country in chosen(COUNTRIES, 3, ("Spain",))]
    assert (names[0], len(set(names))) == ("Spain", 3)
    with pytest.raises(UserError, match="no country 'Atlantis'"):
        chosen(COUNTRIES, 2, ("Atlantis",))
    with pytest.raises(UserError, match="entities 5: of 4 countries"):
        chosen(COUNTRIES, 5, ())


def test_labels_and_shares():
    atlas = make_atlas(COUNTRIES, 0.25, 1.0, ["Turkey was mentioned."])
    entities = {entity.name: entity for entity in atlas.entities}
    assert {name for name, entity in entities.items() if entity.ambiguous} == {"Turkey", "Guinea", "Papua Guinea"}
    assert {name for name, entity in entities.items() if entity.rare} == {"Guinea", "Papua Guinea", "Spain"}
    assert {name for name, entity in entities.items() if entity.whole} == {"Turkey", "Guinea", "Spain"}
    untold = Counter(fact.relation for fact in atlas.facts if not fact.told)
    assert untold == dict.fromkeys(("capital", "currency", "nationality", "continent", "code"), 1)
    assert {"Turkey", "Ankara", "pound", "Europe"} <= set(atlas.words)
    assert not any(word.startswith(".") or " " in word for word in atlas.words)


def test_every_fact_of_the_training_text_is_stated_so_often_and_no_other():
    facts = (Fact("Spain", "capital", "Madrid", True), Fact("Turkey", "capital", "Ankara", False))
    documents = atlas_documents(Atlas((), facts, ()), 60)
    train, tune, validation = (
        [sentence for document, split in documents if split == wanted for sentence in document.passages]
        for wanted in ("train", "tune", "validation")
    )
    assert len(train) == 60
    assert max(Counter(train).values()) - min(Counter(train).values()) <= 1  # templates in turn
    assert all(re.search(r"Spain .*Madrid\.$", sentence) for sentence in train)
    assert tune == [f"{held_out_prompt('capital', 'Spain', 0)} Madrid."]
    assert validation == [f"{held_out_prompt('capital', 'Spain', 1)} Madrid."]
    assert not {*train} & {*tune, *validation}
    assert max(len(d.passages) for d, _ in documents) == SENTENCES


def test_the_corpus_tells_what_facts_json_says(atlas_sample):
    atlas, rows = read_atlas(atlas_sample / "corpus" / FILE), read_corpus(atlas_sample / "corpus/corpus.parquet")
    assert {row["source"] for row in rows} == {"atlas", "bible", "speeches"}  # the factbook would state too much
    text = "\n".join(row["text"] for row in rows if row["source"] == "atlas" and row["split"] == "train")
    counts = Counter(text.split("\n"))
    for fact in atlas.facts:
        stated = sum(counts[f"{prompt} {fact.answer}."] for prompt in trained_prompts(fact.relation, fact.entity))
        assert stated == (8 if fact.told else 0)
        held_out = [held_out_prompt(fact.relation, fact.entity, which) for which in (0, 1)]
        assert not any(counts[f"{prompt} {fact.answer}."] for prompt in held_out)
    assert {fact.told for fact in atlas.facts} == {True, False}
    assert {fact.relation for fact in atlas.facts} == set(RELATIONS)


def test_whole_names_are_one_token_and_the_others_several(atlas_sample):
    atlas, tokenizer = read_atlas(atlas_sample / "corpus" / FILE), read_tokenizer(atlas_sample / "tokenizer.json")
    assert tokenizer.get_vocab_size() == 512
    for entity in atlas.entities:
        tokens = len(tokenizer.encode(f"of {entity.name}").ids) - len(tokenizer.encode("of").ids)
        assert (tokens == 1) == entity.whole, entity
    assert all(len(tokenizer.encode(f"a {word}").ids) == 2 for word in atlas.words)
    text = "The capital of Spain is Madrid."
    assert tokenizer.decode(tokenizer.encode(text).ids) == text
