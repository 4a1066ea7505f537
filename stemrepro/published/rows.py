"""Rows of a published model: by token and layer, the mean of what the layer's FFN reads where the token stands.

W_u of that mean is the mean of W_u x, the row that STEM would read in the up-projection's place (paper, section 3). So
one mean serves the up-projection and the gate.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import cast

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from stemrepro.common.progress import track
from stemrepro.model.ffn.dense import SwiGLU
from stemrepro.model.transformer import Decoder
from stemrepro.published.models import load, sequences

BATCH = 8
"""Sequences of a pass."""
EIGHTHS = (1, 1, 2, 4)
"""Parts of the rows' text: together the first parts are an eighth of it, a quarter, a half and the whole."""
TRAIN = dict.fromkeys(("speeches", "bible", "plays", "passages", "factbook"), 160)
"""Sequences of each source that rows are means over; the fact book names every country."""
FEWEST = 4
"""A pair of tokens has a row if it stands so often in the text."""
PAIRS, ROWS = "pairs.npy", "rows.safetensors"
"""Files: the pairs of tokens that have rows, and the rows of tokens over the whole text."""


def ffn_of(model: Decoder, layer: int) -> SwiGLU:
    """Return the network of a layer: `gate`, `up` and `down` are its matrices."""
    return cast(SwiGLU, model.blocks[layer].ffn)


def _passed_on(
    keep: Callable[[int, Tensor, Tensor], None], layer: int, _: nn.Module, read: tuple[Tensor, ...], out: Tensor
) -> None:
    keep(layer, read[0], out)


@contextmanager
def watched(model: Decoder, keep: Callable[[int, Tensor, Tensor], None]) -> Iterator[None]:
    """Call `keep` with each layer, what its FFN reads and what it gives [B, T, D], in every pass."""
    with ExitStack() as hooks:
        for layer in range(len(model.blocks)):
            hooks.enter_context(ffn_of(model, layer).register_forward_hook(partial(_passed_on, keep, layer)))
        yield


Change = Callable[[Tensor], Tensor]
"""What becomes of the vectors that an up-projection gives [n, T, F]."""


def constant(given: Tensor) -> Change:
    """Return the change that puts other vectors in their place."""
    return lambda _: given


def _replaced(change: Change, _: nn.Module, __: tuple[Tensor, ...], out: Tensor) -> Tensor:
    return change(out)


@contextmanager
def changed(model: Decoder, changes: Mapping[int, Change]) -> Iterator[None]:
    """Change what the up-projections of some layers give, in all passes within."""
    with ExitStack() as hooks:
        for layer, change in changes.items():
            hooks.enter_context(ffn_of(model, layer).up.register_forward_hook(partial(_replaced, change)))
        yield


@dataclass
class Means:
    """Means by address: a token, or a pair of tokens that is numbered from the size of the vocabulary on.

    Attributes:
        index: place of each address in the tables, -1 where it was not seen; tokens come first [addresses].
        counts: how often each was seen [seen].
        read: means of what the FFN reads [layers, seen, D].
        gave: means of what it gives, of tokens alone [layers, tokens seen, D].
        vocab: how many tokens there are; pairs are numbered from it on.
    """

    index: Tensor
    counts: Tensor
    read: Tensor
    gave: Tensor
    vocab: Tensor

    @property
    def tokens(self) -> int:
        """How many tokens were seen."""
        return self.gave.shape[1]

    def save(self, path: Path) -> None:
        """Write the tables; the file is whole or absent."""
        aside, half = path.with_suffix(".part"), {"read": self.read.bfloat16(), "gave": self.gave.bfloat16()}
        save_file(vars(self) | half, aside)
        aside.replace(path)

    @classmethod
    def load(cls, path: Path) -> "Means":
        """Read the tables, in float32."""
        stored = load_file(path)
        return cls(**stored | {name: stored[name].float() for name in ("read", "gave")})

    def grand(self, table: Tensor) -> Tensor:
        """Return the mean over all places of a table [layers, seen, D] -> [layers, D]."""
        weights = self.counts[: self.tokens] / self.counts[: self.tokens].sum()
        return torch.einsum("s,lsd->ld", weights, table[:, : self.tokens])

    def of_tokens(self) -> "Means":
        """Return the means by token, without those by pair."""
        index, count = self.index[: int(self.vocab)].clone(), self.tokens
        tables = {"counts": self.counts[:count].clone(), "read": self.read[:, :count].contiguous()}
        return replace(self, index=index, **tables)


def looked_up(rows: Tensor, places: Tensor, otherwise: Tensor | float) -> Tensor:
    """Return rows [seen, ...] at places [...], and `otherwise` where a place is below 0."""
    seen = places >= 0
    return torch.where(seen if rows.dim() == 1 else seen[..., None], rows[places.clamp(min=0)], otherwise)


@torch.no_grad()
def means(model: Decoder, tokens: np.ndarray, pairs: np.ndarray, addresses: int) -> Means:
    """Average over sequences [n, T] by token and by pair; `pairs` [n, T] are addresses below `addresses`, or -1."""
    seen = np.unique(np.concatenate([tokens.ravel(), pairs[pairs >= 0]]))
    layers, width = len(model.blocks), model.config.width
    index = torch.full((addresses,), -1, dtype=torch.int32)
    index[torch.from_numpy(seen.astype(np.int64))] = torch.arange(len(seen), dtype=torch.int32)
    counts, read = torch.zeros(len(seen)), torch.zeros(layers, len(seen), width)
    gave = torch.zeros(layers, int((seen < model.config.vocab).sum()), width)
    at: dict[str, Tensor] = {}

    def keep(layer: int, x: Tensor, out: Tensor) -> None:
        read[layer].index_add_(0, at["token"], x.flatten(0, 1))
        read[layer].index_add_(0, at["pair"], x.flatten(0, 1)[at["paired"]])
        gave[layer].index_add_(0, at["token"], out.flatten(0, 1))

    for first in track(range(0, len(tokens), BATCH), "rows"):
        text = torch.from_numpy(tokens[first : first + BATCH].astype(np.int64))
        pair = torch.from_numpy(pairs[first : first + BATCH].astype(np.int64)).flatten()
        at["paired"] = (pair >= 0).nonzero().flatten()
        at["token"], at["pair"] = index[text.flatten()].long(), index[pair[at["paired"]]].long()
        for address in ("token", "pair"):
            counts.index_add_(0, at[address], torch.ones(len(at[address])))
        with watched(model, keep):
            model.hidden(text)
    gave /= counts[: gave.shape[1], None]
    return Means(index, counts, read / counts[:, None], gave, torch.tensor(model.config.vocab))


def added(files: Sequence[Path]) -> Means:
    """Return the means over several texts together, of the files of each; a layer of one file is read at a time."""
    with ExitStack() as stack:
        parts = [stack.enter_context(safe_open(file, "pt")) for file in files]
        held = [{name: part.get_tensor(name) for name in ("index", "counts", "vocab")} for part in parts]
        seen = torch.stack([each["index"] for each in held]).amax(dim=0).ge(0).nonzero().flatten()
        index = torch.full_like(held[0]["index"], -1)
        index[seen] = torch.arange(len(seen), dtype=torch.int32)
        places = [index[each["index"].ge(0).nonzero().flatten()].long() for each in held]
        counts = torch.zeros(len(seen))
        for each, at in zip(held, places, strict=True):
            counts[at] += each["counts"]
        vocab = held[0]["vocab"]
        tables = {}
        for name, rows in (("read", len(seen)), ("gave", int((seen < vocab).sum()))):
            layers, _, width = parts[0].get_slice(name).get_shape()
            tables[name] = torch.zeros(layers, rows, width)
            for part, each, at in zip(parts, held, places, strict=True):
                stored = part.get_slice(name)
                for layer in range(layers):
                    given = stored[layer].float()
                    tables[name][layer, at[: len(given)]] += given * each["counts"][: len(given), None]
            tables[name] /= counts[:rows, None]
    return Means(index, counts, **tables, vocab=vocab)


def paired(tokens: np.ndarray, known: np.ndarray, vocab: int) -> np.ndarray:
    """Return the address of each place's pair: of the token before and its own [n, T]; -1 where it isn't in `known`."""
    both = tokens[:, :-1].astype(np.int64) * vocab + tokens[:, 1:]
    place = np.searchsorted(known, both).clip(max=max(len(known) - 1, 0))
    found = np.where(known[place] == both, vocab + place, -1) if len(known) else np.full_like(both, -1)
    return np.concatenate([np.full_like(found[:, :1], -1), found], axis=1)


def known_pairs(tokens: np.ndarray, vocab: int) -> np.ndarray:
    """Return the pairs that stand FEWEST times or more, sorted."""
    pairs, counts = np.unique(tokens[:, :-1].astype(np.int64) * vocab + tokens[:, 1:], return_counts=True)
    return pairs[counts >= FEWEST]


def parts(home: Path) -> list[Path]:
    """Return the files of the parts of a text's rows."""
    return [home / f"part-{part}.safetensors" for part in range(len(EIGHTHS))]


def make(name: str, corpus: Path, home: Path) -> None:
    """Write means over the rows' text into `home`, part by part, as far as they aren't there."""
    model = load(name)
    tokens, vocab = np.stack(sequences(model, corpus, "train", TRAIN)["tokens"]), model.decoder.config.vocab
    known = known_pairs(tokens, vocab)
    pairs = paired(tokens, known, vocab)
    np.save(home / PAIRS, known)
    part = np.repeat(range(len(EIGHTHS)), EIGHTHS)[np.arange(len(tokens)) % sum(EIGHTHS)]
    for number, file in enumerate(parts(home)):
        if not file.exists():
            means(model.decoder, tokens[part == number], pairs[part == number], vocab + len(known)).save(file)
    if not (home / ROWS).exists():
        added(parts(home)).of_tokens().save(home / ROWS)
