"""A made-up row of verdicts.json."""

from stemrepro.report.evidence import METHOD
from stemrepro.verdicts.rule import NOT_TESTED, TOO_SMALL


def row(claim: str, verdict: str, **fields: object) -> dict:
    return {
        "claim": claim, "sentence": f"Sentence of {claim}.", "origin": "paper", "kind": "greater",
        "metric": "prose", "unit": "nats/token", "arms": ["dense", "stem-full"], "smallest_effect": 0.02,
        "ours": 0.1, "ci_low": 0.05, "ci_high": 0.15,
        "paper": {"value": 0.05, "unit": "nats/token", "source": "Fig. 5b", "confidence": "figure"},
        "ci99_low": 0.02, "ci99_high": 0.18, "differences": None, "item_se": None, "method": METHOD, "size": None,
        "seeds": 5,
        "scale": "laptop", "verdict": verdict,
        "untested": TOO_SMALL if verdict == NOT_TESTED else None, "expected": None, "reason": "because <b>",
    } | fields  # fmt: skip
