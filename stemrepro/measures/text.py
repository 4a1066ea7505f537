"""Counts in a text: distinct tokens by length with Heaps' law, shares of tables and experts touched, caches."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from stemrepro.common.errors import UserError
from stemrepro.measures.reading import read_csv
from stemrepro.measures.scores import Scores, kept
from stemrepro.verdicts.effect import Effect

if TYPE_CHECKING:
    import pandas as pd

FIT_FROM = 256
"""Tokens from which Heaps' law is fitted: below, nearly every token is new."""
MOE_TOKENS = 4096


def experts_touched(tokens: np.ndarray | int, experts: int, chosen: int) -> np.ndarray | float:
    """Return the share of experts that one of n tokens uses, 1 - (1 - k / E)^n: each uses k, drawn evenly."""
    return 1 - (1 - chosen / experts) ** np.asarray(tokens, float)


class TextCounts:
    """Counts that `stemrepro data counts` wrote for a scale; UserError where a file is missing or unreadable."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @cached_property
    def distinct(self) -> pd.DataFrame:
        """Distinct tokens by vocabulary, source, window and length."""
        return read_csv(self.folder / "distinct.csv", "vocab", "window", "length", "distinct", "source")

    @cached_property
    def cache(self) -> pd.DataFrame:
        """Hit rates by source, requests, policy, share of the rows and stretch."""
        return read_csv(self.folder / "cache.csv", "share", "hit_rate", "source", "asked", "policy")

    @property
    def vocab(self) -> int:
        return int(self.distinct["vocab"].max())

    def sources(self) -> list[str]:
        return sorted(self.distinct["source"].unique())

    def growth(self, source: str, vocab: int) -> pd.DataFrame:
        """Return distinct tokens: a row per window, a column per length."""
        rows = self.distinct[(self.distinct.source == source) & (self.distinct.vocab == vocab)]
        return rows.pivot(index="window", columns="length", values="distinct")

    def heaps(self, source: str, vocab: int) -> tuple[Effect, Effect]:
        """Return exponent b and log K of distinct = K n^b by window: least squares of logarithms from FIT_FROM on."""
        table = self.growth(source, vocab)
        lengths = [n for n in table.columns if n >= FIT_FROM]
        if len(lengths) < 2:
            short = f"'{source}' is too short for Heaps' law from {FIT_FROM} tokens on"
            raise UserError(f"{self.folder}/distinct.csv: {short}")
        slopes, intercepts = np.polyfit(np.log(lengths), np.log(table[lengths].to_numpy()).T, 1)
        return Effect(slopes), Effect(intercepts)

    def hit_rate(self, source: str, asked: str, policy: str, share: float) -> Effect:
        """Return the hit rate in percent, a value per stretch of the stream."""
        rows = self.cache[(self.cache.source == source) & (self.cache.asked == asked) & (self.cache.policy == policy)]
        return Effect(100 * rows[np.isclose(rows.share, share)]["hit_rate"].to_numpy())


@kept
def text_counts(scores: Scores) -> TextCounts:
    """Return the counts in a scale's text."""
    return TextCounts(scores.folder / "text")


def not_sublinear(scores: Scores) -> int:
    """Sources whose exponent of Heaps' law isn't surely below 1."""
    text = text_counts(scores)
    return sum(not text.heaps(source, text.vocab)[0].interval(0.05)[1] < 1 for source in text.sources())


def touches_more(scores: Scores, experts: int, used: int) -> int:
    """Sources of which 4,096 tokens touch no smaller share of a table than of so many experts, so many used."""
    text, share = text_counts(scores), experts_touched(MOE_TOKENS, experts, used)
    tables = [text.growth(source, text.vocab) for source in text.sources()]
    return sum(table[min(MOE_TOKENS, table.columns.max())].mean() / text.vocab >= share for table in tables)


def cache_below(
    scores: Scores,
    percent: float,
    asked: Literal["every token", "distinct in a chunk"],
    policy: Literal["static-best", "LFU", "LRU"],
    share: float,
) -> int:
    """Sources of which a cache of a share of the rows serves less than so many percent."""
    text = text_counts(scores)
    return sum(text.hit_rate(source, asked, policy, share).mean < percent for source in text.sources())
