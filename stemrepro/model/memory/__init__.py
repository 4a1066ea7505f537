"""Memories outside of the feed-forward networks: at the input, in the attention, next to a block."""
