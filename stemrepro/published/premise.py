"""How much of what an up-projection computes the token alone tells: the premise of STEM in a published model.

The paper's reason for tables is that W_u x makes an address, and that the token id is one (section 3). Here the address
of a trained model is compared with the best that a token can say: the mean of W_u x over the token's places in a text.
The text that is asked is held out.
"""

from itertools import accumulate
from pathlib import Path

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from torch import Tensor

from stemrepro.common.progress import track
from stemrepro.model.loss import token_losses
from stemrepro.published.models import LENGTH, Model, load, sequences, write_parquet
from stemrepro.published.rows import (
    BATCH,
    EIGHTHS,
    PAIRS,
    TRAIN,
    Means,
    added,
    changed,
    constant,
    ffn_of,
    looked_up,
    paired,
    parts,
    watched,
)

HELD_OUT = dict.fromkeys(("speeches", "bible", "plays", "passages"), 12)
REPLACED = dict.fromkeys(HELD_OUT, 2)
"""Sequences that are asked, and that are read with one layer's rows in place of W_u x."""
UP, GATE, OUT = "W_u x", "W_g x", "FFN output"


def _left(y: Tensor, row: Tensor, weights: Tensor | float = 1.0) -> Tensor:
    """Return weighted sums of squares of y - row by sequence, without the start token [n]."""
    return ((y - row).square().sum(dim=-1) * weights)[:, 1:].sum(dim=1)


@torch.no_grad()
def shares(model: Model, rows: Means, text: pd.DataFrame, budget: int, pairs: np.ndarray | None = None) -> pd.DataFrame:
    """Return what rows leave unexplained on a text, by layer and sequence.

    Args:
        text: sequences, as `sequences` returns them.
        budget: tokens of the rows' text.
        pairs: address of each place's pair [n, T]; with them the addresses "pair" (else the token) and "another token"
            (its row is that of a token of the text drawn by chance) are asked too.

    Returns:
        budget; layer; what: UP, GATE or OUT; address; sequence; source; total: squares around the mean over the rows'
        text; left: squares around the row. A token that the text of the rows lacks has that mean. Address "limit" is
        what rows of endless text would leave: a mean over n places leaves (n + 1) / n of the variance around the
        token's true mean, if places are drawn one by one. It leaves tokens out that the text lacks.
    """
    decoder, tokens, out = model.decoder, np.stack(text["tokens"]).astype(np.int64), []
    at = {"token": tokens}
    if pairs is not None:
        drawn = np.random.default_rng(0).permutation(tokens[:, 1:].ravel()).reshape(len(tokens), -1)
        at["another token"] = np.concatenate([tokens[:, :1], drawn], axis=1)
        at["pair"] = np.where((pairs >= 0) & (rows.index.numpy()[pairs] >= 0), pairs, tokens)
    places = {name: rows.index[torch.from_numpy(address)].long() for name, address in at.items()}
    counts = looked_up(rows.counts, places["token"], 0.0)
    read_mean, gave_mean, batch = rows.grand(rows.read), rows.grand(rows.gave), slice(0)

    def note(layer: int, what: str, address: str, total: Tensor, left: Tensor) -> None:
        for number, squares, rest in zip(range(batch.start, batch.stop), total.tolist(), left.tolist(), strict=True):
            out.append((budget, layer, what, address, number, text["source"].iloc[number], squares, rest))

    def keep(layer: int, x: Tensor, gave: Tensor) -> None:
        ffn = ffn_of(decoder, layer)
        for what, weight in ((UP, ffn.up.weight), (GATE, ffn.gate.weight)):
            y = F.linear(x, weight)
            total = _left(y, F.linear(read_mean[layer], weight))
            for address, where in places.items():
                row = F.linear(looked_up(rows.read[layer], where[batch], read_mean[layer]), weight)
                note(layer, what, address, total, _left(y, row))
                if address == "token":
                    n = counts[batch]
                    total_seen = _left(y, F.linear(read_mean[layer], weight), (n > 0).float())
                    note(layer, what, "limit", total_seen, _left(y, row, n / (n + 1)))
        row = looked_up(rows.gave[layer], places["token"][batch], gave_mean[layer])
        note(layer, OUT, "token", _left(gave, gave_mean[layer]), _left(gave, row))

    for first in track(range(0, len(tokens), BATCH), f"shares, {budget:,} tokens"):
        batch = slice(first, min(first + BATCH, len(tokens)))
        with watched(decoder, keep):
            decoder.hidden(torch.from_numpy(tokens[batch]))
    return pd.DataFrame(out, columns=["budget", "layer", "what", "address", "sequence", "source", "total", "left"])


@torch.no_grad()
def costs(model: Model, rows: Means, text: pd.DataFrame) -> pd.DataFrame:
    """Read a text with the rows of one layer in place of its W_u x.

    Returns:
        layer, sequence, source, tokens, nats: loss with the rows, dense: loss without, kl: divergence from dense's next
        tokens to those with the rows. All are sums over a sequence, in nats.
    """
    decoder, out = model.decoder, []
    tokens, read_mean = torch.from_numpy(np.stack(text["tokens"]).astype(np.int64)), rows.grand(rows.read)
    for number in track(range(len(tokens)), "one layer's rows"):
        row, places = tokens[number : number + 1], rows.index[tokens[number : number + 1]].long()
        base = decoder(row[:, :-1]).log_softmax(dim=-1)
        dense = token_losses(base, row[:, 1:]).sum().item()
        for layer in range(len(decoder.blocks)):
            row_of = looked_up(rows.read[layer], places, read_mean[layer])
            given = F.linear(row_of, ffn_of(decoder, layer).up.weight)[:, :-1]
            with changed(decoder, {layer: constant(given)}):
                after = decoder(row[:, :-1]).log_softmax(dim=-1)
            kl = (base.exp() * (base - after)).sum().item()
            nats = token_losses(after, row[:, 1:]).sum().item()
            out.append((layer, number, text["source"].iloc[number], row.shape[1] - 1, nats, dense, kl))
    return pd.DataFrame(out, columns=["layer", "sequence", "source", "tokens", "nats", "dense", "kl"])


def make(name: str, corpus: Path, rows: Path, out: Path) -> None:
    """Write shares.<tokens>.parquet for each length of the rows' text, and costs.parquet, into `out`."""
    model = load(name)
    asked = sequences(model, corpus, "validation", HELD_OUT)
    tokens, known = np.stack(asked["tokens"]), np.load(rows / PAIRS)
    for count, eighths in enumerate(accumulate(EIGHTHS), 1):
        budget, last = eighths * LENGTH * sum(TRAIN.values()) // sum(EIGHTHS), count == len(EIGHTHS)
        files = [out / f"shares.{budget}.parquet"] + [out / "costs.parquet"] * last
        if all(file.exists() for file in files):
            continue
        means = added(parts(rows)[:count])
        pairs = paired(tokens, known, model.decoder.config.vocab) if last else None
        write_parquet(files[0], shares(model, means, asked, budget, pairs))
        if last:
            write_parquet(files[1], costs(model, means, sequences(model, corpus, "validation", REPLACED)))
