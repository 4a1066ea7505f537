"""One run, from token blocks to weights, also from where it was killed."""
