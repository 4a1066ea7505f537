"""Row-wise AdamW: equal to dense AdamW on rows that every batch touches, still on all others."""

import copy

import pytest
import torch

from stemrepro.training.rowwise import RowwiseAdamW
from stemrepro.training.touched import TouchedAdamW

SETTINGS = {"lr": 0.02, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.1}


def steps(optimizer, table, rows, count=7):
    for step in range(count):
        table.grad = torch.zeros_like(table)
        table.grad[rows] = torch.randn(len(rows), 4, generator=torch.Generator().manual_seed(step))
        optimizer.step()


def test_touched_rows_equal_dense_adamw_and_others_stay():
    start = torch.randn(9, 4, generator=torch.Generator().manual_seed(1))
    rows = [0, 3, 8]
    sparse, dense = torch.nn.Parameter(start.clone()), torch.nn.Parameter(start[rows].clone())
    backbone = torch.nn.Parameter(torch.ones(2))
    groups = [{"params": [backbone]}, {"params": [sparse], "tables": True}]
    steps(TouchedAdamW(groups, **SETTINGS, fused=True), sparse, rows)
    steps(torch.optim.AdamW([dense], **SETTINGS), dense, [0, 1, 2])
    torch.testing.assert_close(sparse.detach()[rows], dense.detach())
    others = [1, 2, 4, 5, 6, 7]
    assert torch.equal(sparse.detach()[others], start[others])


def test_a_row_counts_its_own_steps():
    """A row touched for the first time at step 50 takes the full first step that bias correction gives."""
    table = torch.nn.Parameter(torch.zeros(3, 4))
    optimizer = TouchedAdamW([{"params": [table], "tables": True}], **SETTINGS)
    steps(optimizer, table, [0], 50)
    assert torch.equal(table.detach()[1], torch.zeros(4))
    steps(optimizer, table, [1], 1)
    assert table.detach()[1].abs() == pytest.approx(torch.full((4,), 0.02))


@pytest.mark.parametrize("kind", [TouchedAdamW, RowwiseAdamW])
def test_a_closure_makes_the_gradients_of_its_own_step(kind):
    """Lightning's way: forward and backward run inside `step`, so tables must not move before them."""

    def end(by_closure):
        table, backbone = torch.nn.Parameter(torch.ones(5, 4)), torch.nn.Parameter(torch.ones(4))
        optimizer = kind([{"params": [backbone]}, {"params": [table], "tables": True}], **SETTINGS)

        def closure(step):
            optimizer.zero_grad()
            loss = (table[[step, 4]] * backbone - step).square().sum()
            loss.backward()
            return loss

        for step in range(4):
            if by_closure:
                assert optimizer.step(lambda step=step: closure(step)).requires_grad
            else:
                closure(step)
                optimizer.step()
        return table.detach(), backbone.detach()

    assert all(map(torch.equal, end(by_closure=True), end(by_closure=False)))


def test_its_state_survives_a_save():
    def fresh():
        table = torch.nn.Parameter(torch.ones(5, 4))
        return table, TouchedAdamW([{"params": [table], "tables": True}], **SETTINGS)

    table, optimizer = fresh()
    steps(optimizer, table, [1, 2], 3)
    other, resumed = fresh()
    with torch.no_grad():
        other.copy_(table)
    resumed.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for parameter, used in ((table, optimizer), (other, resumed)):
        steps(used, parameter, [2, 4], 3)
    assert torch.equal(table, other)


def test_its_state_lies_where_the_table_does():
    """On a device that knows shapes alone, where the update itself can't run: a count of steps on the CPU could not be indexed by rows
    on a GPU."""
    table = torch.nn.Parameter(torch.empty(9, 4, device="meta"))
    table.grad = torch.empty(9, 4, device="meta")
    optimizer = TouchedAdamW([{"params": [table], "tables": True}], **SETTINGS)
    with pytest.raises(NotImplementedError, match="nonzero"):
        optimizer.step_table(table, optimizer.param_groups[0])
    assert {name: value.device.type for name, value in optimizer.state[table].items()} == {
        "step": "meta", "exp_avg": "meta", "exp_avg_sq": "meta",
    }  # fmt: skip
