import pytest

from stemrepro.measures.rivals import Rivals
from tests.made_up import made, write_arm


def test_what_is_left_over_half_of_the_gain(catalog, tmp_path):
    """STEM gains 0.4 over dense, the memory 0.1 of it: 0.3 are more than the last token, 0.1 over half of the gain."""
    losses = {"dense": [4.0, 4.1, 4.2], "token-only": [3.9, 4.0, 4.1], "stem-full": [3.6, 3.7, 3.8]}
    rivals = made(Rivals, catalog, "rivals", {arm: write_arm(tmp_path / arm, loss) for arm, loss in losses.items()})
    assert rivals.contrast("token-only", "stem-full", "half-of-gain").differences == pytest.approx([0.1] * 3)
    assert rivals.contrast("dense", "stem-full", "half-of-gain").differences == pytest.approx([0.2] * 3)
    assert rivals.contrast("token-only", "stem-full", "prose").differences == pytest.approx([0.3] * 3)
