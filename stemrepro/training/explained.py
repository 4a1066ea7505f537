"""How much of an up-projection a row per token can replace: what a retrofit can reach before any training."""

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from stemrepro.model.transformer import Decoder


@torch.no_grad()
def explained(model: Decoder, rows: Mapping[int, Tensor], batches: Iterable[Tensor]) -> dict[int, float]:
    """Return the share of the variance of W_u x that the token's row explains, by layer.

    Over a text it is 1 - sum |W_u x - U[t]|^2 / sum |W_u x - mean|^2.

    Args:
        model: dense, in evaluation.
        rows: tables by layer, each [vocab, ffn_width].
        batches: token ids [batch, seq], best of a text that the rows were not made from.
    """
    sums = {layer: torch.zeros(3, rows[layer].shape[1], dtype=torch.float64) for layer in rows}
    count = 0

    def add(layer: int, x: Tensor, tokens: Tensor) -> None:
        up = model.blocks[layer].ffn.up(x).double().flatten(0, 1)
        left = up - rows[layer][tokens].flatten(0, 1)
        sums[layer] += torch.stack([left.square().sum(0), up.square().sum(0), up.sum(0)])

    hooks = [
        model.blocks[layer].ffn.register_forward_pre_hook(lambda _, read, layer=layer: add(layer, *read))
        for layer in rows
    ]
    try:
        for tokens in batches:
            count += tokens.numel()
            model(tokens)
    finally:
        for hook in hooks:
            hook.remove()
    return {
        layer: float(1 - left.sum() / (square - total.square() / count).sum())
        for layer, (left, square, total) in sums.items()
    }
