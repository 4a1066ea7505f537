"""Angular spread of FFN vectors: metrics of recipes/angular_spread.yaml."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from stemrepro.common.errors import UserError
from stemrepro.common.files import damaged
from stemrepro.config.address import MAIN, Address
from stemrepro.measures import store
from stemrepro.measures.reading import ArmScores
from stemrepro.measures.scores import Scores, kept
from stemrepro.verdicts.effect import Effect, Untested

if TYPE_CHECKING:
    import pandas as pd


def random_p95(dimensions: int) -> float:
    """Return the 95th percentile of |cos| between random directions in n dimensions.

    cos^2 is Beta(1/2, (n - 1)/2); the percentile is near 1.96 / sqrt(n).
    """
    from scipy import stats  # a second that reading recipes can do without

    return float(np.sqrt(stats.beta.ppf(0.95, 0.5, (dimensions - 1) / 2)))


class ArmGeometry(ArmScores):
    """Geometry scores of one arm, and its losses by input token."""

    kind = "geometry"

    @cached_property
    def cosines(self) -> pd.DataFrame:
        """Statistics by seed, share of training, layer, kind, bucket and centring; a bucket may lack a seed."""
        return self.whole().lines("cosines")

    def density(self, kind: str, layers: list[int]) -> np.ndarray:
        """Return the density of a kind's cosines at the end in some layers [layers, bins], the mean over seeds."""
        rows = self.whole().lines("density")
        table = rows[rows["what"] == kind].pivot(index="layer", columns="bin", values="density")
        if missing := set(layers) - set(table.index):
            raise damaged(self.folder / "density.parquet", f"of {self} the layer {min(missing)} is missing")
        return table.loc[layers].to_numpy()

    @cached_property
    def spread(self) -> pd.DataFrame:
        """Mean |cos| of tokens' rows to all others: rows are seeds, columns those tokens that have one."""
        return self.whole().lines("spread").pivot(index="seed", columns="token", values="spread")

    @cached_property
    def tokens(self) -> dict[str, pd.DataFrame]:
        """Losses by input token of the seeds with angles: tokens, nats, seen; rows are seeds, columns tokens."""
        count, rows = self.whole().summary["seeds"], store.lines(self.folder, "losses", self.address, "tokens")
        tables = {name: rows.pivot(index="seed", columns="token", values=name) for name in ("tokens", "nats", "seen")}
        return {name: table.iloc[:count] for name, table in tables.items()}

    @property
    def layers(self) -> list[int]:
        """Layers whose vectors were compared: the replaced ones, or all of dense's but the first."""
        return self.summary["layers"]

    def by_layer(
        self, statistic: str, what: str, centred: bool = False, share: float = 1.0, bucket: str = "all"
    ) -> pd.DataFrame:
        """Return a statistic: rows are all seeds, columns layers; UserError where no seed has vectors of that kind."""
        rows = self.cosines
        rows = rows[(rows.what == what) & (rows.bucket == bucket) & (rows.centred == centred)]
        rows = rows[np.isclose(rows.share, share)]
        if rows.empty:
            where = f"'{what}' of bucket '{bucket}' at share {share:g}"
            raise UserError(f"{self.folder}/cosines.parquet has of {self} no {where}")
        return rows.pivot(index="seed", columns="layer", values=statistic).reindex(self.cosines["seed"].unique())

    def mean(self, statistic: str, what: str, **where: Any) -> np.ndarray:
        """Return the mean over layers of the same [seeds]."""
        return self.by_layer(statistic, what, **where).mean(axis=1).to_numpy()

    def has(self, what: str, bucket: str = "all") -> bool:
        return bool(((self.cosines.what == what) & (self.cosines.bucket == bucket)).any())

    def random(self, what: str) -> float:
        """Return the p95 of |cos| of random directions of the rank that these vectors can have.

        The rank is ffn_width for rows, and width for dense's up-projection outputs. Gated vectors are products of both,
        which can have any rank.
        """
        dense_up = what == "up" and not self.has("rows")
        return random_p95(self.summary["width"] if dense_up else self.summary["ffn_width"])


@kept
def arm_geometry(scores: Scores, arm: str) -> ArmGeometry:
    """Return an arm's angles."""
    return ArmGeometry(scores.folder, Address(MAIN, arm))


What = Literal["up", "gated", "rows"]
"""The vectors in the up-projection's place (dense: its outputs), these times the gate, and all rows of a table."""
FREQUENT, RARE = ("256-2047", "2048+"), ("1-31",)
"""Buckets of a token's training count that count as frequent and as rare."""
FEWEST_TARGETS = FEWEST_TOKENS = 30
"""Scored targets after a token that its loss needs to be used, and such tokens that a correlation needs."""


def _of_buckets(arm: ArmGeometry, buckets: tuple[str, ...]) -> np.ndarray:
    """Return the p95 of rows, the mean over layers and those buckets that hold enough rows [seeds]."""
    means = [arm.mean("p95", "rows", bucket=bucket) for bucket in buckets if arm.has("rows", bucket)]
    if not means:
        raise Untested("too few tokens are frequent, or too few are rare")
    return np.mean(means, axis=0)


def partial_rank_correlation(x: np.ndarray, y: np.ndarray, given: np.ndarray) -> float:
    """Return Spearman's correlation of x and y with the ranks of `given` taken out of both by least squares."""
    from scipy import stats

    ranks = [stats.rankdata(values) for values in (x, y, given)]
    design = np.stack([np.ones_like(ranks[2]), ranks[2]], axis=1)
    rests = [values - design @ np.linalg.lstsq(design, values, rcond=None)[0] for values in ranks[:2]]
    return float(np.corrcoef(*rests)[0, 1])


def correlation_within(x: np.ndarray, y: np.ndarray, given: np.ndarray, classes: int) -> float:
    """Return the same with the mean ranks of equally large classes of `given` taken out, no straight line."""
    import pandas as pd
    from scipy import stats

    which = (stats.rankdata(given) * classes / (len(given) + 1)).astype(int)
    ranks = pd.DataFrame({"x": stats.rankdata(x), "y": stats.rankdata(y)})
    rests = ranks - ranks.groupby(which).transform("mean")
    return float(np.corrcoef(rests["x"], rests["y"])[0, 1])


def token_gains(dense: ArmGeometry, arm: ArmGeometry) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return the tokens with enough scored targets, and of each what an arm gains on the targets after it.

    Returns:
        Ids [n]; dense's loss less the arm's, mean |cos| of the tokens' rows, and training counts, all [seeds, n].
    """
    count, spread = dense.tokens["tokens"], arm.spread
    if not (count.equals(arm.tokens["tokens"]) and count.index.equals(spread.index)):
        raise UserError(f"{dense} and {arm} were scored on different seeds or tokens")
    count = count.iloc[0]
    kept = count.index[count >= FEWEST_TARGETS].intersection(spread.columns[spread.notna().all()])
    gain = (dense.tokens["nats"] - arm.tokens["nats"])[kept] / count[kept]
    return kept.to_numpy(), gain.to_numpy(), spread[kept].to_numpy(), arm.tokens["seen"][kept].to_numpy()


def gain_correlation(dense: ArmGeometry, arm: ArmGeometry, classes: int | None = None) -> Effect:
    """Return the rank correlation over tokens of spread (-mean |cos|) and gain over dense at equal count, by seed.

    With `classes` it is taken within so many classes of the training count.
    """
    _, gain, spread, seen = token_gains(dense, arm)
    by, more = (correlation_within, (classes,)) if classes else (partial_rank_correlation, ())
    return Effect(np.array([by(*triple, *more) for triple in zip(-spread, gain, seen, strict=True)]))


def p95(scores: Scores, high: str, low: str, what: What, centred: bool = False) -> Effect:
    """95th percentile of |cos|; `centred`: the mean vector taken off."""
    return Effect(np.subtract(*_means(scores, high, low, "p95", what, centred)))


def mode(scores: Scores, high: str, low: str, what: What, centred: bool = False) -> Effect:
    """Where the density of cosines peaks; `centred`: the mean vector taken off."""
    return Effect(np.subtract(*_means(scores, high, low, "mode", what, centred)))


def excess(scores: Scores, high: str, low: str, what: What, centred: bool = False) -> Effect:
    """95th percentile of |cos| over that of random directions of their rank; `centred`: the mean vector taken off."""
    one, other = _means(scores, high, low, "p95", what, centred)
    first, second = (arm_geometry(scores, arm).random(what) for arm in (high, low))
    return Effect(one / first - other / second)


def _means(scores: Scores, high: str, low: str, statistic: str, what: str, centred: bool) -> list[np.ndarray]:
    """Return means over the layers that both arms have [seeds]."""
    tables = [arm_geometry(scores, arm).by_layer(statistic, what, centred) for arm in (high, low)]
    layers = tables[0].columns.intersection(tables[1].columns)
    if not tables[0].index.equals(tables[1].index):
        raise UserError(f"{high} and {low} have angles of different seeds")
    return [table[layers].mean(axis=1).to_numpy() for table in tables]


def floor(scores: Scores, high: str, low: str) -> Effect:
    """The first arm's p95 of rows over that of random directions, less 1."""
    first = arm_geometry(scores, high)
    return Effect(first.mean("p95", "rows") / first.random("rows") - 1)


def learnt(scores: Scores, high: str, low: str) -> Effect:
    """The first arm's p95 of rows at the start of training less that at its end."""
    first = arm_geometry(scores, high)
    return Effect(first.mean("p95", "rows", share=0.0) - first.mean("p95", "rows"))


def depth(scores: Scores, high: str, low: str) -> Effect:
    """The first arm's p95 of rows in the deepest table less that in the first."""
    by_layer = arm_geometry(scores, high).by_layer("p95", "rows")
    return Effect((by_layer[by_layer.columns.max()] - by_layer[by_layer.columns.min()]).to_numpy())


def frequency(scores: Scores, high: str, low: str) -> Effect:
    """The first arm's p95 of frequent tokens' rows less that of rare ones'."""
    first = arm_geometry(scores, high)
    return Effect(_of_buckets(first, FREQUENT) - _of_buckets(first, RARE))


def gain(scores: Scores, high: str, low: str) -> Effect:
    """Rank correlation over tokens of spread and gain over the first arm, at equal frequency."""
    first, second = arm_geometry(scores, high), arm_geometry(scores, low)
    if (enough := int((second.tokens["tokens"].iloc[0] >= FEWEST_TARGETS).sum())) < FEWEST_TOKENS:
        raise Untested(f"{enough} tokens have {FEWEST_TARGETS} scored targets; {FEWEST_TOKENS} are needed")
    return gain_correlation(first, second)
