"""The order of blocks: numpy's permutation for small texts, a bijection without memory for large ones."""

import tracemalloc
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from stemrepro.data.order import LARGE, block_order, computed

KEYS = st.integers(0, 2**32 - 1)


@pytest.mark.slow
def test_small_texts_have_the_permutation_that_runs_were_made_with():
    """As stemrepro.data.blocks drew it before there was another."""
    expected = [np.random.Generator(np.random.PCG64([5, epoch])).permutation(11) for epoch in range(3)]
    assert block_order(np.arange(33), 11, 5).tolist() == np.concatenate(expected).tolist()
    assert expected[0].tolist() == [10, 7, 1, 3, 2, 4, 6, 0, 9, 5, 8]
    largest = np.random.Generator(np.random.PCG64([1, 0])).permutation(LARGE - 1)
    places = np.array([0, 1, LARGE // 2, LARGE - 2])
    assert block_order(places, LARGE - 1, 1).tolist() == largest[places].tolist()


@given(st.integers(1, 3000), KEYS, KEYS)
@settings(max_examples=60, deadline=None)
def test_every_block_is_read_once(count, seed, epoch):
    assert sorted(computed(np.arange(count), count, seed, epoch).tolist()) == list(range(count))


@given(st.integers(100, 3000), KEYS, KEYS)
@settings(max_examples=30, deadline=None)
def test_seeds_and_epochs_have_orders_of_their_own(count, seed, epoch):
    orders = [computed(np.arange(count), count, *key) for key in ((seed, epoch), (seed + 1, epoch), (seed, epoch + 1))]
    for one, other in pairwise([*orders, orders[0]]):
        assert (one == other).mean() < 0.1  # by chance one place in `count` agrees


@given(st.integers(LARGE, 2**62), KEYS, st.data())
@settings(max_examples=60, deadline=None)
def test_large_texts_have_distinct_blocks_in_range(count, seed, data):
    places = np.array(data.draw(st.lists(st.integers(0, count - 1), min_size=1, max_size=50, unique=True)))
    blocks = block_order(places, count, seed)
    assert len(set(blocks.tolist())) == len(places)
    assert blocks.min() >= 0
    assert blocks.max() < count
    assert block_order(places + count, count, seed).tolist() == computed(places, count, seed, 1).tolist()


def test_the_order_of_a_large_text_takes_no_memory():
    tracemalloc.start()
    try:
        block_order(np.arange(64), 2**50, 0)
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("count", [LARGE, 3 * 10**7])
def test_a_large_order_looks_random(count):
    """Blocks are uniform, and neither a place nor the block before says where a block is."""
    blocks = block_order(np.arange(40_000), count, 3)
    cells = 64 * np.arange(len(blocks)) // len(blocks), 64 * blocks // count
    assert stats.chisquare(np.bincount(cells[1], minlength=64)).pvalue > 1e-4
    for one, other in ((cells[0], cells[1]), (cells[1][:-1], cells[1][1:])):
        table = np.bincount(64 * one + other, minlength=64 * 64).reshape(64, 64)
        assert stats.chi2_contingency(table).pvalue > 1e-4
