"""From differences by seed to a verdict: contrasts, the rule, and the word that answers a question."""
