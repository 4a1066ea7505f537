"""The loss of every arm, in training and in scoring."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint


def token_losses(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the losses of logits [B, T, V] and targets [B, T]: negative log-likelihoods in nats, float32 [B, T]."""
    return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten(), reduction="none").view_as(targets)


def losses_in_parts(head: nn.Module, hidden: Tensor, targets: Tensor, at_once: int) -> Tensor:
    """Return the same of what a head reads [B, T, D], with the logits of `at_once` tokens in memory at a time.

    The backward pass makes logits anew. In bfloat16 the gradient of the head is rounded once a part. Torch's own
    linear_cross_entropy, of 2.13, rounds losses to the type of the weights, which bfloat16 is too narrow for.
    """

    def losses(hidden: Tensor, targets: Tensor) -> Tensor:
        return token_losses(head(hidden), targets)

    each = max(1, at_once // len(targets))  # of every sequence
    parts = zip(torch.split(hidden, each, 1), torch.split(targets, each, 1), strict=True)
    return torch.cat([checkpoint(losses, *part, use_reentrant=False, preserve_rng_state=False) for part in parts], 1)
