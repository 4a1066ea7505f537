"""The decoder, its feed-forward networks (one per file, the equation in the class), and what they cost."""
