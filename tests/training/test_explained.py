"""What rows explain of an up-projection, against a plain loop, and where it is all or nothing."""

import numpy as np
import pytest
import torch

from stemrepro.training.explained import explained
from stemrepro.training.retrofit_rows import retrofitted
from tests.training.test_retrofit_rows import DENSE, REPLACED, STEM, drawn, inputs_of, noisy

HELD_OUT = [torch.randint(0, 17, (2, 9), generator=torch.Generator().manual_seed(40 + k)) for k in range(3)]


def tables(kind):
    model = noisy(DENSE)
    state = retrofitted(model, STEM, drawn(4), kind)
    return model, {layer: state[f"blocks.{layer}.ffn.table.weight"] for layer in REPLACED}


@pytest.mark.parametrize("kind", ["token-means", "mean-row"])
def test_shares_are_those_of_a_plain_loop(kind):
    model, rows = tables(kind)
    shares = explained(model, rows, HELD_OUT)
    for layer in REPLACED:
        left, every = [], []
        for tokens in (row for batch in HELD_OUT for row in batch):
            up = inputs_of(model, layer, tokens) @ model.blocks[layer].ffn.up.weight.double().T
            left += list((up - rows[layer][tokens]).detach().numpy())
            every += list(up.detach().numpy())
        around = np.array(every) - np.mean(every, axis=0)
        assert shares[layer] == pytest.approx(1 - np.square(left).sum() / np.square(around).sum(), abs=1e-5)
    assert set(shares) == set(REPLACED)


def test_on_the_text_of_the_rows_one_row_for_all_explains_nothing_and_the_tokens_rows_something():
    shares = {kind: explained(*tables(kind), drawn(4)) for kind in ("token-means", "mean-row")}
    for layer in REPLACED:
        assert shares["mean-row"][layer] == pytest.approx(0, abs=1e-6)
        assert 0.01 < shares["token-means"][layer] < 1


def test_a_model_that_reads_the_token_alone_is_explained_whole():
    model, _ = tables("token-means")
    with torch.no_grad():
        for block in model.blocks:
            block.attention.out.weight.zero_()
    state = retrofitted(model, STEM, drawn(4), "token-means")
    rows = {layer: state[f"blocks.{layer}.ffn.table.weight"] for layer in REPLACED}
    assert list(explained(model, rows, drawn(4)).values()) == pytest.approx([1.0, 1.0], abs=1e-6)
