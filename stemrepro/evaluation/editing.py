"""Knowledge editing by reading other rows (paper, section on interpretability and Fig. 7).

At the positions of the source entity the tables are read as if the target were there; the prompt, the input embeddings
and all weights stay. What is read at a position is a weighted sum of what the target's own prompt reads at its
positions. So one function serves every mismatch of lengths and every kind of table. It also serves a dense model: the
up-projection's output at the target's positions is patched in.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from stemrepro.common.errors import UserError, unknown
from stemrepro.evaluation.prompts import Question
from stemrepro.model.transformer import Decoder

SCHEMES = ("one-to-one", "left-pad", "right-pad", "copy", "subset", "average", "auto")
"""How target rows are dealt out to source positions.

Padding reads the row of the end mark. `auto` is one-to-one where lengths are equal, and else the average (official
package)."""


def patched_modules(model: Decoder) -> list[nn.Module]:
    """Return what reads a row per token, from the lowest layer up.

    These are the tables of FFNs, of attention, or of pairs at the input. In a model without any, they are the
    up-projections of the layers that STEM replaces, all but the first. UserError: the model has a memory outside of its
    FFNs, whose rows are not the token's alone.
    """
    if model.memory is not None:
        raise UserError(f"memory '{model.config.memory}' has no rows that an edit could swap")
    tables: list[nn.Module] = [] if model.pairs is None else [model.pairs.table]
    for block in model.blocks:
        for owner in (block.attention, block.ffn):
            if isinstance(table := getattr(owner, "table", None), nn.Module):
                tables.append(table)
    return tables or up_projections(model.blocks[1:])


def up_projections(blocks: Iterable[nn.Module]) -> list[nn.Module]:
    """Return those of the blocks whose FFN has one."""
    return [up for block in blocks if isinstance(up := getattr(block.ffn, "up", None), nn.Module)]


def shares(scheme: str, source: int, target: Sequence[int]) -> list[list[tuple[int, float]]]:
    """Return what each of `source` positions reads: pairs (place in the target's name, weight); -1 is the end mark.

    `target` has the bytes of each of the target's tokens; `subset` keeps the longest ones, in their order.
    ValueError: the scheme doesn't fit the lengths; UserError: there is no such scheme.
    """
    count = len(target)
    if scheme == "auto":
        scheme = "one-to-one" if source == count else "average"
    if scheme not in SCHEMES:
        raise unknown("scheme", scheme, SCHEMES, "stemrepro/evaluation/editing.py")
    fits = {"one-to-one": source == count, "subset": source <= count, "average": True}
    if not fits.get(scheme, source >= count):
        raise ValueError(f"scheme '{scheme}' can't put {count} tokens in the place of {source}")
    every, free = list(range(count)), [-1] * (source - count)
    if scheme == "average":
        return [[(place, 1 / count) for place in every]] * source
    if scheme == "subset":
        read = sorted(sorted(every, key=lambda place: (-target[place], place))[:source])
    elif scheme == "copy":
        times = source // count
        read = [-1] * (source - times * count) + every * times
    else:
        read = every + free if scheme == "right-pad" else free + every
    return [[(place, 1.0)] for place in read]


def mixing(sources: list[Question], targets: list[Question], scheme: str, lengths: Sequence[int]) -> Tensor:
    """Return weights [n, longest source prompt, longest target prompt].

    They say what a source position reads of the target's positions. Positions whose rows are zeros are left alone.
    """
    size = [max(len(question.prompt) for question in side) for side in (sources, targets)]
    weights = torch.zeros(len(sources), *size)
    for number, (source, target) in enumerate(zip(sources, targets, strict=True)):
        dealt = shares(scheme, len(source.places), [lengths[token] for token in target.entity])
        for place, reads in zip(source.places, dealt, strict=True):
            for which, weight in reads:
                position = target.places[which] if which >= 0 else 0  # the end mark begins every prompt
                weights[number, place, position] += weight
    return weights


@contextmanager
def capture(modules: list[nn.Module]) -> Iterator[list[Tensor]]:
    """Capture what modules give in the next forward pass, [n, T, f] each, in the order of `modules`."""
    kept = [torch.empty(0)] * len(modules)

    def keep(place: int) -> Callable[[nn.Module, Any, Tensor], None]:
        def hook(_: nn.Module, __: Any, out: Tensor) -> None:
            kept[place] = out.detach()

        return hook

    with ExitStack() as hooks:
        for place, module in enumerate(modules):
            hooks.enter_context(module.register_forward_hook(keep(place)))
        yield kept


@contextmanager
def patch(modules: list[nn.Module], read: list[Tensor], weights: Tensor) -> Iterator[None]:
    """Let modules give other vectors at some positions, in passes of rows that begin with the source prompts.

    `read` is of each module what the targets' prompts read, [n, T of the targets, f]; `weights` what `mixing` gives.
    """
    touched = weights.sum(dim=-1) > 0

    def replacing(vectors: Tensor) -> Callable[[nn.Module, Any, Tensor], Tensor]:
        def hook(_: nn.Module, __: Any, out: Tensor) -> Tensor:
            length = weights.shape[1]
            new = torch.einsum("nst,ntf->nsf", weights, vectors[:, : weights.shape[2]].to(weights.dtype)).to(out.dtype)
            head = torch.where(touched[..., None], new, out[:, :length])
            return torch.cat([head, out[:, length:]], dim=1)

        return hook

    with ExitStack() as hooks:
        for module, vectors in zip(modules, read, strict=True):
            hooks.enter_context(module.register_forward_hook(replacing(vectors)))
        yield
