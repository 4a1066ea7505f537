"""Several optimisers as one: what updates each group, and when."""

import pytest
import torch
from torch import nn

from stemrepro.training.module import LanguageModule
from stemrepro.training.optimizers import Chain
from stemrepro.training.table_adamw import RowwiseAdamW, TouchedAdamW

SETTINGS = {"lr": 0.02, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.1}


@pytest.mark.parametrize("kind", [TouchedAdamW, RowwiseAdamW])
def test_a_closure_makes_the_gradients_of_its_own_step(kind):
    """Lightning's way: forward and backward run inside `step`, so nothing must move before them."""

    def end(by_closure):
        table, backbone = nn.Parameter(torch.ones(5, 4)), nn.Parameter(torch.ones(4))
        optimizer = Chain([torch.optim.AdamW([backbone], **SETTINGS), kind([table], **SETTINGS)])

        def closure(step):
            optimizer.zero_grad()
            rows = nn.functional.embedding(torch.tensor([step, 4]), table, sparse=kind is TouchedAdamW)
            loss = (rows * backbone - step).square().sum()
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


@pytest.mark.parametrize(
    ("arm", "kind"), [("stem-full", "AdamW"), ("stem-touched", "TouchedAdamW"), ("stem-rowwise", "RowwiseAdamW")]
)
def test_tables_have_the_update_that_their_arm_asks_for(make_run, arm, kind):
    optimizer = LanguageModule(make_run(arm)).configure_optimizers()["optimizer"]
    kinds = {group["name"]: type(part).__name__ for part in optimizer.optimizers for group in part.param_groups}
    assert kinds == {"embedding": "AdamW", "backbone": "AdamW", "tables": kind}
