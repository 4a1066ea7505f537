"""recipes/questions.yaml: every claim has one question, and a mistake in it is named."""

from collections import Counter

import pytest
import yaml

from stemrepro.common.errors import UserError
from stemrepro.config.questions import FILE, read_questions
from tests.conftest import ROOT

QUESTIONS = yaml.safe_load((ROOT / "recipes" / FILE).read_text())


def test_every_claim_of_the_catalog_has_one_question(catalog):
    named = Counter(
        name for one in QUESTIONS.values() for part in ("supports", "opposes", "also") for name in one.get(part, ())
    )
    every = {f"{name}/{key}" for name, recipe in catalog.recipes.items() for key in recipe.claims}
    assert set(named) == every
    assert set(named.values()) == {1}


def test_the_paper_decides_where_it_says_something(catalog):
    """No result of the paper's that was attempted is left out of the answers, but one about the start of training."""
    aside = [name.split("/") for one in read_questions(catalog, ROOT / "recipes").values() for name in one.also]
    attempted = [(r, claim) for r, claim in aside if r not in ("pretraining_350m", "pretraining_1b")]
    papers = [(r, claim) for r, claim in attempted if catalog.recipes[r].claims[claim].origin != "control"]
    assert papers == [("training_stability", "hash-leads-early")]


def test_pictures_are_panels_that_are_drawn(catalog):
    for question in read_questions(catalog, ROOT / "recipes").values():
        recipe, _, letter = question.panel.partition("/")
        (figure,) = (ROOT / "results").glob(f"*/{recipe}/figure.svg")
        assert f">{letter}  " in figure.read_text(), question.panel


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"supports": ["rivals/equal-flop"]}, r"rivals\.yaml has equal-flops, equal-latency.*"),
        ({"supports": ["rivals/equal-flop"]}, "claim 'equal-flop' is unknown; did you mean 'equal-flops'"),
        ({"supports": ["rival/equal-flops"]}, "recipe 'rival' is unknown; did you mean 'rivals'"),
        ({"supports": ["equal-flops"]}, "recipe 'equal-flops' is unknown"),
        ({"also": ["rivals/over-bigram-table"]}, "'rivals/over-bigram-table' stands under 'other-memories' too"),
        ({"number": "rivals/over-bigram-table"}, "number 'rivals/over-bigram-table' is none of its claims"),
        ({"panel": "rivals"}, r"lower-loss\.panel: .*'rivals'"),
        ({"panel": "rival/a"}, "recipe 'rival' is unknown"),
        ({"supports": []}, "lower-loss: .*supports or opposes"),
        ({"answer": "yes"}, r"unknown key 'lower-loss\.answer'"),  # it is computed
    ],
)
def test_mistakes_are_named_with_the_file_and_the_choices(catalog, tmp_path, change, words):
    changed = QUESTIONS["lower-loss"] | {"number": None} | change
    kept = {key: one for key, one in QUESTIONS.items() if key == "other-memories"}
    (tmp_path / FILE).write_text(yaml.safe_dump(kept | {"lower-loss": changed}, sort_keys=False))
    with pytest.raises(UserError, match=words) as error:
        read_questions(catalog, tmp_path)
    assert str(tmp_path / FILE) in str(error.value)
    assert "lower-loss" in str(error.value)
