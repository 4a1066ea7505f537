"""Reads angles between FFN vectors, and forms the contrasts of the angular_spread recipe."""

from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import stats

from stemrepro.claims import Contrast
from stemrepro.errors import UserError
from stemrepro.recipe import Claim
from stemrepro.report.files import read_csv, read_json, read_npz

FREQUENT, RARE = ("256-2047", "2048+"), ("1-31",)
"""Buckets of a token's training count that count as frequent and as rare."""
FEWEST_TARGETS = 30
"""Scored targets behind a token that its loss needs to be used."""


def random_p95(dimensions: int) -> float:
    """95th percentile of |cos| between random directions: cos^2 is Beta(1/2, (n - 1)/2); near 1.96 / sqrt(n)."""
    return float(np.sqrt(stats.beta.ppf(0.95, 0.5, (dimensions - 1) / 2)))


class ArmGeometry:
    """Geometry scores of one arm, and its losses by input token.

    Raises:
        UserError: a file is missing or unreadable.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.summary = read_json(folder / "geometry" / "summary.json")

    @cached_property
    def cosines(self) -> pd.DataFrame:
        """Statistics by seed, share of training, layer, kind, bucket and centring."""
        return read_csv(self.folder / "geometry" / "cosines.csv")

    @cached_property
    def density(self) -> dict[str, np.ndarray]:
        """Densities of cosines at the end, [layers, bins] each, means over seeds; "layers" [layers]."""
        return read_npz(self.folder / "geometry" / "density.npz")

    @cached_property
    def spread(self) -> np.ndarray:
        """Mean |cos| of each token's row to all others [seeds, vocab]."""
        return read_npz(self.folder / "geometry" / "spread.npz")["spread"]

    @cached_property
    def tokens(self) -> dict[str, np.ndarray]:
        """Losses by input token of the seeds whose angles were taken: seeds, tokens [vocab], nats and seen [seeds, vocab]."""
        found, count = read_npz(self.folder / "losses" / "tokens.npz"), self.summary["seeds"]
        return found | {name: found[name][:count] for name in ("seeds", "nats", "seen")}

    @property
    def layers(self) -> list[int]:
        """Layers whose vectors were compared: the replaced ones, or all of dense's but the first."""
        return self.summary["layers"]

    def by_layer(
        self, statistic: str, what: str, centred: bool = False, share: float = 1.0, bucket: str = "all"
    ) -> pd.DataFrame:
        """A statistic: rows are seeds, columns layers.

        Raises:
            UserError: there is none of that kind.
        """
        own = self.cosines
        own = own[(own.what == what) & (own.bucket == bucket) & (own.centred == centred) & np.isclose(own.share, share)]
        if own.empty:
            raise UserError(
                f"{self.folder}/geometry/cosines.csv has no '{what}' of bucket '{bucket}' at share {share:g}"
            )
        return own.pivot(index="seed", columns="layer", values=statistic)

    def has(self, what: str, bucket: str = "all") -> bool:
        """Are there vectors of that kind (and bucket)?"""
        return bool(((self.cosines.what == what) & (self.cosines.bucket == bucket)).any())

    def random(self, what: str) -> float:
        """P95 of |cos| of random directions of the rank that these vectors can have: rows ffn_width, dense up-projection outputs
        width; gated ones are products of both, which can have any rank."""
        dense_up = what == "up" and not self.has("rows")
        return random_p95(self.summary["width"] if dense_up else self.summary["ffn_width"])


def bucket_mean(arm: ArmGeometry, statistic: str, buckets: tuple[str, ...]) -> np.ndarray:
    """Mean over layers and those of the buckets that hold enough rows [seeds]."""
    found = [arm.by_layer(statistic, "rows", bucket=b).mean(axis=1) for b in buckets if arm.has("rows", b)]
    if not found:
        raise UserError(f"{arm.folder}: no table has rows in the buckets {', '.join(buckets)}")
    return np.mean(found, axis=0)


def partial_rank_correlation(x: np.ndarray, y: np.ndarray, given: np.ndarray) -> float:
    """Spearman's correlation of x and y with the ranks of `given` taken out of both by least squares."""
    ranks = [stats.rankdata(values) for values in (x, y, given)]
    design = np.stack([np.ones_like(ranks[2]), ranks[2]], axis=1)
    rests = [values - design @ np.linalg.lstsq(design, values, rcond=None)[0] for values in ranks[:2]]
    return float(np.corrcoef(*rests)[0, 1])


def correlation_within(x: np.ndarray, y: np.ndarray, given: np.ndarray, classes: int) -> float:
    """The same with the mean ranks of equally large classes of `given` taken out instead: a control that assumes no straight line."""
    which = (stats.rankdata(given) * classes / (len(given) + 1)).astype(int)
    ranks = pd.DataFrame({"x": stats.rankdata(x), "y": stats.rankdata(y)})
    rests = ranks - ranks.groupby(which).transform("mean")
    return float(np.corrcoef(rests["x"], rests["y"])[0, 1])


def token_gains(dense: ArmGeometry, arm: ArmGeometry) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Of the tokens with enough scored targets: their numbers [n], loss of dense less the arm's behind them [seeds, n], mean |cos|
    of their rows [seeds, n], training counts [seeds, n].

    Raises:
        UserError: the arms were scored on different seeds or tokens.
    """
    same = all(np.array_equal(dense.tokens[name], arm.tokens[name]) for name in ("seeds", "tokens"))
    if not same:
        raise UserError(f"{dense.folder} and {arm.folder} were scored on different seeds or tokens")
    count = dense.tokens["tokens"]
    kept = np.flatnonzero((count >= FEWEST_TARGETS) & np.isfinite(arm.spread).all(axis=0))
    gain = (dense.tokens["nats"] - arm.tokens["nats"])[:, kept] / count[kept]
    return kept, gain, arm.spread[:, kept], arm.tokens["seen"][:, kept]


def gain_correlation(dense: ArmGeometry, arm: ArmGeometry, classes: int | None = None) -> Contrast:
    """Rank correlation over tokens of spread (-mean |cos|) and gain over dense at equal training count, a value a seed; with
    `classes` taken within so many classes of the count."""
    _, gain, spread, seen = token_gains(dense, arm)
    triples = zip(-spread, gain, seen, strict=True)
    if classes:
        return Contrast(np.array([correlation_within(*triple, classes) for triple in triples]))
    return Contrast(np.array([partial_rank_correlation(*triple) for triple in triples]))


def contrast(arms: dict[str, ArmGeometry], high: str, low: str, metric: str) -> Contrast:
    """A difference of two arms, or of two states of one (floor, learnt, depth, frequency), by seed; see the recipe's head.

    Raises:
        UserError: an unknown metric, or arms with different seeds.
    """
    statistic, what, *rest = metric.split(":")
    first, second, centred = arms[high], arms[low], rest == ["centred"]
    if statistic in ("p95", "mode", "excess"):
        layers = [layer for layer in first.layers if layer in second.layers]
        name = "p95" if statistic == "excess" else statistic
        one, other = (arm.by_layer(name, what, centred)[layers].mean(axis=1) for arm in (first, second))
        if list(one.index) != list(other.index):
            raise UserError(f"{first.folder} and {second.folder} have different seeds")
        if statistic == "excess":
            one, other = one / first.random(what), other / second.random(what)
        return Contrast((one - other).to_numpy())
    if statistic == "floor":
        return Contrast(first.by_layer("p95", what).mean(axis=1).to_numpy() - first.random(what))
    if statistic == "learnt":
        start, end = (first.by_layer("p95", what, share=share).mean(axis=1) for share in (0.0, 1.0))
        return Contrast((start - end).to_numpy())
    if statistic == "depth":
        by_layer = first.by_layer("p95", what)
        return Contrast((by_layer[max(by_layer.columns)] - by_layer[min(by_layer.columns)]).to_numpy())
    if statistic == "frequency":
        return Contrast(bucket_mean(first, "p95", FREQUENT) - bucket_mean(first, "p95", RARE))
    if statistic == "gain":
        return gain_correlation(first, second)
    raise UserError(f"metric '{metric}' is unknown; see recipes/angular_spread.yaml for those there are")


def failed_precondition(claim: Claim, arms: dict[str, ArmGeometry]) -> str | None:
    """Why a claim can't be tested at this scale, or None."""
    if claim.metric == "gain:rows" and len(token_gains(arms[claim.arms[0]], arms[claim.arms[1]])[0]) < 30:
        return f"fewer than 30 tokens have {FEWEST_TARGETS} scored targets"
    if claim.metric == "frequency:rows":
        arm = arms[claim.arms[0]]
        if not all(any(arm.has("rows", bucket) for bucket in buckets) for buckets in (FREQUENT, RARE)):
            return "too few tokens are frequent, or too few are rare"
    return None
