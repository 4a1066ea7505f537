"""From paired differences to a verdict: the rule, its correction for many claims, sign flips in other settings."""
