"""How much of what an up-projection computes the token alone tells: the premise of STEM in a published model.

The paper's reason for tables is that W_u x makes an address, and that the token id is one (section 3). Here the address
of a trained model is compared with the best that a token can say: the mean of W_u x over the token's places in a text.
The text that is asked is held out.
"""

from pathlib import Path

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from torch import Tensor

from stemrepro.common.progress import track
from stemrepro.model.loss import token_losses
from stemrepro.published.models import Model, load
from stemrepro.published.rows import BATCH, PAIRS, PARTS, TRAIN, Means, added, paired, parts, watched
from stemrepro.published.texts import LENGTH, sequences, write_parquet

HELD_OUT = dict.fromkeys(("speeches", "bible", "plays", "passages"), 20)
REPLACED = dict.fromkeys(HELD_OUT, 2)
"""Sequences that are asked, and that are read with one layer's rows in place of W_u x."""
UP, GATE, OUT = "W_u x", "W_g x", "FFN output"


def _left(y: Tensor, row: Tensor) -> Tensor:
    """Return sums of squares of y - row by sequence, without the start token [n]."""
    return (y - row).square().sum(dim=-1)[:, 1:].sum(dim=1)


@torch.no_grad()
def shares(model: Model, rows: Means, text: pd.DataFrame, known: np.ndarray, budget: int) -> pd.DataFrame:
    """Return what rows leave unexplained on a text, by layer and sequence.

    Returns:
        budget; layer; what: UP, GATE or OUT; address: token, pair (else the token), another token (its row is that of
        a token of the text drawn by chance); sequence; source; total: squares around the mean over the rows' text;
        left: squares around the row. A token that the text of the rows lacks has that mean.
    """
    decoder, vocab, out = model.decoder, model.decoder.config.vocab, []
    tokens = np.stack(text["tokens"]).astype(np.int64)
    pairs = paired(tokens, known, vocab)
    drawn = np.random.default_rng(0).permutation(tokens[:, 1:].ravel()).reshape(tokens.shape[0], -1)
    drawn = np.concatenate([tokens[:, :1], drawn], axis=1)
    seen_pair = np.where((pairs >= 0) & (rows.index.numpy()[pairs] >= 0), pairs, tokens)
    read_mean, gave_mean = rows.grand(rows.read), rows.grand(rows.gave)
    for first in track(range(0, len(tokens), BATCH), f"shares, {budget:,} tokens"):
        batch = slice(first, first + BATCH)
        at = {"token": tokens[batch], "pair": seen_pair[batch], "another token": drawn[batch]}
        places = {name: rows.index[torch.from_numpy(address)].long() for name, address in at.items()}

        def table(table: Tensor, mean: Tensor, layer: int, places: Tensor) -> Tensor:
            return torch.where((places < 0)[..., None], mean[layer], table[layer][places.clamp(min=0)])

        def keep(layer: int, x: Tensor, gave: Tensor) -> None:
            block, sums = decoder.blocks[layer].ffn, []
            for address, where in places.items():
                row = table(rows.read, read_mean, layer, where)
                for what, weight in ((UP, block.up.weight), (GATE, block.gate.weight)):
                    left = _left(F.linear(x, weight), F.linear(row, weight))
                    total = _left(F.linear(x, weight), F.linear(read_mean[layer], weight))
                    sums.append((what, address, total, left))
            row = table(rows.gave, gave_mean, layer, places["token"])
            sums.append((OUT, "token", _left(gave, gave_mean[layer]), _left(gave, row)))
            for what, address, total, left in sums:
                for number, (all_, rest) in enumerate(zip(total.tolist(), left.tolist(), strict=True), first):
                    out.append((budget, layer, what, address, number, text["source"].iloc[number], all_, rest))

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
    tokens = torch.from_numpy(np.stack(text["tokens"]).astype(np.int64))
    read_mean = rows.grand(rows.read)
    for number in track(range(len(tokens)), "one layer's rows"):
        row, places = tokens[number : number + 1], rows.index[tokens[number : number + 1]].long()
        base = decoder(row[:, :-1]).log_softmax(dim=-1)
        dense = token_losses(base, row[:, 1:]).sum().item()
        for layer, block in enumerate(decoder.blocks):
            read = torch.where((places < 0)[..., None], read_mean[layer], rows.read[layer][places.clamp(min=0)])
            given = F.linear(read, block.ffn.up.weight)[:, :-1]
            hook = block.ffn.up.register_forward_hook(lambda *_, given=given: given)
            try:
                after = decoder(row[:, :-1]).log_softmax(dim=-1)
            finally:
                hook.remove()
            kl = (base.exp() * (base - after)).sum().item()
            nats = token_losses(after, row[:, 1:]).sum().item()
            out.append((layer, number, text["source"].iloc[number], row.shape[1] - 1, nats, dense, kl))
    return pd.DataFrame(out, columns=["layer", "sequence", "source", "tokens", "nats", "dense", "kl"])


def make(name: str, corpus: Path, rows: Path, scores: Path) -> None:
    """Write shares-<tokens>.parquet for each length of the rows' text, and costs.parquet; what a killed run made stays.

    Args:
        name: of the model.
        corpus: a corpus.parquet.
        rows: folder with the parts of the rows.
        scores: folder of the tables.
    """
    model = load(name)
    known, asked = np.load(rows / PAIRS), sequences(model, corpus, "validation", HELD_OUT)
    for count in (1, 2, 4, PARTS):
        budget = count * LENGTH * sum(TRAIN.values()) // PARTS
        wanted = {f"shares-{budget}": lambda means, budget=budget: shares(model, means, asked, known, budget)}
        if count == PARTS:
            replaced = sequences(model, corpus, "validation", REPLACED)
            wanted["costs"] = lambda means: costs(model, means, replaced)
        missing = {table: make for table, make in wanted.items() if not (scores / f"{table}.parquet").exists()}
        means = added(parts(rows)[:count]) if missing else None
        for table, make_table in missing.items():
            write_parquet(scores / f"{table}.parquet", make_table(means))
