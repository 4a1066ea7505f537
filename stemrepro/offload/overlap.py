"""Seconds of a pass whose rows come over a link meanwhile: a model in discrete events, not a measurement.

Three things work at the same time: the host gathers rows into staging, the link copies them, the device computes. Each
works on one task at a time and in the order of the tables. Events are those of `OffloadedTables`: a buffer is filled
again once its rows were read.
"""

from collections.abc import Sequence


def pass_seconds(
    compute: Sequence[float], gather: Sequence[float], copy: Sequence[float], ahead: int, delay: float = 0.0
) -> float:
    """Return the seconds of a pass from its token ids to its last layer's end.

    Several passes whose ids are all known are one pass with the tables of each after those of the last.

    Args:
        compute: of the device before it reads each table [tables], and after the last: [tables + 1].
        gather: of the host for the rows of each table [tables]; zeros where the device reads host memory itself.
        copy: of the link for them [tables].
        ahead: tables whose rows may be on their way at once; 0: brought when the device requests them.
        delay: until the device sees what was copied; the next copy doesn't wait for it.

    Raises:
        ValueError: lengths don't fit, or a negative `ahead`.
    """
    if not len(gather) == len(copy) == len(compute) - 1:
        raise ValueError(f"{len(gather)} gathers and {len(copy)} copies for {len(compute) - 1} tables")
    if ahead < 0:
        raise ValueError(f"rows are brought 0 tables ahead or more, not {ahead}")
    host = link = device = 0.0  # when each is free
    read: list[float] = []
    for table, before in enumerate(compute[:-1]):
        asks = device + before
        if ahead == 0:
            begun = asks
        elif table >= ahead:
            begun = read[table - ahead]
        else:
            begun = 0.0
        host = max(host, begun) + gather[table]
        link = max(link, host) + copy[table]
        device = max(asks, link + delay)
        read.append(device)
    return device + compute[-1]
