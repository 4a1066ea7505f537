"""Losses after more and less context, against one forward pass per block."""

import numpy as np
import pytest
import torch

from stemrepro.config.buckets import CONTEXTS
from stemrepro.data.blocks import TokenBlocks
from stemrepro.evaluation.context import context_sums, shuffled_prefixes
from stemrepro.model.transformer import build
from tests.conftest import quiet


@pytest.fixture
def scored(make_run):
    run = make_run("stem-full")
    blocks = TokenBlocks(run.blocks, "validation", 32, 300)
    model = build(run.model, 0).eval()
    starts = [start for _, _, start, _ in blocks.about["documents"]]
    numbers = np.unique([start // 32 + k for start in starts for k in range(5)])  # some hold a document's end
    numbers = numbers[numbers < blocks.count]
    documents = np.searchsorted(starts, numbers[:, None] * 32 + 1 + np.arange(32), side="right") - 1
    nats = np.concatenate([loss(model, blocks.at(numbers[[i]]))[None] for i in range(len(numbers))])
    return model, blocks, numbers, documents, nats


def loss(model, row):
    """Losses of one sequence [1, T + 1] -> [T]."""
    with torch.no_grad():
        likelihood = model(row[:, :-1])[0].log_softmax(-1)
    return -likelihood[torch.arange(row.shape[1] - 1), row[0, 1:]].numpy()


def test_sums_equal_a_loop_over_blocks(scored):
    model, blocks, numbers, documents, nats = scored
    result = context_sums(model, blocks, numbers, documents, nats, 5, quiet)
    expected = {name: np.zeros_like(result[name], float) for name in ("by_position", "by_target")}
    kept = 0
    for number, owners in zip(numbers, documents, strict=True):
        _, _, start, length = blocks.about["documents"][owners[0]]
        if not start <= number * 32 or not number * 32 + 32 < start + length:
            continue
        kept += 1
        place = list(result["document"]).index(owners[0])
        row = blocks.at(np.array([number]))
        order = np.random.Generator(np.random.PCG64([7, int(number)])).permutation(16)
        mixed = torch.cat([row[:, :16][:, order], row[:, 16:]], dim=1)
        losses = {"intact": loss(model, row), "shuffled": loss(model, mixed), "alone": loss(model, row[:, 16:])}
        for t in range(32):
            expected["by_position"][place, t.bit_length()] += losses["intact"][t]
        for which, condition in enumerate(CONTEXTS):
            for t in range(16):
                expected["by_target"][which, place, t.bit_length()] += losses[condition][-16:][t]
    assert kept > 3
    assert kept < len(numbers)
    assert result["by_position_tokens"].sum() == 32 * kept
    assert result["by_target_tokens"].sum() == 16 * kept
    for name, sums in expected.items():
        assert np.allclose(result[name], sums, rtol=1e-4, atol=1e-4)


def test_only_the_order_of_the_first_half_changes():
    rows = torch.arange(3 * 33).view(3, 33)
    mixed = shuffled_prefixes(rows, np.array([4, 5, 6]), 16)
    assert torch.equal(mixed[:, 16:], rows[:, 16:])
    assert not torch.equal(mixed[:, :16], rows[:, :16])
    assert torch.equal(mixed[:, :16].sort().values, rows[:, :16])
    assert torch.equal(shuffled_prefixes(rows, np.array([4, 5, 6]), 16), mixed)
    assert torch.equal(rows, torch.arange(3 * 33).view(3, 33))
