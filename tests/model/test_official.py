"""The decoder against the official code's transformer, whose equations stand here as loops over positions and heads.

They were read off apps/main/stem.py and lingua/transformer.py of github.com/Infini-AI-Lab/STEM at dcc9b73. Its quirks:
a head's entries are rotated as neighbouring pairs (2i, 2i + 1), table j is that of the j-th STEM layer, and the output
head may be the input embedding (`tied`).
"""

import math
from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor

from stemrepro.model.config import ModelConfig
from stemrepro.model.transformer import Decoder


@dataclass(frozen=True)
class Official:
    """The shape of one of their models."""

    vocab: int
    width: int
    layers: int
    heads: int
    kv_heads: int
    ffn_width: int
    stem_layers: tuple[int, ...] = ()
    base: float = 10000.0
    eps: float = 1e-5
    tied: bool = False

    @property
    def head_width(self) -> int:
        return self.width // self.heads


def drawn(shape: Official, seed: int = 0) -> dict[str, Tensor]:
    """Weights under their names, in float64; gains are near 1, so that one that is left out shows."""
    d, f, kv = shape.width, shape.ffn_width, shape.kv_heads * shape.head_width
    shapes = {"tok_embeddings": (shape.vocab, d), "norm": (d,)} | ({} if shape.tied else {"output": (shape.vocab, d)})
    for n in range(shape.layers):
        layer = {"attention_norm": (d,), "attention.wq": (d, d), "attention.wk": (kv, d), "attention.wv": (kv, d)}
        layer |= {"attention.wo": (d, d), "ffn_norm": (d,), "feed_forward.w1": (f, d), "feed_forward.w2": (d, f)}
        if n not in shape.stem_layers:
            layer["feed_forward.w3"] = (f, d)
        shapes |= {f"layers.{n}.{name}": size for name, size in layer.items()}
    shapes |= {f"stem_embeddings.{j}": (shape.vocab, f) for j in range(len(shape.stem_layers))}
    draw = torch.Generator().manual_seed(seed)
    state = {}
    for name, size in shapes.items():
        normal = torch.randn(size, generator=draw, dtype=torch.float64)
        state[f"{name}.weight"] = 1 + 0.2 * normal if len(size) == 1 else normal * size[-1] ** -0.5
    return state


def normed(x: Tensor, gain: Tensor, eps: float) -> Tensor:
    return x / ((x * x).mean(-1, keepdim=True) + eps).sqrt() * gain


def rotated(x: Tensor, base: float) -> Tensor:
    """Each pair (2i, 2i + 1) of a head turned by position / base^(2i / head width): x [B, T, heads, head width]."""
    width, turned = x.shape[-1], torch.zeros_like(x)
    for place in range(x.shape[1]):
        for i in range(0, width, 2):
            angle = place / base ** (i / width)
            first, second = x[:, place, :, i], x[:, place, :, i + 1]
            turned[:, place, :, i] = first * math.cos(angle) - second * math.sin(angle)
            turned[:, place, :, i + 1] = first * math.sin(angle) + second * math.cos(angle)
    return turned


def logits_of(state: dict[str, Tensor], shape: Official, tokens: Tensor) -> Tensor:
    """The logits: tokens [B, T] -> [B, T, vocab]."""
    x = state["tok_embeddings.weight"][tokens]
    for n in range(shape.layers):
        layer = {key.removeprefix(f"layers.{n}.")[:-7]: value for key, value in state.items()}
        h = normed(x, layer["attention_norm"], shape.eps)
        query = rotated((h @ layer["attention.wq"].T).unflatten(-1, (shape.heads, -1)), shape.base)
        key = rotated((h @ layer["attention.wk"].T).unflatten(-1, (shape.kv_heads, -1)), shape.base)
        value = (h @ layer["attention.wv"].T).unflatten(-1, (shape.kv_heads, -1))
        attended = []
        for place in range(tokens.shape[1]):
            for head in range(shape.heads):
                group = head // (shape.heads // shape.kv_heads)
                score = (key[:, : place + 1, group] * query[:, place, None, head]).sum(-1) / shape.head_width**0.5
                share = score.exp() / score.exp().sum(-1, keepdim=True)
                attended.append((share[..., None] * value[:, : place + 1, group]).sum(1))
        x = x + torch.cat(attended, dim=-1).view_as(x) @ layer["attention.wo"].T
        h = normed(x, layer["ffn_norm"], shape.eps)
        gate = h @ layer["feed_forward.w1"].T
        if n in shape.stem_layers:
            up = state[f"stem_embeddings.{shape.stem_layers.index(n)}.weight"][tokens]
        else:
            up = h @ layer["feed_forward.w3"].T
        x = x + (gate / (1 + (-gate).exp()) * up) @ layer["feed_forward.w2"].T
    head = state["tok_embeddings.weight" if shape.tied else "output.weight"]
    return normed(x, state["norm.weight"], shape.eps) @ head.T


def loss_of(state: dict[str, Tensor], shape: Official, batch: Tensor) -> Tensor:
    """The mean negative log-likelihood of each next token: batch [B, T + 1]."""
    logits = logits_of(state, shape, batch[:, :-1]).flatten(0, 1)
    losses = [row.exp().sum().log() - row[token] for row, token in zip(logits, batch[:, 1:].flatten(), strict=True)]
    return torch.stack(losses).mean()


def gradients_of(state: dict[str, Tensor], shape: Official, batch: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """The loss, and its gradient under each weight's name."""
    state = {name: weight.detach().requires_grad_() for name, weight in state.items()}
    loss = loss_of(state, shape, batch)
    return loss.detach(), dict(zip(state, torch.autograd.grad(loss, list(state.values())), strict=True))


NAMES = {
    "tok_embeddings": "embedding",
    "output": "head",
    "attention.wq": "attention.query",
    "attention.wk": "attention.key",
    "attention.wv": "attention.value",
    "attention.wo": "attention.out",
    "feed_forward.w1": "ffn.gate",
    "feed_forward.w2": "ffn.down",
    "feed_forward.w3": "ffn.up",
}


def in_halves(weight: Tensor, heads: int) -> Tensor:
    """Rows of a projection so that entries i and i + half are a pair of their head, not 2i and 2i + 1."""
    width = len(weight) // heads
    return weight[[head * width + i for head in range(heads) for i in (*range(0, width, 2), *range(1, width, 2))]]


def ours(state: dict[str, Tensor], shape: Official) -> dict[str, Tensor]:
    """Weights or gradients under the decoder's names; a tied head is a copy."""
    named = {}
    for name, weight in state.items():
        kind, *rest = name.removesuffix(".weight").split(".", 2)
        if kind == "layers":
            heads = {"attention.wq": shape.heads, "attention.wk": shape.kv_heads}.get(rest[1])
            weight = in_halves(weight, heads) if heads else weight
            named[f"blocks.{rest[0]}.{NAMES.get(rest[1], rest[1])}.weight"] = weight
        elif kind == "stem_embeddings":
            named[f"blocks.{shape.stem_layers[int(rest[0])]}.ffn.table.weight"] = weight
        else:
            named[f"{NAMES.get(kind, kind)}.weight"] = weight
    return ({"head.weight": named["embedding.weight"]} if shape.tied else {}) | named


def decoder(state: dict[str, Tensor], shape: Official) -> Decoder:
    """The project's model with these weights, in their type."""
    shared = ("vocab", "width", "layers", "heads", "kv_heads", "ffn_width")
    fields = {name: getattr(shape, name) for name in shared} | {"rope_base": shape.base, "norm_eps": shape.eps}
    fields |= {"ffn": "stem" if shape.stem_layers else "dense", "replaced_layers": shape.stem_layers}
    model = Decoder(ModelConfig(**fields)).to(next(iter(state.values())).dtype)
    model.load_state_dict(ours(state, shape))
    return model


# As deep as the published ones, with as many query heads for a key head; widths are cut.
LLAMA_1B = Official(vocab=53, width=32, layers=16, heads=4, kv_heads=1, ffn_width=128, base=500000.0)
MOBILE_350M = Official(vocab=41, width=24, layers=32, heads=3, kv_heads=1, ffn_width=64)
SMALL = Official(vocab=29, width=24, layers=3, heads=4, kv_heads=2, ffn_width=20, base=500.0, eps=1e-2)


@pytest.mark.parametrize(
    "shape",
    [
        replace(LLAMA_1B, stem_layers=(1, 4, 7, 10, 13)),
        replace(MOBILE_350M, stem_layers=tuple(range(1, 32))),
        SMALL,
        replace(SMALL, stem_layers=(2,)),
        replace(SMALL, stem_layers=(1, 2), tied=True),
    ],
    ids=["1B third", "350M full", "dense", "last layer", "tied"],
)
def test_logits_losses_and_gradients_are_those_of_the_official_equations(shape):
    """In float64; angles and losses are rounded to float32 here."""
    state = drawn(shape)
    batch = torch.randint(0, shape.vocab, (2, 8), generator=torch.Generator().manual_seed(1))
    loss, gradients = gradients_of(state, shape, batch)
    model = decoder(state, shape)
    with torch.no_grad():
        torch.testing.assert_close(model(batch[:, :-1]), logits_of(state, shape, batch[:, :-1]), atol=1e-5, rtol=0)
    found = model.losses(batch[:, :-1], batch[:, 1:]).mean()
    assert float(found.detach()) == pytest.approx(float(loss), abs=1e-5)
    found.backward()
    expected = ours(gradients, shape)
    if shape.tied:  # a weight that is read twice has the sum of two gradients
        del expected["head.weight"]
        model.embedding.weight.grad += model.head.weight.grad
    for name, gradient in expected.items():
        torch.testing.assert_close(model.get_parameter(name).grad, gradient, atol=1e-5, rtol=1e-4, msg=name)
        assert gradient.abs().max() > 1e-4, name  # or the comparison would say nothing


@pytest.mark.parametrize(("name", "factor"), [("mobilellm-350m", 1.0), ("llama-3.2-1b", 1.5)])
def test_published_shapes_are_what_the_official_code_makes_of_their_width(catalog, name, factor):
    """Two thirds of four widths, times `ffn_dim_multiplier`, rounded up to a multiple of 256."""
    shape = catalog.shapes[name]
    assert shape.ffn_width == 256 * math.ceil(int(factor * int(8 * shape.width / 3)) / 256)
