"""The model of the overlap against a clock that ticks, and against closed forms."""

from hypothesis import given
from hypothesis import strategies as st

from stemrepro.offload.overlap import pass_seconds


def ticked(compute, gather, copy, ahead, delay):
    """Host, link and device as three workers that look around at every tick; durations are whole ticks, 1 at least."""
    tables = len(copy)
    gathered, copied, read = [None] * tables, [None] * tables, [None] * tables
    jobs = {"host": None, "link": None, "device": None}  # (ends, table)
    stage, requested, now = 0, None, 0
    while True:
        for worker, ends in (("host", gathered), ("link", copied)):
            if jobs[worker] and jobs[worker][0] == now:
                ends[jobs[worker][1]] = now
                jobs[worker] = None
        if jobs["device"] and jobs["device"][0] == now:
            jobs["device"] = None
            if stage == tables:
                return now
            requested = stage
        for _ in range(2):  # what the device reads now may free a buffer in the same tick
            if requested is not None and copied[requested] is not None and copied[requested] + delay <= now:
                read[requested], requested, stage = now, None, stage + 1
        if jobs["device"] is None and requested is None:
            jobs["device"] = (now + compute[stage], stage)
        begun = sum(end is not None for end in gathered) + (jobs["host"] is not None)
        if jobs["host"] is None and begun < tables:
            free = requested == begun if ahead == 0 else begun < ahead or read[begun - ahead] is not None
            if free:
                jobs["host"] = (now + gather[begun], begun)
        begun = sum(end is not None for end in copied) + (jobs["link"] is not None)
        if jobs["link"] is None and begun < tables and gathered[begun] is not None:
            jobs["link"] = (now + copy[begun], begun)
        now += 1


ticks = st.integers(1, 9)


@given(st.data(), st.integers(1, 6), st.integers(0, 4), st.integers(0, 5))
def test_it_is_what_three_workers_on_a_clock_do(data, tables, ahead, delay):
    compute = data.draw(st.lists(ticks, min_size=tables + 1, max_size=tables + 1))
    gather, copy = (data.draw(st.lists(ticks, min_size=tables, max_size=tables)) for _ in range(2))
    assert pass_seconds(compute, gather, copy, ahead, delay) == ticked(compute, gather, copy, ahead, delay)


def test_brought_when_requested_nothing_overlaps():
    assert pass_seconds([3, 4, 5], [1, 1], [2, 7], 0) == 3 + 4 + 5 + 1 + 1 + 2 + 7


def test_fast_rows_cost_nothing_and_slow_ones_the_links_time():
    assert pass_seconds([3, 4, 5], [0, 0], [2, 2], 2) == 12
    assert pass_seconds([3, 4, 5], [0, 0], [20, 20], 2) == 45
