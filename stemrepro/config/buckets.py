"""How losses are split. Analyses need these names without torch."""

BUCKETS = {"pair": (0, 1, 4, 32), "frequency": (0, 1, 32, 256, 2048), "position": (0, 1, 4, 16, 64, 256, 1024, 4096)}
"""Lower edges: training count of the pair (input token, target), of the input token; position in the sequence."""
CONTEXTS = ("intact", "shuffled", "alone")
"""What comes before the second half of a block: its first half, the same tokens in another order, nothing."""


def bucket_name(edges: tuple[int, ...], number: int) -> str:
    """Return '1-3' for the bucket from 1 up to the next edge, '32+' for the last."""
    low = edges[number]
    if number + 1 == len(edges):
        return f"{low}+"
    high = edges[number + 1] - 1
    return str(low) if low == high else f"{low}-{high}"


def position_edges(length: int) -> tuple[int, ...]:
    """Return the lower edges of fine position buckets: 0, 1, 2, 4, ... below `length`."""
    return (0, *(2**k for k in range(20) if 2**k < length))
