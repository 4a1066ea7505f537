"""From a trained dense model to STEM: the row of token t is W_u times the mean input of the layer's network at token t.

A dense layer multiplies its gate by W_u x, a STEM layer by a row that depends on the token alone. Of all such rows
W_u E[x | t] is nearest to W_u x in the mean square. Where x depends on the token alone, both models are the same
function.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from stemrepro.common.errors import UserError
from stemrepro.config.retrofit import Kind, check
from stemrepro.model.config import ModelConfig
from stemrepro.model.ffn.dense import SwiGLU
from stemrepro.model.transformer import Decoder


@dataclass
class Means:
    """What the networks of some layers read, summed by token in float64.

    Attributes:
        sums: by layer, over a text [vocab, width].
        counts: how often the text has each token [vocab].
    """

    sums: dict[int, Tensor]
    counts: Tensor

    def overall(self, layer: int) -> Tensor:
        """Return the mean over all tokens of the text [width]."""
        return self.sums[layer].sum(dim=0) / self.counts.sum()

    def by_token(self, layer: int) -> Tensor:
        """Return the mean per token [vocab, width]; for tokens that the text lacks the overall one."""
        means = self.sums[layer] / self.counts.clamp(min=1)[:, None]
        return torch.where(self.counts[:, None] > 0, means, self.overall(layer))


@torch.no_grad()
def read_means(model: Decoder, layers: Sequence[int], batches: Iterable[Tensor]) -> Means:
    """Pass a text through a model and sum what its networks read.

    Args:
        layers: whose networks' inputs, after the norm, are summed.
        batches: token ids [batch, seq], any number of them.

    Raises:
        UserError: the text has no token.
    """
    config, device = model.config, model.head.weight.device
    nothing = torch.zeros(config.vocab, config.width, dtype=torch.float64, device=device)
    means = Means({layer: nothing.clone() for layer in layers}, torch.zeros_like(nothing[:, 0]))

    def add(layer: int, x: Tensor, tokens: Tensor) -> None:
        means.sums[layer].index_add_(0, tokens.flatten(), x.flatten(0, 1).double())

    hooks = [
        model.ffns[layer].register_forward_pre_hook(lambda _, read, layer=layer: add(layer, *read)) for layer in layers
    ]
    try:
        for tokens in batches:
            tokens = tokens.to(device)
            means.counts += torch.bincount(tokens.flatten(), minlength=config.vocab)
            model(tokens)
    finally:
        for hook in hooks:
            hook.remove()
    if not means.counts.sum():
        raise UserError("the text of a retrofit has no token; give it one batch at least")
    return means


def tables(model: Decoder, means: Means, kind: Kind) -> dict[str, Tensor]:
    """Return tables for the layers of `means`, under their names in a STEM model, each [vocab, ffn_width].

    Raises:
        UserError: one of the layers has another network than dense.
    """
    made = {}
    for layer in means.sums:
        ffn = model.ffns[layer]
        if not isinstance(ffn, SwiGLU):
            raise UserError(f"layer {layer} has no up-projection to make rows of; retrofit a dense model")
        read = means.by_token(layer)
        if kind == "mean-row":
            read = means.overall(layer).expand_as(read)
        up = ffn.up.weight.detach()
        made[f"blocks.{layer}.ffn.table.weight"] = (read @ up.double().T).to(up.dtype).contiguous()
    return made


def retrofitted(model: Decoder, stem: ModelConfig, batches: Iterable[Tensor], kind: Kind) -> dict[str, Tensor]:
    """Return the state of a STEM model made from a dense one: in `stem.replaced_layers` tables replace up-projections.

    Args:
        model: dense, in evaluation; it is left as it is.
        stem: the shape to be reached.
        batches: token ids [batch, seq] of a text.

    Raises:
        UserError: see `check` and `read_means`.
    """
    check(model.config, stem)
    gone = {f"blocks.{layer}.ffn.up.weight" for layer in stem.replaced_layers}
    kept = {name: value.detach().clone() for name, value in model.state_dict().items() if name not in gone}
    return kept | tables(model, read_means(model, stem.replaced_layers, batches), kind)
