"""From the verdicts of claims to one word that answers a question."""

from collections.abc import Iterable

from stemrepro.verdicts.rule import CONTRADICTED, NOT_TESTED, SUPPORTED, UNDECIDED

YES, PARTLY, NO, OPEN = "yes", "partly", "no", "can't tell"
ANSWERS = {
    YES: "all deciding claims say yes",
    PARTLY: "some deciding claims say yes, others say no, can't tell, or were not tested",
    NO: "all deciding claims say no",
    OPEN: "no deciding claim says yes, and not all say no",
    NOT_TESTED: "no deciding claim was tested",
}
"""The words, and when each is the answer."""
SAYS = {SUPPORTED: YES, CONTRADICTED: NO, UNDECIDED: OPEN, NOT_TESTED: NOT_TESTED}
REVERSE = {YES: NO, NO: YES}


def says(verdict: str, opposes: bool = False) -> str:
    """Return what a claim says to a question: yes, no, can't tell or not tested; `opposes` swaps yes and no."""
    word = SAYS[verdict]
    return REVERSE.get(word, word) if opposes else word


def answer(words: Iterable[str]) -> str:
    """Return one of `ANSWERS` from what each deciding claim says; one that was not tested neither says yes nor no."""
    said = set(words)
    if said <= {NOT_TESTED}:
        return NOT_TESTED
    if len(said) == 1:
        return said.pop()
    return PARTLY if YES in said else OPEN
