"""The row cache against a plain list that is searched anew for every request."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from stemrepro.offload.row_cache import RowCache

VOCAB = 12


def by_hand(requests, slots):
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
            if len(held) == slots:
                others = [other for other in held if other not in ids]
                if not others:
                    continue
                del held[min(others, key=held.get)]
            held[number] = (1, time)
        yield set(held), fetched


requests = st.lists(st.sets(st.integers(0, VOCAB - 1), max_size=8).map(sorted), max_size=25)


@given(requests, st.integers(1, 9))
def test_every_request_as_by_hand(passes, slots):
    cache = RowCache(slots, VOCAB)
    for ids, (held, fetched) in zip(passes, by_hand(passes, slots), strict=True):
        ids = np.array(ids, int)
        places, missed = cache.request(ids)
        assert ids[missed].tolist() == fetched
        assert set(cache.held[cache.held >= 0]) == held
        assert [number in held for number in ids] == (places >= 0).tolist()
        assert (cache.held[places[places >= 0]] == ids[places >= 0]).all()


def test_what_is_forgotten_is_fetched_again():
    cache = RowCache(3, VOCAB)
    cache.request(np.array([1, 2]))
    cache.forget(np.array([2, 9]))
    places, missed = cache.request(np.array([1, 2]))
    assert missed.tolist() == [False, True]
    assert (places >= 0).all()
