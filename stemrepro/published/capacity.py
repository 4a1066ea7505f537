"""What a longer context touches and is worth: a published model and the same converted (paper, Table 1 and Fig. 1b).

Rows touched are the distinct tokens of a context. They grow with the context by the text alone, in the input embedding
of a dense model, too. What they are worth is in losses: those of the same tokens after more and less of the same text.
"""

from collections.abc import Mapping
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from stemrepro.common.errors import UserError
from stemrepro.common.progress import track
from stemrepro.data.integrity import read_corpus
from stemrepro.model.config import layers_of
from stemrepro.model.loss import token_losses
from stemrepro.model.transformer import Decoder
from stemrepro.published.converted import Rows, convert, rows_of
from stemrepro.published.models import Model, load, once, write_parquet

DOCUMENTS = {"speeches": 4, "factbook": 3, "bible": 3, "plays": 3}
"""How many documents of each source are read: the first that are long enough."""
LENGTHS = (128, 512, 2048, 8192)
"""Tokens of which the distinct ones are counted, from a document's first on."""
BEFORE = (128, 256, 512, 1024, 2048)
"""Tokens of context before the tokens whose loss is taken."""
TARGETS = 128
"""These follow a document's first BEFORE[-1] tokens."""
PLACEMENTS = ("dense", "third", "full")


def documents(model: Model, corpus: Path, wanted: Mapping[str, int]) -> tuple[pd.DataFrame, dict[str, np.ndarray]]:
    """Return documents of the validation split that are long enough, and all tokens of each source in that split.

    Returns:
        source, tokens (int [n], without the start token); and tokens by source.

    Raises:
        UserError: a source has fewer.
    """
    texts, rows, every = [row for row in read_corpus(corpus) if row["split"] == "validation"], [], {}
    for source, count in wanted.items():
        cut = [np.array(model.tokens(row["text"])[1:]) for row in texts if row["source"] == source]
        long = [tokens for tokens in cut if len(tokens) >= BEFORE[-1] + TARGETS]
        if len(long) < count:
            has = f"{len(long)} documents of {BEFORE[-1] + TARGETS:,} tokens, not {count}"
            raise UserError(f"{corpus}: split 'validation' of '{source}' has {has}")
        every[source] = np.concatenate(cut)
        rows += [{"source": source, "tokens": tokens} for tokens in long[:count]]
    return pd.DataFrame(rows), every


def drawn(every: np.ndarray, count: int) -> float:
    """Return how many distinct tokens to expect among `count` drawn from others one by one, and put back."""
    shares = np.bincount(every) / len(every)
    return float((1 - (1 - shares) ** count).sum())


def counts(texts: pd.DataFrame, every: Mapping[str, np.ndarray], model: Model) -> pd.DataFrame:
    """Count the distinct tokens of documents, as far as these are long enough.

    Returns:
        document, source, length, distinct, drawn: what to expect of as many tokens of the source; width, ffn_width,
        layers, vocab of the model.
    """
    config = model.decoder.config
    shape = {name: getattr(config, name) for name in ("width", "ffn_width", "layers", "vocab")}
    lines = []
    for number, row in enumerate(texts.itertuples()):
        for length in (length for length in LENGTHS if len(row.tokens) >= length):
            distinct = {"distinct": len(np.unique(row.tokens[:length])), "drawn": drawn(every[row.source], length)}
            lines.append({"document": number, "source": row.source, "length": length} | distinct | shape)
    return pd.DataFrame(lines)


@torch.no_grad()
def loss(decoder: Decoder, start: Tensor, tokens: Tensor, before: int) -> float:
    """Return the loss of a document's targets after `before` tokens of context and the start token, nats per token."""
    read = torch.cat([start, tokens[BEFORE[-1] - before : BEFORE[-1] + TARGETS]])[None]
    hidden = decoder.hidden(read[:, :-1])[:, -TARGETS:]
    return token_losses(decoder.head(hidden), read[:, -TARGETS:]).mean().item()


def losses(model: Model, rows: Rows, texts: pd.DataFrame, placement: str) -> pd.DataFrame:
    """Return model (a placement, or "dense"), document, source, context and nats of each."""
    decoder, start, lines = model.decoder, torch.tensor(model.tokens("")), []
    if placement != "dense":  # tables of all layers in single precision would take 9 GB
        decoder = convert(model, rows, layers_of(placement, len(decoder.blocks)), torch.bfloat16)
    for number, row in enumerate(track(list(texts.itertuples()), f"context, {placement}")):
        about = {"model": placement, "document": number, "source": row.source}
        for before in BEFORE:
            nats = loss(decoder, start, torch.from_numpy(row.tokens), before)
            lines.append(about | {"context": before, "nats": nats})
    return pd.DataFrame(lines)


def make(name: str, corpus: Path, rows: Path, out: Path) -> None:
    """Write counts.parquet, and losses.<model>.parquet of each model, into `out`; `rows` is a folder."""
    model = load(name)
    own = rows_of(model, rows)
    texts, every = documents(model, corpus, DOCUMENTS)
    write_parquet(out / "counts.parquet", counts(texts, every, model))
    for placement in PLACEMENTS:
        once(out / f"losses.{placement}.parquet", partial(losses, model, own, texts, placement))
