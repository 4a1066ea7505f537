import math

import pytest
import torch

from stemrepro.model.loss import token_losses


def test_losses_are_negative_log_likelihoods():
    logits, targets = torch.randn(2, 3, 5), torch.tensor([[0, 1, 2], [4, 3, 0]])
    losses = token_losses(logits, targets)
    for b in range(2):
        for t in range(3):
            p = torch.exp(logits[b, t]) / torch.exp(logits[b, t]).sum()
            assert float(losses[b, t]) == pytest.approx(-math.log(float(p[targets[b, t]])), rel=1e-5)
