"""The word that answers a question, against a table of cases written by hand."""

import pytest

from stemrepro.verdicts.answer import ANSWERS, NO, OPEN, PARTLY, YES, answer, says
from stemrepro.verdicts.rule import CONTRADICTED, NOT_TESTED, SUPPORTED, UNDECIDED, VERDICTS


@pytest.mark.parametrize(
    ("said", "word"),
    [
        ([], NOT_TESTED),
        ([NOT_TESTED, NOT_TESTED], NOT_TESTED),
        ([YES, YES], YES),
        ([YES, NO], PARTLY),
        ([YES, OPEN], PARTLY),
        ([YES, NOT_TESTED], PARTLY),  # the untested one might have said no
        ([NO, NO], NO),
        ([NO, OPEN], OPEN),
        ([NO, NOT_TESTED], OPEN),
        ([OPEN], OPEN),
        ([OPEN, NOT_TESTED], OPEN),
    ],
)
def test_a_word_follows_from_what_the_claims_say(said, word):
    assert answer(said) == answer(reversed(said)) == word
    assert word in ANSWERS


def test_a_claim_that_opposes_says_the_reverse():
    assert [says(verdict) for verdict in VERDICTS] == [YES, NO, OPEN, NOT_TESTED]
    assert [says(verdict, opposes=True) for verdict in VERDICTS] == [NO, YES, OPEN, NOT_TESTED]
    assert (SUPPORTED, CONTRADICTED, UNDECIDED, NOT_TESTED) == VERDICTS
