"""How much of W_u x the token alone tells in our own dense models, defined as in a published model."""

from pathlib import Path

import numpy as np
import pandas as pd
from tokenizers import Tokenizer, models

from stemrepro.common.progress import track
from stemrepro.config.sources import prose
from stemrepro.data.blocks import TokenBlocks
from stemrepro.evaluation.weights import load_run
from stemrepro.published.models import Model, write_parquet
from stemrepro.published.premise import OUT, shares
from stemrepro.published.rows import means
from stemrepro.training.run import Run

ROWS, ASKED = 204_800, 12_288
"""Tokens of the training split that rows are means over, and of each source of prose that is held out."""


def explained(run: Run) -> pd.DataFrame:
    """Return what rows leave unexplained in a run's layers on held-out prose.

    Rows are means over blocks of the training split, in the run's own order. A block has no start token, and its first
    place doesn't count.

    Returns:
        layer, what, address (token, or limit: with endless text for the rows), total, left: sums of squares around the
        mean and around the row, as `stemrepro.published.premise.shares` has them.
    """
    length, vocab = run.training.sequence, run.model.vocab
    train, held = (TokenBlocks(run.blocks, split, length, vocab) for split in ("train", "validation"))
    numbers, documents = held.spread(ASKED)
    names = np.array([document[1] for document in held.about["documents"]])[documents[:, 0]]
    kept = np.isin(names, prose(np.unique(names)))
    tokens = train.batch(run.seed, 0, ROWS // length)[:, :-1].numpy()
    asked = list(held.at(numbers[kept])[:, :-1].numpy())
    model = Model(load_run(run), Tokenizer(models.BPE()), str(run))
    rows = means(model.decoder, tokens, np.full_like(tokens, -1), vocab)
    table = shares(model, rows, pd.DataFrame({"source": names[kept], "tokens": asked}), ROWS)
    by = ["layer", "what", "address"]
    return table[table["what"] != OUT].groupby(by, as_index=False)[["total", "left"]].sum()


def make(runs: list[Run], out: Path) -> None:
    """Write shares.parquet: variant and seed of each run that didn't diverge, and what `explained` returns of it."""
    ended = [run for run in track(runs, "sizes") if run.diverged is None]
    tables = [explained(run).assign(variant=run.address.variant, seed=run.seed) for run in ended]
    write_parquet(out / "shares.parquet", pd.concat(tables, ignore_index=True))
