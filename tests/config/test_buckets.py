"""Names and edges of buckets."""

from stemrepro.config.buckets import bucket_name, position_edges


def test_bucket_names():
    assert [bucket_name((0, 1, 4, 32), i) for i in range(4)] == ["0", "1-3", "4-31", "32+"]


def test_position_edges():
    assert position_edges(32) == (0, 1, 2, 4, 8, 16)
    assert position_edges(33) == (0, 1, 2, 4, 8, 16, 32)
