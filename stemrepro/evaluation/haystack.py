"""How often a model gives the value of a key that came once, far back in prose: by length of the text, and by depth.

Rows are filled as training documents are, clauses of held-out prose and needles in turn. They begin within a clause, as
nearly all training sequences do, and end with a key. That key is at the requested depth and nowhere else; the
document's other keys come up as they do in training. Answers are read in two ways: which of all values has the highest
log-likelihood ("chosen"), and what greedy generation gives up to its full stop ("generated").

The table haystack has a line per seed, length and depth.
"""

from pathlib import Path

import numpy as np
import pandas as pd
import torch

from stemrepro.common.errors import UserError
from stemrepro.config.mixes import NeedlesMix
from stemrepro.config.scores import Haystack
from stemrepro.data.integrity import read_corpus
from stemrepro.data.needles import BARE, SOURCE, Deal, clauses, needle, prose_of, question
from stemrepro.data.tokenizer import read_tokenizer
from stemrepro.evaluation.recall import token_of
from stemrepro.evaluation.weights import load_run
from stemrepro.evaluation.writing import Report, Result, Scored, Tables
from stemrepro.model.generate import continuations
from stemrepro.training.run import Run


class Haystacks:
    """Rows of tokens with a needle in them, in held-out prose of a corpus.parquet; equal arguments give equal rows.

    UserError: the tokenizer splits the words of the mix, or there is no held-out prose.
    """

    def __init__(self, deal: Deal, corpus: Path, tokenizer_file: Path) -> None:
        self.deal, self.tokenizer = deal, read_tokenizer(tokenizer_file)
        self.keys, self.values = deal.words()
        rows = [row for row in read_corpus(corpus) if row["source"] == SOURCE and row["split"] == "validation"]
        prose = [prose_of(row["text"], self.keys) for row in rows if not row["id"].endswith(BARE)]
        self.clauses = [self.tokens(clause) for text in prose for clause in clauses(text)]
        if not self.clauses:
            raise UserError(f"{corpus} has no held-out prose of the source '{SOURCE}'")
        self.answers = token_of(tokenizer_file, self.values)

    def tokens(self, text: str) -> list[int]:
        """Return the tokens of a text."""
        return self.tokenizer.encode(text).ids

    def row(self, rng: np.random.Generator, length: int, depth: float) -> tuple[list[int], int]:
        """Make `length` tokens that end with a key; also return the value (by number) that came after it before.

        Args:
            depth: 0 where the row begins, 1 just before the question; in between the nearest end of a clause.

        ValueError: needle and question leave no room for prose.
        """
        key, value = self.deal.some(rng, max(self.deal.of_document))
        wanted, wanted_key = int(value[-1]), self.keys[key[-1]]
        hidden, end = self.tokens(needle(wanted_key, self.values[wanted])), self.tokens(question(wanted_key))
        left = length - len(hidden) - len(end)
        if left < 1:
            raise ValueError(f"length {length}: the needle and its question alone have {length - left} tokens")
        pieces: list[list[int]] = []
        at = int(rng.integers(len(self.clauses)))
        while left > 0:
            turns = rng.integers(len(key) - 1, size=rng.integers(1, self.deal.needles + 1))
            others = "".join(needle(self.keys[key[k]], self.values[value[k]]) for k in turns)
            piece = (self.clauses[at] + self.tokens(others))[-left:]
            pieces.insert(0, piece)
            left, at = left - len(piece), (at - 1) % len(self.clauses)
        ends = np.cumsum([0, *map(len, pieces)])
        pieces.insert(int(np.abs(ends - depth * ends[-1]).argmin()), hidden)
        return [token for piece in [*pieces, end] for token in piece], wanted

    def rows(self, length: int, depth: float, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Return `count` rows [count, length] and numbers of their values [count]; the same for all arms and seeds."""
        rng = np.random.default_rng([length, round(1000 * depth)])
        pairs = [self.row(rng, length, depth) for _ in range(count)]
        return np.array([row for row, _ in pairs]), np.array([value for _, value in pairs])


@torch.no_grad()
def score(
    run: Run, report: Report, asked: Haystack, mix: NeedlesMix, tokenizer_file: Path, corpus: Path
) -> pd.DataFrame:
    """Score one run; an empty frame for one that diverged.

    Return a line per length and depth: length, depth, rows, chosen, generated (rows that are right), other (rows where
    another key's value in the row has the highest log-likelihood), nats (mean, of the right value among all tokens).
    """
    if run.diverged is not None:
        return pd.DataFrame()
    haystacks, model, lines = Haystacks(Deal.of(mix), corpus, tokenizer_file), load_run(run), []
    device = next(model.parameters()).device
    grid = [(length, depth) for length in asked.lengths for depth in asked.depths]
    for number, (length, depth) in enumerate(grid, 1):
        rows, right = haystacks.rows(length, depth, asked.rows)
        counts = np.zeros(4)
        for first in range(0, len(rows), asked.batch):
            part = slice(first, first + asked.batch)
            tokens, wanted = torch.from_numpy(rows[part]).to(device), right[part]
            logs = model(tokens)[:, -1].float().log_softmax(dim=-1).cpu().numpy()
            chosen = logs[:, haystacks.answers].argmax(axis=1)
            in_row = (haystacks.answers[chosen][:, None] == rows[part]).any(axis=1)
            generated = torch.stack(list(continuations(model, tokens, 2)), dim=1).tolist()
            texts = [haystacks.tokenizer.decode(ids).partition(".")[0].strip() for ids in generated]
            counts += [
                (chosen == wanted).sum(),
                sum(text == haystacks.values[k] for text, k in zip(texts, wanted, strict=True)),
                (in_row & (chosen != wanted)).sum(),
                -logs[np.arange(len(wanted)), haystacks.answers[wanted]].sum(),
            ]
        lines.append((length, depth, len(rows), *counts[:3].astype(int), counts[3] / len(rows)))
        report(int(run.training.steps * number / len(grid)), counts[3] / len(rows), 0.0)
    return pd.DataFrame(lines, columns=["length", "depth", "rows", "chosen", "generated", "other", "nats"])


def tables(scored: Scored) -> tuple[Result, Tables]:
    """Return nothing more of an arm, and its table (all its seeds)."""
    return {}, {"haystack": scored.lines(pd.DataFrame).round(6)} if scored.ended else {}
