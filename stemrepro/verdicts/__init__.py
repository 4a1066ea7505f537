"""From differences by seed to a verdict: effects, the rule, and the word that answers a question."""
