"""A made-up row of verdicts.json."""

from stemrepro.verdicts.rule import NOT_TESTABLE, TOO_SMALL


def row(claim: str, verdict: str, **fields: object) -> dict:
    return {
        "claim": claim, "sentence": f"Sentence of {claim}.", "origin": "paper", "primary": False, "kind": "greater",
        "metric": "prose", "unit": "nats/token", "arms": ["dense", "stem-full"], "smallest_effect": 0.02,
        "ours": 0.1, "ci_low": 0.05, "ci_high": 0.15, "level": 0.95,
        "paper": {"value": 0.05, "unit": "nats/token", "source": "Fig. 5b", "confidence": "figure"},
        "seed_se": 0.01, "item_se": None, "tuned": None, "p": 0.01, "seeds": 5, "scale": "laptop", "verdict": verdict,
        "untested": TOO_SMALL if verdict == NOT_TESTABLE else None, "expected": None, "reason": "because <b>",
    } | fields  # fmt: skip
