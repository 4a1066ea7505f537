"""AdamW of tables: on the rows of a batch against dense AdamW, and with one second moment a row against a loop."""

import numpy as np
import pytest
import torch
from torch import nn

from stemrepro.model.ffn.base import table_parameters
from stemrepro.training.module import LanguageModule
from stemrepro.training.table_adamw import RowwiseAdamW, TouchedAdamW, clip, new_moments, sparse_gradients

SETTINGS = {"lr": 0.02, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.1}
WIDE = SETTINGS | {"eps": 1e-3}  # which is felt


def steps(optimizer, table, rows, count=7, dense=False):
    for step in range(count):
        gradient = torch.randn(len(rows), 4, generator=torch.Generator().manual_seed(step)).to(table.dtype)
        table.grad = gradient if dense else torch.sparse_coo_tensor([rows], gradient, table.shape)
        optimizer.step()


def test_touched_rows_equal_dense_adamw_and_others_stay():
    start = torch.randn(9, 4, generator=torch.Generator().manual_seed(1))
    rows = [0, 3, 8]
    sparse, dense = torch.nn.Parameter(start.clone()), torch.nn.Parameter(start[rows].clone())
    steps(TouchedAdamW([sparse], **SETTINGS, fused=True), sparse, rows)
    steps(torch.optim.AdamW([dense], **SETTINGS), dense, [0, 1, 2], dense=True)
    torch.testing.assert_close(sparse.detach()[rows], dense.detach())
    others = [1, 2, 4, 5, 6, 7]
    assert torch.equal(sparse.detach()[others], start[others])


def test_a_row_counts_its_own_steps():
    """A row touched for the first time at step 50 takes the full first step that bias correction gives."""
    table = torch.nn.Parameter(torch.zeros(3, 4))
    optimizer = TouchedAdamW([table], **SETTINGS)
    steps(optimizer, table, [0], 50)
    assert torch.equal(table.detach()[1], torch.zeros(4))
    steps(optimizer, table, [1], 1)
    assert table.detach()[1].abs() == pytest.approx(torch.full((4,), 0.02))


def test_its_state_lies_where_the_table_does():
    """A count of steps on the CPU could not be indexed by rows on a GPU."""
    result = new_moments(torch.empty(9, 4, device="meta"))
    assert {value.device.type for value in result.values()} == {"meta"}
    shapes = {name: tuple(value.shape) for name, value in result.items()}
    assert shapes == {"step": (9,), "exp_avg": (9, 4), "exp_avg_sq": (9, 4)}


def doubled(start, batches, limit, sparse):
    """Gradients of two micro-batches on a table read twice by token, clipped, and the norm before."""
    model = nn.Module()
    model.ffn = nn.Module()
    model.ffn.table = nn.Embedding.from_pretrained(start.clone(), freeze=False)
    if sparse:
        sparse_gradients(model)
    for batch in batches:
        model.ffn.table(batch).square().sum().backward()
    table = model.ffn.table.weight
    norm = clip([table], limit) if sparse else nn.utils.clip_grad_norm_([table], limit)
    return table.grad, norm


@pytest.mark.parametrize("limit", [1e6, 0.3])
def test_sparse_gradients_are_the_rows_of_dense_ones_clipped_alike(limit):
    start = torch.randn(9, 4, generator=torch.Generator().manual_seed(1))
    batches = [torch.tensor([[1, 3, 3], [5, 1, 3]]), torch.tensor([[5, 0, 0]])]
    result, norm = doubled(start, batches, limit, sparse=True)
    expected, dense_norm = doubled(start, batches, limit, sparse=False)
    assert result.is_sparse
    assert result.coalesce().indices()[0].tolist() == [0, 1, 3, 5]
    torch.testing.assert_close(result.to_dense(), expected)
    torch.testing.assert_close(norm, dense_norm)
    assert norm > 0.3


def test_rows_are_summed_to_the_bits_of_a_dense_gradient():
    """Of three micro-batches in which each row stands many times."""
    start = torch.randn(9, 4, generator=torch.Generator().manual_seed(1))
    batches = torch.randint(0, 9, (3, 400), generator=torch.Generator().manual_seed(2))
    result, expected = (doubled(start, batches, 1e9, sparse)[0] for sparse in (True, False))
    assert torch.equal(result.to_dense(), expected)


def test_without_gradients_nothing_is_clipped():
    assert clip([nn.Parameter(torch.ones(2, 3))], 1.0) == 0


def test_a_table_in_sixteen_bits_is_moved_in_sixteen_bits():
    """Rows count their steps in float32, whatever the table has."""
    table = torch.nn.Parameter(torch.ones(3, 4, dtype=torch.bfloat16))
    optimizer = TouchedAdamW([table], **SETTINGS)
    steps(optimizer, table, [1], 2)
    assert table.dtype == torch.bfloat16
    assert (table[1] != 1).all()
    assert (table[[0, 2]] == 1).all()


@pytest.mark.parametrize("arm", ["stem-full", "stem-shared", "ngram-table", "value-embeddings", "bigram-input"])
def test_no_gradient_of_a_run_has_more_rows_than_its_batch(make_run, arm):
    module = LanguageModule(make_run(arm, table_update="touched"))
    module.training_step(next(iter(module.train_dataloader())), 0).backward()
    tables = table_parameters(module.model).values()
    assert tables
    assert all(table.grad.is_sparse and table.grad._nnz() <= 2 * 32 for table in tables)


def gradients(step, rows=6, width=4):
    """The gradient of a batch with rows 0, 1 and one that depends on `step`."""
    values = np.random.default_rng(step).normal(size=(rows, width))
    values[[row for row in range(rows) if row not in (0, 1, step % rows)]] = 0
    return values


def drawn():
    return np.random.default_rng(99).normal(size=(6, 4))


def test_one_second_moment_a_row_equals_a_plain_loop():
    table = torch.nn.Parameter(torch.tensor(drawn()))
    optimizer = RowwiseAdamW([table], **WIDE)
    weights, m, v = drawn(), np.zeros((6, 4)), np.zeros(6)
    for t in range(1, 13):
        g = gradients(t)
        table.grad = torch.tensor(g)
        optimizer.step()
        for r in range(6):
            v[r] = 0.95 * v[r] + 0.05 * sum(g[r, i] ** 2 for i in range(4)) / 4
            for i in range(4):
                m[r, i] = 0.9 * m[r, i] + 0.1 * g[r, i]
                scale = (v[r] / (1 - 0.95**t)) ** 0.5 + 1e-3
                weights[r, i] -= 0.02 * 0.1 * weights[r, i] + 0.02 * (m[r, i] / (1 - 0.9**t)) / scale
        np.testing.assert_allclose(table.detach().numpy(), weights, rtol=1e-6)
    assert optimizer.state[table]["exp_avg_sq"].shape == (6, 1)


def test_rows_of_equal_squares_move_as_under_adamw():
    """Where all elements of a row have the same square, its mean is each one's square."""
    table, plain = (torch.nn.Parameter(torch.ones(3, 4)) for _ in range(2))
    ours, theirs = RowwiseAdamW([table], **WIDE), torch.optim.AdamW([plain], **WIDE)
    for step in range(5):
        generator = torch.Generator().manual_seed(step)
        signs = torch.randint(0, 2, (3, 4), generator=generator) * 2.0 - 1
        table.grad = plain.grad = signs * torch.tensor([[0.1], [1.0], [3.0]])
        ours.step()
        theirs.step()
    torch.testing.assert_close(table, plain)
