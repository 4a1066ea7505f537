"""A claim's row in words."""

import pytest

from stemrepro.report import words
from stemrepro.verdicts.rule import VERDICTS
from tests.report.made_up import row


def test_our_number_has_its_interval():
    assert words.ours(row("a", "supported")) == "+0.100 (+0.050 to +0.150) nats/token"


def test_evidence_names_both_errors_and_the_contrast_at_tuned_rates():
    shown = row("a", VERDICTS[1], seeds=5, seed_se=0.0123, item_se=None, tuned=None)
    assert words.evidence(shown) == "5 seeds, p 0.01, adjusted 0.02, error between seeds 0.012"
    both = (
        "5 seeds, p 0.01, adjusted 0.02, error between seeds 0.012, between items 0.2, at tuned learning rates -0.050"
    )
    assert words.evidence(shown | {"item_se": 0.2, "tuned": -0.05}) == both
    told = words.evidence(shown | {"p": 1e-6, "method": "t over seeds, on logits"})
    assert told == "5 seeds, p < 0.0001, adjusted 0.02, t over seeds, on logits, error between seeds 0.012"


@pytest.mark.parametrize(("same_sign", "text"), [(True, "the same sign"), (False, "the same sign is not shown")])
def test_evidence_says_whether_a_claim_has_its_sign_at_the_official_init(same_sign, text):
    shown = row("a", VERDICTS[1], seeds=5, seed_se=None, item_se=None, tuned=None)
    shown |= {"official_init": 0.1234, "official_init_same_sign": same_sign}
    assert words.evidence(shown) == f"5 seeds, p 0.01, adjusted 0.02, at the official initialisation +0.123 ({text})"


@pytest.mark.parametrize(
    ("text", "items"),
    [
        ("Tables 5 and 6", ["table 5", "table 6"]),
        ("Tables 4 to 6; Fig. 1", ["table 4", "table 5", "table 6", "fig 1"]),
        ("Fig. 4, 7", ["fig 4", "fig 7"]),
        ("Table 3 (350M, 100B tokens); Fig. 1a, validation perplexity, 1B", ["table 3", "fig 1a"]),
        ("reviewers' wish", []),
    ],
)
def test_what_of_the_paper_a_text_names(text, items):
    assert words.paper_items(text) == items


@pytest.mark.parametrize(
    ("paper", "half", "result", "texts"),
    [(1.2, 0.005, 1.204, ("1.20 u", "1.2040 u")), (0, 0.5, 7.0, ("0 u", "7 u")),
     (3.5, 0.5, 0.8075, ("3.5 u", "0.807 u")), (0.81, 0.4, 0.057143, ("0.81 u", "0.0571 u")),
     (20, 0.05, 8.333333, ("20 u", "8.333 u"))],
)  # fmt: skip
def test_exact_numbers_show_the_papers_digits_and_two_more(paper, half, result, texts):
    made = row("a", "supported", kind="exact", unit="u", ours=result, ci_low=None, smallest_effect=half,
               paper={"value": paper, "unit": "u", "source": "s", "confidence": "read"})  # fmt: skip
    assert (words.paper(made), words.ours(made)) == texts


@pytest.mark.parametrize(("value", "text"), [("1", "1 number"), ("0", "0 numbers"), ("21", "21 numbers")])
def test_one_thing_has_no_plural(value, text):
    assert words.counted(value, "numbers") == text
