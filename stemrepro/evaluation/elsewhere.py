"""Losses of finished runs on held-out text of sources that they never read: those of the scale's blend alone.

The table elsewhere has a line per seed and source: targets ("tokens"), the sum of their losses in nats, and their
bytes.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from stemrepro.config.scores import Evaluation
from stemrepro.data.blocks import TokenBlocks
from stemrepro.evaluation.losses import scored_blocks, validation_losses
from stemrepro.evaluation.weights import load_run
from stemrepro.evaluation.writing import Report, Result, Scored, Tables
from stemrepro.training.run import Run


def score(run: Run, report: Report, asked: Evaluation, blend: Path) -> Result:
    """Score one run on the sources of a blend that its own text lacks; {} for one that diverged.

    Args:
        blend: index of the blend's blocks.

    Returns:
        "sources": lines of source, tokens, nats and bytes.
    """
    if run.diverged is not None:
        return {}
    own = TokenBlocks(run.blocks, "validation", run.training.sequence, run.model.vocab).about["documents"]
    known = {document[1] for document in own}
    blocks, numbers, documents, names = scored_blocks(replace(run, blocks=blend.parent, text_ratio=1.0), asked.tokens)
    sources = names[documents]
    unread = ~np.isin(sources, list(known)).any(axis=1)

    def done(count: int, loss: float) -> None:
        report(int(run.training.steps * count / unread.sum()), loss, 0.0)

    nats, _, targets = validation_losses(load_run(run), blocks, numbers[unread], asked.batch, done)
    size = np.array(blocks.index["token_bytes"])[targets]
    frame = pd.DataFrame({"source": sources[unread].ravel(), "nats": nats.ravel(), "bytes": size.ravel(), "tokens": 1})
    return {"sources": frame.groupby("source", as_index=False).sum()}


def tables(scored: Scored) -> tuple[Result, Tables]:
    """Return nothing more of an arm, and its table (all its seeds)."""
    if not scored.ended:
        return {}, {}
    return {}, {"elsewhere": scored.lines(lambda result: result["sources"].round(6))}
