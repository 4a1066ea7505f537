"""From a trained dense model to STEM: the row of token t is W_u times the mean input of the layer's network at token t.

A dense layer multiplies its gate by W_u x, a STEM layer by a row that depends on the token alone. Of all such rows
W_u E[x | t] is nearest to W_u x in the mean square. Where x depends on the token alone, both models are the same
function.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from stemrepro.common.errors import UserError
from stemrepro.config.retrofit import KINDS, Kind, check
from stemrepro.data.blocks import TokenBlocks
from stemrepro.model.config import JSON, ModelConfig
from stemrepro.model.transformer import Decoder
from stemrepro.training.checkpoint import beginning_of
from stemrepro.training.run import Run


@torch.no_grad()
def read_means(model: Decoder, layers: Sequence[int], batches: Iterable[Tensor], kind: Kind) -> dict[int, Tensor]:
    """Return, by layer, the mean of what its network reads at each token of a text: float64 [vocab, width].

    Tokens that the text lacks have the mean over all tokens, and so has every token where `kind` is "mean-row". The
    batches are token ids [batch, seq]. UserError: they have no token.
    """
    config, device = model.config, model.head.weight.device
    sums = {n: torch.zeros(config.vocab, config.width, dtype=torch.float64, device=device) for n in layers}
    counts = torch.zeros(config.vocab, dtype=torch.float64, device=device)

    def add(layer: int, x: Tensor, tokens: Tensor) -> None:
        sums[layer].index_add_(0, tokens.flatten(), x.flatten(0, 1).double())

    hooks = [model.ffns[n].register_forward_pre_hook(lambda _, read, n=n: add(n, *read)) for n in layers]
    try:
        for tokens in batches:
            tokens = tokens.to(device)
            counts += torch.bincount(tokens.flatten(), minlength=config.vocab)
            model(tokens)
    finally:
        for hook in hooks:
            hook.remove()
    if not counts.sum():
        raise UserError("the text of a retrofit has no token; give it one batch at least")
    of_its_own = (counts[:, None] > 0) & (kind == "token-means")
    overall = {n: total.sum(dim=0) / counts.sum() for n, total in sums.items()}
    return {n: torch.where(of_its_own, sums[n] / counts.clamp(min=1)[:, None], overall[n]) for n in layers}


def retrofitted(model: Decoder, stem: ModelConfig, batches: Iterable[Tensor], kind: Kind) -> dict[str, Tensor]:
    """Return the state of a STEM model made from a dense one: in `stem.replaced_layers` tables replace up-projections.

    The dense model, in evaluation, is left as it is. UserError: see `check` and `read_means`, which has the batches.
    """
    check(model.config, stem)
    state = {name: value.detach().clone() for name, value in model.state_dict().items()}
    for layer, read in read_means(model, stem.replaced_layers, batches, kind).items():
        up = state.pop(f"blocks.{layer}.ffn.up.weight")
        state[f"blocks.{layer}.ffn.table.weight"] = (read @ up.double().T).to(up.dtype).contiguous()
    return state


def row_text(run: Run, text: TokenBlocks) -> Iterator[Tensor]:
    """Yield the first `row_tokens` tokens that the run before was trained on, in its order: int64 [rows, sequence]."""
    assert run.init_from is not None, f"{run} begins anew"
    size, sequences = run.training.micro_batch, run.init_from.row_tokens // run.training.sequence
    for k in range(-(-sequences // size)):
        yield text.batch(run.seed, k, size)[: sequences - k * size, :-1]


def beginning(run: Run, text: TokenBlocks) -> dict[str, Any]:
    """Return the checkpoint for LanguageModule.take_over; in a retrofit tables replace the up-projections in it.

    Its optimiser's state is by parameter name: nothing about such tables, and about all else what it was.
    UserError: see `beginning_of` and `retrofitted`.
    """
    checkpoint = beginning_of(run)
    kind = next((kind for kind in KINDS if run.init_from and kind == run.init_from.tables), None)
    if kind is None:
        return checkpoint
    shape = JSON.validate_python(checkpoint["run_config"]["model"])
    check(shape, run.model)  # before a network is imported that a retrofit can't begin with
    dense = Decoder(shape).eval()
    state = {name.removeprefix("model."): value for name, value in checkpoint["state_dict"].items()}
    dense.load_state_dict(state)
    weights = retrofitted(dense, run.model, row_text(run, text), kind)
    return checkpoint | {"state_dict": {f"model.{name}": value for name, value in weights.items()}}
