"""A made-up row of verdicts.json."""

from stemrepro.report.words import PLAIN_METHOD
from stemrepro.verdicts.rule import NOT_TESTED, TOO_SMALL


def row(claim: str, verdict: str, **fields: object) -> dict:
    return {
        "claim": claim, "sentence": f"Sentence of {claim}.", "origin": "paper", "primary": False, "kind": "greater",
        "metric": "prose", "unit": "nats/token", "arms": ["dense", "stem-full"], "smallest_effect": 0.02,
        "ours": 0.1, "ci_low": 0.05, "ci_high": 0.15,
        "paper": {"value": 0.05, "unit": "nats/token", "source": "Fig. 5b", "confidence": "figure"},
        "seed_se": 0.01, "item_se": None, "tuned": None, "method": PLAIN_METHOD, "p": 0.01,
        "adjusted_p": 0.02, "other_p": 1.0, "adjusted_other_p": 1.0, "size": None, "seeds": 5,
        "scale": "laptop", "verdict": verdict,
        "untested": TOO_SMALL if verdict == NOT_TESTED else None, "expected": None, "reason": "because <b>",
    } | fields  # fmt: skip
