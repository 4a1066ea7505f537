"""The decoder, its feed-forward networks (one a file, the equation in the class), and what they cost."""
