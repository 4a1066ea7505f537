"""Reads what was counted in a text: distinct tokens by length with Heaps' law, shares of tables and experts touched, caches."""

from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd

from stemrepro.common.errors import UserError
from stemrepro.measures.reading import read_csv
from stemrepro.verdicts.contrast import Contrast

FIT_FROM = 256
"""Tokens from which Heaps' law is fitted: below, nearly every token is new."""
MOE_TOKENS = 4096
METRICS = {
    "not_sublinear": "sources whose exponent of Heaps' law isn't surely below 1",
    r"touches_more:\d+:\d+": "sources of which MOE_TOKENS tokens touch no smaller share of a table than of so many experts, so many used",
    r"cache_below:[a-z0-9 -]+:(static-best|LFU|LRU):[\d.]+:[\d.]+": "sources of which a cache of a share of the rows serves less than so many percent",
}
"""Counts that exact claims may ask for."""


def experts_touched(tokens: np.ndarray | int, experts: int, chosen: int) -> np.ndarray | float:
    """Return share of a layer's experts that at least one of so many tokens uses, `chosen` of `experts` each, drawn evenly (the even
    load that routers are trained for): 1 - (1 - k / E)^n.
    """
    return 1 - (1 - chosen / experts) ** np.asarray(tokens, float)


class TextCounts:
    """What `stemrepro data counts` wrote for a scale.

    Raises:
        UserError: a file is missing or unreadable.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @cached_property
    def distinct(self) -> pd.DataFrame:
        """Distinct tokens by vocabulary, source, window and length."""
        return read_csv(self.folder / "distinct.csv", "vocab", "window", "length", "distinct", words=("source",))

    @cached_property
    def cache(self) -> pd.DataFrame:
        """Hit rates by source, what is asked for, policy, share of the rows and stretch."""
        return read_csv(self.folder / "cache.csv", "share", "hit_rate", words=("source", "asked", "policy"))

    @property
    def vocab(self) -> int:
        """The larger vocabulary."""
        return int(self.distinct["vocab"].max())

    def sources(self) -> list[str]:
        """Return sources of text, by name."""
        return sorted(self.distinct["source"].unique())

    def growth(self, source: str, vocab: int) -> pd.DataFrame:
        """Distinct tokens: a row a window, a column a length."""
        own = self.distinct[(self.distinct["source"] == source) & (self.distinct["vocab"] == vocab)]
        return own.pivot(index="window", columns="length", values="distinct")

    def heaps(self, source: str, vocab: int) -> tuple[Contrast, Contrast]:
        """Exponent b and log K of distinct = K n^b, each a value a window (least squares of logarithms from FIT_FROM tokens on;
        the fit of the means is the mean of the fits).
        """
        table = self.growth(source, vocab)
        lengths = [n for n in table.columns if n >= FIT_FROM]
        if len(lengths) < 2:
            raise UserError(
                f"{self.folder}/distinct.csv: '{source}' is too short for Heaps' law from {FIT_FROM} tokens on"
            )
        slopes, intercepts = np.polyfit(np.log(lengths), np.log(table[lengths].to_numpy()).T, 1)
        return Contrast(slopes), Contrast(intercepts)

    def hit_rate(self, source: str, asked: str, policy: str, share: float) -> Contrast:
        """Hit rate in percent, a value a stretch of the stream."""
        own = self.cache[(self.cache.source == source) & (self.cache.asked == asked) & (self.cache.policy == policy)]
        return Contrast(100 * own[np.isclose(own.share, share)]["hit_rate"].to_numpy())

    def value(self, metric: str) -> float:
        """Return the number of an exact claim: sources of which something does not hold.

        Raises:
            UserError: no such metric.
        """
        name, *rest = metric.split(":")
        if name == "not_sublinear":
            return sum(not self.heaps(source, self.vocab)[0].interval(0.05)[1] < 1 for source in self.sources())
        if name == "touches_more":
            experts = experts_touched(MOE_TOKENS, int(rest[0]), int(rest[1]))
            tables = [self.growth(source, self.vocab) for source in self.sources()]
            return sum(table[min(MOE_TOKENS, table.columns.max())].mean() / self.vocab >= experts for table in tables)
        if name == "cache_below":
            asked, policy, share, limit = rest
            rates = [self.hit_rate(source, asked, policy, float(share)) for source in self.sources()]
            return sum(rate.mean < float(limit) for rate in rates)
        raise UserError(f"metric '{metric}' is unknown; there are not_sublinear, touches_more, cache_below")
