import math

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from stemrepro.model.loss import losses_in_parts, token_losses


def test_losses_are_negative_log_likelihoods():
    logits, targets = torch.randn(2, 3, 5), torch.tensor([[0, 1, 2], [4, 3, 0]])
    losses = token_losses(logits, targets)
    for b in range(2):
        for t in range(3):
            p = torch.exp(logits[b, t]) / torch.exp(logits[b, t]).sum()
            assert float(losses[b, t]) == pytest.approx(-math.log(float(p[targets[b, t]])), rel=1e-5)


class Largest(TorchDispatchMode):
    """The most elements that a tensor had."""

    elements = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **kwargs or {})
        if isinstance(result, torch.Tensor):
            self.elements = max(self.elements, result.numel())
        return result


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_losses_in_parts_are_those_of_all_logits(dtype):
    """And so are the gradients, with no more than 4 tokens' logits at a time."""
    torch.manual_seed(0)
    hidden, head = torch.randn(2, 5, 8, dtype=dtype), nn.Linear(8, 100, bias=False).to(dtype)
    targets, weight = torch.randint(100, (2, 5)), torch.arange(1.0, 11.0).view(2, 5)
    found = []
    for at_once in (None, 4):
        inputs = hidden.clone().requires_grad_()
        with Largest() as largest:
            losses = losses_in_parts(head, inputs, targets, at_once) if at_once else token_losses(head(inputs), targets)
            gradients = torch.autograd.grad((losses * weight).sum(), [inputs, head.weight])
        assert largest.elements == (max(4 * 100, 100 * 8) if at_once else 10 * 100)
        assert losses.dtype == torch.float32
        found.append((losses, *gradients))
    exact = dtype == torch.float32
    for whole, parts in zip(*found, strict=True):
        torch.testing.assert_close(parts, whole, atol=1e-5 if exact else 0.5, rtol=1e-5 if exact else 0.02)
