"""One second moment a row: against a plain loop in numpy, and its state."""

import numpy as np
import torch

from stemrepro.training.table_adamw import RowwiseAdamW

SETTINGS = {"lr": 0.02, "betas": (0.9, 0.95), "eps": 1e-3, "weight_decay": 0.1}  # an eps that is felt


def gradients(step, rows=6, width=4):
    """The gradient of a batch with rows 0, 1 and one that depends on `step`."""
    values = np.random.default_rng(step).normal(size=(rows, width))
    values[[row for row in range(rows) if row not in (0, 1, step % rows)]] = 0
    return values


def start():
    return np.random.default_rng(99).normal(size=(6, 4))


def test_it_equals_a_plain_loop():
    table = torch.nn.Parameter(torch.tensor(start()))
    optimizer = RowwiseAdamW([table], **SETTINGS)
    weights, m, v = start(), np.zeros((6, 4)), np.zeros(6)
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
    ours, theirs = RowwiseAdamW([table], **SETTINGS), torch.optim.AdamW([plain], **SETTINGS)
    for step in range(5):
        generator = torch.Generator().manual_seed(step)
        signs = torch.randint(0, 2, (3, 4), generator=generator) * 2.0 - 1
        table.grad = plain.grad = signs * torch.tensor([[0.1], [1.0], [3.0]])
        ours.step()
        theirs.step()
    torch.testing.assert_close(table, plain)
