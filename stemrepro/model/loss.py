"""The loss of every arm, in training and in scoring."""

import torch.nn.functional as F
from torch import Tensor


def token_losses(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the losses of logits [B, T, V] and targets [B, T]: negative log-likelihoods in nats, float32 [B, T]."""
    return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten(), reduction="none").view_as(targets)
