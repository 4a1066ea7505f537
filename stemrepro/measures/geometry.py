"""Angular spread of FFN vectors: metrics of recipes/angular_spread.yaml."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from stemrepro.common.errors import UserError
from stemrepro.common.files import damaged
from stemrepro.config.address import MAIN, Address
from stemrepro.measures.base import Measure
from stemrepro.measures.metric import Field, metric
from stemrepro.measures.reading import ArmScores, read_npz
from stemrepro.verdicts.contrast import Contrast

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

    keys = ("width", "ffn_width", "layers")

    def __init__(self, folder: Path, arm: str) -> None:
        place = Address(MAIN, arm).path
        super().__init__(folder / "geometry" / place)
        self.losses, self.arm = folder / "losses" / place, arm
        _ = self.summary

    @cached_property
    def cosines(self) -> pd.DataFrame:
        """Statistics by seed, share of training, layer, kind, bucket and centring; Unmeasured where a run diverged."""
        by = ("share", "layer", "what", "bucket", "centred")
        return self.lines("cosines.csv", "p95", "mean", "mode", "peak", by=by)

    def density(self, kind: str, layers: list[int]) -> np.ndarray:
        """Return the density of a kind's cosines at the end in some layers [layers, bins], the mean over seeds."""
        path = self.whole().folder / "density.npz"
        arrays = read_npz(path, "layers", kind)
        held = arrays["layers"].tolist()
        if missing := set(layers) - set(held):
            raise damaged(path, f"'layers' lacks {min(missing)}")
        return arrays[kind][[held.index(layer) for layer in layers]]

    @cached_property
    def spread(self) -> np.ndarray:
        """Mean |cos| of each token's row to all others [seeds, vocab]."""
        path = self.whole().folder / "spread.npz"
        return read_npz(path, "seeds", "spread", seeds=self.summary["seeds"], gaps=True)["spread"]

    @cached_property
    def tokens(self) -> dict[str, np.ndarray]:
        """Losses by input token, of the seeds with angles: seeds, tokens [vocab], nats and seen [seeds, vocab]."""
        path, count = self.losses / "tokens.npz", self.whole().summary["seeds"]
        arrays = read_npz(path, "seeds", "tokens", "nats", "seen")
        return arrays | {name: arrays[name][:count] for name in ("seeds", "nats", "seen")}

    @property
    def layers(self) -> list[int]:
        """Layers whose vectors were compared: the replaced ones, or all of dense's but the first."""
        return self.summary["layers"]

    def by_layer(
        self, statistic: str, what: str, centred: bool = False, share: float = 1.0, bucket: str = "all"
    ) -> pd.DataFrame:
        """Return a statistic: rows are seeds, columns layers; UserError where the arm has no vectors of that kind."""
        rows = self.cosines
        rows = rows[(rows.what == what) & (rows.bucket == bucket) & (rows.centred == centred)]
        rows = rows[np.isclose(rows.share, share)]
        if rows.empty:
            raise UserError(f"{self.folder}/cosines.csv has no '{what}' of bucket '{bucket}' at share {share:g}")
        return rows.pivot(index="seed", columns="layer", values=statistic)

    def has(self, what: str, bucket: str = "all") -> bool:
        return bool(((self.cosines.what == what) & (self.cosines.bucket == bucket)).any())

    def random(self, what: str) -> float:
        """Return the p95 of |cos| of random directions of the rank that these vectors can have.

        The rank is ffn_width for rows, and width for dense's up-projection outputs. Gated vectors are products of both,
        which can have any rank.
        """
        dense_up = what == "up" and not self.has("rows")
        return random_p95(self.summary["width"] if dense_up else self.summary["ffn_width"])


FREQUENT, RARE = ("256-2047", "2048+"), ("1-31",)
"""Buckets of a token's training count that count as frequent and as rare."""
FEWEST_TARGETS = 30
"""Scored targets after a token that its loss needs to be used."""
FEWEST_TOKENS = 30
"""Such tokens that a correlation over them needs."""


def bucket_mean(arm: ArmGeometry, statistic: str, buckets: tuple[str, ...]) -> np.ndarray:
    """Return the mean over layers and those of the buckets that hold enough rows [seeds]."""
    means = [arm.by_layer(statistic, "rows", bucket=b).mean(axis=1) for b in buckets if arm.has("rows", b)]
    if not means:
        raise UserError(f"{arm.folder}: no table has rows in the buckets {', '.join(buckets)}")
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
    """Return gains, spreads and counts of the tokens with enough scored targets.

    Returns:
        Their ids [n]; dense's loss less the arm's on the targets after them [seeds, n]; mean |cos| of their rows
        [seeds, n]; training counts [seeds, n].
    """
    same = all(np.array_equal(dense.tokens[name], arm.tokens[name]) for name in ("seeds", "tokens"))
    if not same or arm.spread.shape != arm.tokens["nats"].shape:
        raise UserError(f"{dense.folder} and {arm.folder} were scored on different seeds or tokens")
    count = dense.tokens["tokens"]
    kept = np.flatnonzero((count >= FEWEST_TARGETS) & np.isfinite(arm.spread).all(axis=0))
    gain = (dense.tokens["nats"] - arm.tokens["nats"])[:, kept] / count[kept]
    return kept, gain, arm.spread[:, kept], arm.tokens["seen"][:, kept]


def gain_correlation(dense: ArmGeometry, arm: ArmGeometry, classes: int | None = None) -> Contrast:
    """Return the rank correlation over tokens of spread (-mean |cos|) and gain over dense at equal count, by seed.

    With `classes` it is taken within so many classes of the training count.
    """
    _, gain, spread, seen = token_gains(dense, arm)
    by, more = (correlation_within, (classes,)) if classes else (partial_rank_correlation, ())
    return Contrast(np.array([by(*triple, *more) for triple in zip(-spread, gain, seen, strict=True)]))


class Angles(Measure):
    """Cosines between vectors of the recipe's arms."""

    fields: ClassVar[dict[str, Field]] = {"what": ("up", "gated", "rows"), "centred": {"centred": True}}

    @cached_property
    def arms(self) -> dict[str, ArmGeometry]:
        return {arm: ArmGeometry(self.inputs.folder, arm) for arm in self.inputs.recipe.arms}

    @metric("{statistic=p95}:{what}[:{centred}]", "95th percentile of |cos|, difference of two arms")
    @metric("{statistic=mode}:{what}[:{centred}]", "where the density of cosines peaks, difference of two arms")
    @metric(
        "{statistic=excess}:{what}[:{centred}]",
        "p95 over that of random directions of the same rank, difference of two arms",
    )
    def between(self, high: str, low: str, statistic: str, what: str, centred: bool = False) -> Contrast:
        first, second = self.arms[high], self.arms[low]
        layers = [layer for layer in first.layers if layer in second.layers]
        name = "p95" if statistic == "excess" else statistic
        one, other = (arm.by_layer(name, what, centred)[layers].mean(axis=1) for arm in (first, second))
        if list(one.index) != list(other.index):
            raise UserError(f"{first.folder} and {second.folder} have different seeds")
        if statistic == "excess":
            one, other = one / first.random(what), other / second.random(what)
        return Contrast((one - other).to_numpy())

    @metric("floor:rows", "an arm's p95 over that of random directions, less 1")
    def over_random(self, high: str, low: str) -> Contrast:
        first = self.arms[high]
        return Contrast(first.by_layer("p95", "rows").mean(axis=1).to_numpy() / first.random("rows") - 1)

    @metric("learnt:rows", "an arm's p95 at the start of training less that at its end")
    def learnt(self, high: str, low: str) -> Contrast:
        start, end = (self.arms[high].by_layer("p95", "rows", share=share).mean(axis=1) for share in (0.0, 1.0))
        return Contrast((start - end).to_numpy())

    @metric("depth:rows", "an arm's p95 in the deepest table less that in the first")
    def over_depth(self, high: str, low: str) -> Contrast:
        by_layer = self.arms[high].by_layer("p95", "rows")
        return Contrast((by_layer[max(by_layer.columns)] - by_layer[min(by_layer.columns)]).to_numpy())

    @metric("frequency:rows", "an arm's p95 of frequent tokens' rows less that of rare ones'")
    def over_frequency(self, high: str, low: str) -> Contrast:
        first = self.arms[high]
        if self.untestable("frequency:rows", "none"):
            return Contrast(np.full(first.summary["seeds"], np.nan))
        return Contrast(bucket_mean(first, "p95", FREQUENT) - bucket_mean(first, "p95", RARE))

    @metric("gain:rows", "rank correlation over tokens of spread and gain over the first arm, at equal frequency")
    def gain(self, high: str, low: str) -> Contrast:
        return gain_correlation(self.arms[high], self.arms[low])

    def untestable(self, metric: str, precondition: str) -> str | None:
        """Return a reason where the text has too few tokens of the kinds that a metric compares, in any arm."""
        arms = [arm for arm in self.arms.values() if not arm.summary.get("diverged") and arm.has("rows")]
        if not arms:
            return None  # the contrasts say which runs diverged
        if metric == "gain:rows":
            counts = arms[0].tokens["tokens"]
            if (enough := int((counts >= FEWEST_TARGETS).sum())) < FEWEST_TOKENS:
                return f"{enough} tokens have {FEWEST_TARGETS} scored targets; {FEWEST_TOKENS} are needed"
        if metric == "frequency:rows" and not all(
            any(arms[0].has("rows", bucket) for bucket in buckets) for buckets in (FREQUENT, RARE)
        ):
            return "too few tokens are frequent, or too few are rare"
        return None
