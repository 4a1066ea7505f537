import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stemrepro.common.errors import UserError
from stemrepro.model.config import ModelConfig, layers_of


@given(st.sampled_from(["third", "half", "full"]), st.integers(3, 96))
def test_placement(placement, layers):
    """Layer 0 never; as many as the name says; evenly spaced; within the model."""
    replaced_layers = layers_of(placement, layers)
    assert 0 not in replaced_layers
    assert len(replaced_layers) == {"third": layers // 3, "half": layers // 2, "full": layers - 1}[placement]
    assert max(replaced_layers) < layers
    assert {b - a for a, b in itertools.pairwise(replaced_layers)} <= {{"third": 3, "half": 2, "full": 1}[placement]}


def test_the_papers_layers():
    assert layers_of("third", 16) == (1, 4, 7, 10, 13)
    assert len(layers_of("third", 32)) == 10
    assert len(layers_of("half", 32)) == 16
    assert len(layers_of("full", 32)) == 31
    assert layers_of("none", 32) == ()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"heads": 3}, "heads 3 does not divide width 16"),
        ({"kv_heads": 3}, "kv_heads 3 does not divide heads 4"),
        ({"heads": 16, "kv_heads": 1}, "must be even"),
        ({"replaced_layers": (0,)}, "layer 0 is never replaced"),
        ({"replaced_layers": (9,)}, "layers go up to 3"),
    ],
)
def test_impossible_shapes(change, words):
    with pytest.raises(UserError, match=words):
        ModelConfig(**{"vocab": 50, "width": 16, "layers": 4, "heads": 4, "kv_heads": 2, "ffn_width": 24} | change)


def test_a_later_field_is_written_where_it_changes_something():
    """So that runs made before it keep their settings."""
    shape = {"vocab": 50, "width": 16, "layers": 4, "heads": 4, "kv_heads": 2, "ffn_width": 24}
    shape["replaced_layers"] = (1, 3)
    plain, other = ModelConfig(**shape), ModelConfig(**shape, pair_rows=75, slots=4)
    assert plain.settings["replaced_layers"] == [1, 3]
    assert other.settings == plain.settings | {"pair_rows": 75, "slots": 4}
    assert not {"pair_rows", "slots"} & plain.settings.keys()
