"""The row cache against a plain list that is searched anew for every request."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stemrepro.offload.row_cache import RowCache

VOCAB = 12


def by_hand(requests, slots, policy, kept):
    """The same requests to a dict {id: (uses, last)}; yields per request the ids held after it and the ids fetched."""
    held, clock = {}, 0
    for ids in requests:
        fetched = [number for number in ids if number not in held]
        waiting = []
        for number in ids:
            clock += 1
            if number in held:
                held[number] = (held[number][0] + 1, clock)
            else:
                waiting.append((number, clock))
        for number, time in waiting:
            if policy == "static" and (number not in kept or len(held) == slots):
                continue
            if len(held) == slots:
                others = [other for other in held if other not in ids]
                if not others:
                    continue
                least = min(others, key=lambda other: held[other][1:] if policy == "lru" else held[other])
                del held[least]
            held[number] = (1, time)
        yield set(held), fetched


requests = st.lists(st.sets(st.integers(0, VOCAB - 1), max_size=8).map(sorted), max_size=25)


@given(requests, st.integers(1, 9), st.sampled_from(["lfu", "lru", "static"]), st.sets(st.integers(0, VOCAB - 1)))
def test_every_request_as_by_hand(passes, slots, policy, chosen):
    kept = sorted(chosen)[:slots]
    cache = RowCache(slots, VOCAB, policy, np.array(kept, int) if policy == "static" else None)
    for ids, (held, fetched) in zip(passes, by_hand(passes, slots, policy, kept), strict=True):
        ids = np.array(ids, int)
        places, missed = cache.request(ids)
        assert ids[missed].tolist() == fetched
        assert set(cache.held[cache.held >= 0]) == held
        assert [number in held for number in ids] == (places >= 0).tolist()
        assert (cache.held[places[places >= 0]] == ids[places >= 0]).all()


def test_ties_go_to_the_longest_unused():
    cache = RowCache(2, VOCAB, "lfu")
    for ids in ([3], [5], [3], [5], [7]):
        cache.request(np.array(ids))
    assert set(cache.held) == {5, 7}


def test_frequent_rows_stay_under_lfu_and_recent_ones_under_lru():
    left = {}
    for policy in ("lfu", "lru"):
        cache = RowCache(2, VOCAB, policy)
        for ids in ([3], [3], [5], [7]):
            cache.request(np.array(ids))
        left[policy] = set(cache.held.tolist())
    assert left == {"lfu": {3, 7}, "lru": {5, 7}}


def test_what_is_forgotten_is_fetched_again():
    cache = RowCache(3, VOCAB)
    cache.request(np.array([1, 2]))
    cache.forget(np.array([2, 9]))
    places, missed = cache.request(np.array([1, 2]))
    assert missed.tolist() == [False, True]
    assert (places >= 0).all()


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ((0, 4), "not 0"),
        ((2, 4, "best"), "'best'"),
        ((2, 4, "static"), "static"),
        ((2, 4, "lru", np.array([1])), "static"),
        ((1, 4, "static", np.array([1, 2])), "at most 1"),
    ],
)
def test_settings_without_meaning(arguments, named):
    with pytest.raises(ValueError, match=named):
        RowCache(*arguments)
