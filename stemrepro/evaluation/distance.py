"""Losses by position, and by how far back the target was last: what of an arm's gain comes from its context.

* distance: targets ("tokens") and the sum of their losses in nats by seed, document of prose and bucket. `by` says
  whether buckets are of the distance or of the position; they begin `at` 0, 1, 2, 4 and so on.
* words: the same by target token: those that are new, near and far (`at` 0, 1 and 16).

A distance of 1 is that of the token just before the target; 0 means that the target is new. Targets that came before
are more frequent words than new ones, so nothing follows from comparing the two. Hence the second table: the same word
for the first time and again.
"""

import numpy as np
import pandas as pd

from stemrepro.config.buckets import position_edges
from stemrepro.config.scores import Evaluation
from stemrepro.config.sources import prose
from stemrepro.evaluation.losses import scored_blocks, sums, validation_losses
from stemrepro.evaluation.weights import load_run
from stemrepro.evaluation.writing import Report, Result, Scored, Tables, long
from stemrepro.training.run import Run

BY = ("distance", "position")
KINDS = (0, 1, 16)  # distances in tokens from which on a target is new, near, far


def last_same(inputs: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Return how many tokens back each target was last among the inputs up to it, 0 where it is new; all [n, T]."""
    distances = np.zeros(targets.shape, np.int64)
    for row, (read, wanted) in enumerate(zip(inputs.tolist(), targets.tolist(), strict=True)):
        last: dict[int, int] = {}
        for place, (token, target) in enumerate(zip(read, wanted, strict=True)):
            last[token] = place
            if target in last:
                distances[row, place] = place - last[target] + 1
    return distances


def score(run: Run, report: Report, asked: Evaluation) -> dict[str, np.ndarray]:
    """Score one run on held-out prose; {} for one that diverged.

    Return "source" [documents]; for each name of BY, sums of nats [documents, buckets] and "<name>_tokens" [documents,
    buckets]; "word" and "word_tokens" [vocab, KINDS], the same by target.
    """
    if run.diverged is not None:
        return {}
    blocks, numbers, documents, names = scored_blocks(run, asked.tokens)
    kept = np.isin(names[documents[:, 0]], prose(np.unique(names)))

    def done(blocks_done: int, loss: float) -> None:
        report(int(run.training.steps * blocks_done / kept.sum()), loss, 0.0)

    nats, inputs, targets = validation_losses(load_run(run), blocks, numbers[kept], asked.batch, done)
    chosen, place = np.unique(documents[kept], return_inverse=True)
    place = place.reshape(nats.shape)
    position = np.broadcast_to(np.arange(blocks.length), nats.shape)
    lengths = {"distance": last_same(inputs, targets), "position": position}
    edges, result = position_edges(blocks.length + 1), {"source": names[chosen]}
    shape = (len(chosen), len(edges))
    for name, length in lengths.items():
        bucket = np.searchsorted(edges, length, side="right") - 1
        result[name] = sums(nats, place, bucket, shape)
        result[f"{name}_tokens"] = sums(np.ones_like(nats), place, bucket, shape).astype(np.int64)
    kind = np.searchsorted(KINDS, lengths["distance"], side="right") - 1
    shape = (run.model.vocab, len(KINDS))
    result["word"] = sums(nats, targets, kind, shape)
    result["word_tokens"] = sums(np.ones_like(nats), targets, kind, shape).astype(np.int64)
    return result


def _by(result: dict[str, np.ndarray], by: str) -> pd.DataFrame:
    nats = result[by]
    return long(
        ("document", "bucket"),
        by=np.array(by),
        at=np.array(position_edges(2**20)[: nats.shape[1]]),
        source=result["source"][:, None],
        tokens=result[f"{by}_tokens"],
        nats=nats.astype(np.float32),
    )


def _words(result: dict[str, np.ndarray]) -> pd.DataFrame:
    nats = result["word"].astype(np.float32)
    return long(("token", "kind"), at=np.array(KINDS), tokens=result["word_tokens"], nats=nats)


def tables(scored: Scored) -> tuple[Result, Tables]:
    """Return nothing more of an arm, and its tables (all its seeds)."""
    if not scored.ended:
        return {}, {}
    return {}, {"distance": pd.concat([scored.lines(_by, by) for by in BY]), "words": scored.lines(_words)}
