"""How often a model gives the right value after a key that came earlier in its context, by number of pairs and length.

The table recall has a line per seed, number of pairs and length: queries and right answers, of all queries and of the
first query of each key.
"""

from pathlib import Path

import numpy as np
import pandas as pd
import torch

from stemrepro.common.errors import UserError
from stemrepro.config.scores import Recall
from stemrepro.data.recall import made_up_words, pairs_and_queries
from stemrepro.data.tokenizer import read_tokenizer
from stemrepro.evaluation.weights import load_run
from stemrepro.evaluation.writing import Report, Result, Scored, Tables
from stemrepro.training.run import Run


def token_of(tokenizer_file: Path, words: list[str]) -> np.ndarray:
    """Return the token of each word [words]; raise UserError for a word of several tokens."""
    tokenizer = read_tokenizer(tokenizer_file)
    encoded = [tokenizer.encode(f" {word}").ids for word in words]
    if any(len(ids) != 1 for ids in encoded):
        raise UserError(f"{tokenizer_file} splits the words of the task; it was trained on another mix")
    return np.array([ids[0] for ids in encoded])


def documents(keys: int, values: int, pairs: int, length: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return keys and values [count, length // 2] of the documents that every arm and seed is scored on."""
    rng = np.random.default_rng([pairs, length])
    drawn = [pairs_and_queries(rng, keys, values, pairs, length) for _ in range(count)]
    return np.stack([key for key, _ in drawn]), np.stack([value for _, value in drawn])


def as_trained(keys: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return rows of tokens [n, 2 x pairs] as training sequences begin: with a key, and no end mark before it."""
    return np.stack([keys, values], axis=2).reshape(len(keys), -1)


@torch.no_grad()
def score(run: Run, report: Report, asked: Recall, tokenizer_file: Path, keys: int, values: int) -> pd.DataFrame:
    """Score one run, on the same documents for every arm and seed; an empty frame for one that diverged.

    Return a line per number of pairs and length: pairs, length, queries, right, first_queries, first_right.
    """
    if run.diverged is not None:
        return pd.DataFrame()
    names, answers = (token_of(tokenizer_file, words) for words in made_up_words(keys, values))
    model, rows = load_run(run), []
    device = next(model.parameters()).device
    grid = [(pairs, length) for length in asked.lengths for pairs in asked.pairs if 4 * pairs <= length]
    for number, (pairs, length) in enumerate(grid, 1):
        key, value = documents(keys, values, pairs, length, asked.documents)
        again = np.array([[one in row[:place] for place, one in enumerate(row)] for row in key[:, pairs:]])
        right = []
        for first in range(0, len(key), asked.batch):
            part = slice(first, first + asked.batch)
            tokens = as_trained(names[key[part]], answers[value[part]])
            predicted = model(torch.from_numpy(tokens[:, :-1]).to(device)).argmax(dim=-1).cpu().numpy()
            right.append((predicted == tokens[:, 1:])[:, 2 * pairs :: 2])
        hits = np.concatenate(right)
        rows.append((pairs, length, hits.size, hits.sum(), (~again).sum(), hits[~again].sum()))
        report(int(run.training.steps * number / len(grid)), np.nan, 0.0)
    return pd.DataFrame(rows, columns=["pairs", "length", "queries", "right", "first_queries", "first_right"])


def tables(scored: Scored) -> tuple[Result, Tables]:
    """Return nothing more of an arm, and its table (all its seeds)."""
    return {}, {"recall": scored.lines(pd.DataFrame).round(6)} if scored.ended else {}
