"""A claim's row in words."""

import pytest

from stemrepro.report import words
from tests.report.made_up import row


def test_our_number_has_its_interval():
    assert words.ours(row("a", "supported")) == "+0.100 (+0.050 to +0.150) nats/token"


def test_evidence_names_seeds_another_method_and_the_error_between_items():
    shown = row("a", "undecided", seeds=5)
    assert words.evidence(shown) == "5 seeds"
    told = words.evidence(shown | {"item_se": 0.2, "method": "t over seeds, on logits"})
    assert told == "5 seeds, t over seeds, on logits, error between items 0.2, apart from the interval"


@pytest.mark.parametrize(
    ("paper", "half", "result", "texts"),
    [
        (1.2, 0.005, 1.204, ("1.20 u", "1.2040 u")),
        (0, 0.5, 7.0, ("0 u", "7 u")),
        (3.5, 0.5, 0.8075, ("3.5 u", "0.807 u")),
        (0.81, 0.4, 0.057143, ("0.81 u", "0.0571 u")),
        (20, 0.05, 8.333333, ("20 u", "8.333 u")),
    ],
)
def test_exact_numbers_show_the_papers_digits_and_two_more(paper, half, result, texts):
    given = {"value": paper, "unit": "u", "source": "s", "confidence": "read"}
    exact = {"kind": "exact", "unit": "u", "smallest_effect": half, "paper": given}
    made = row("a", "supported", ours=result, ci_low=None, **exact)
    assert (words.paper(made), words.ours(made)) == texts
