"""From paired differences to a verdict: the rule, its correction for many claims, and whether a sign flips in another setting."""
