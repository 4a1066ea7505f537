"""Reads the angles between an arm's FFN vectors."""

from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd

from stemrepro.claims import Unmeasured
from stemrepro.config.address import MAIN, Address
from stemrepro.errors import UserError
from stemrepro.files import damaged
from stemrepro.scores.reading import SEEDS, Array, read_csv, read_npz, read_summary

SPREAD = {"seeds": SEEDS, "spread": Array("numbers", "seeds vocabulary", gaps=True)}
TOKENS = {
    "seeds": SEEDS,
    "tokens": Array("whole numbers", "vocabulary"),
    "nats": Array("numbers", "seeds vocabulary"),
    "seen": Array("whole numbers", "seeds vocabulary"),
}


def random_p95(dimensions: int) -> float:
    """95th percentile of |cos| between random directions: cos^2 is Beta(1/2, (n - 1)/2); near 1.96 / sqrt(n)."""
    from scipy import stats  # a second that reading recipes can do without

    return float(np.sqrt(stats.beta.ppf(0.95, 0.5, (dimensions - 1) / 2)))


class ArmGeometry:
    """Geometry scores of one arm, and its losses by input token.

    Args:
        folder: `scores/<scale>`.
        arm: at the scale itself.

    Raises:
        UserError: a file is missing or damaged.
    """

    def __init__(self, folder: Path, arm: str) -> None:
        place = Address(MAIN, arm).path
        self.folder, self.losses = folder / "geometry" / place, folder / "losses" / place
        self.summary = read_summary(self.folder / "summary.json", "width", "ffn_width", "layers")
        self.arm = arm

    def whole(self) -> "ArmGeometry":
        """This; Unmeasured where a run diverged."""
        for seed, step in self.summary.get("diverged", {}).items():
            raise Unmeasured(f"{self.arm} diverged: the loss of seed {seed} is no number from step {step} on")
        return self

    @cached_property
    def cosines(self) -> pd.DataFrame:
        """Statistics by seed, share of training, layer, kind, bucket and centring; Unmeasured where a run diverged."""
        path = self.whole().folder / "cosines.csv"
        frame = read_csv(
            path,
            "seed",
            "share",
            "layer",
            "p95",
            "mean",
            "mode",
            "peak",
            negative=("mean", "mode"),
            words=("what", "bucket"),
            flags=("centred",),
        )
        if frame["seed"].nunique() != self.summary["seeds"]:
            raise damaged(path, f"seeds are missing; summary.json has {self.summary['seeds']}")
        return frame

    def density(self, kind: str, layers: list[int]) -> np.ndarray:
        """Density of a kind's cosines at the end in some layers [layers, bins], the mean over seeds."""
        path = self.whole().folder / "density.npz"
        arrays = read_npz(path, {"layers": Array("whole numbers", "layers"), kind: Array("numbers", "layers bins")})
        there = arrays["layers"].tolist()
        if missing := set(layers) - set(there):
            raise damaged(path, f"'layers' lacks {min(missing)}")
        return arrays[kind][[there.index(layer) for layer in layers]]

    @cached_property
    def spread(self) -> np.ndarray:
        """Mean |cos| of each token's row to all others [seeds, vocab]."""
        return read_npz(self.whole().folder / "spread.npz", SPREAD, seeds=self.summary["seeds"])["spread"]

    @cached_property
    def tokens(self) -> dict[str, np.ndarray]:
        """Losses by input token of the seeds whose angles were taken: seeds, tokens [vocab], nats and seen [seeds, vocab]."""
        path, count = self.losses / "tokens.npz", self.whole().summary["seeds"]
        arrays = read_npz(path, TOKENS)
        return arrays | {name: arrays[name][:count] for name in ("seeds", "nats", "seen")}

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
            raise UserError(f"{self.folder}/cosines.csv has no '{what}' of bucket '{bucket}' at share {share:g}")
        return own.pivot(index="seed", columns="layer", values=statistic)

    def has(self, what: str, bucket: str = "all") -> bool:
        """Are there vectors of that kind (and bucket)?"""
        return bool(((self.cosines.what == what) & (self.cosines.bucket == bucket)).any())

    def random(self, what: str) -> float:
        """P95 of |cos| of random directions of the rank that these vectors can have: rows ffn_width, dense up-projection outputs
        width; gated ones are products of both, which can have any rank."""
        dense_up = what == "up" and not self.has("rows")
        return random_p95(self.summary["width"] if dense_up else self.summary["ffn_width"])
