"""Reads the score files of a scale and forms paired contrasts from them. No torch here: analyses take seconds."""

from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd

from stemrepro.claims import Contrast
from stemrepro.data.sources import prose
from stemrepro.errors import UserError
from stemrepro.recipe import Claim
from stemrepro.report.bootstrap import bootstrap_error
from stemrepro.report.files import read_csv, read_json, read_npz


class ArmScores:
    """Scores of one arm: what `stemrepro evaluate` wrote, of its first `seeds` seeds (None: of all).

    Raises:
        UserError: a file is missing or unreadable.
    """

    def __init__(self, folder: Path, seeds: int | None = None) -> None:
        self.folder, self.seeds = folder, seeds

    def first(self, frame: pd.DataFrame) -> pd.DataFrame:
        """The rows of the first seeds."""
        return frame[frame["seed"].isin(frame["seed"].unique()[: self.seeds])]

    @cached_property
    def summary(self) -> dict:
        """Means over all seeds, costs and hashes; "seeds" is the number of those read."""
        found = read_json(self.folder / "summary.json")
        return found | {"seeds": min(found["seeds"], self.seeds or found["seeds"])}

    @cached_property
    def losses(self) -> pd.DataFrame:
        """Sums by seed, source and bucket."""
        return self.first(read_csv(self.folder / "losses.csv"))

    @cached_property
    def curve(self) -> pd.DataFrame:
        """Validation losses during training, by seed and tokens; `prose` and `all` are means over sources."""
        curve = self.first(read_csv(self.folder / "curve.csv")).copy()
        sources = [name for name in curve.columns if name not in ("seed", "tokens", "flops", "train")]
        curve["all"] = curve[sources].mean(axis=1)
        curve["prose"] = curve[list(prose(sources))].mean(axis=1)
        return curve

    @cached_property
    def documents(self) -> dict[str, np.ndarray]:
        """source [documents], tokens [documents], nats [seeds, documents]."""
        found = read_npz(self.folder / "documents.npz")
        return found | {"nats": found["nats"][: self.seeds]}

    @cached_property
    def steps(self) -> dict[str, np.ndarray]:
        """loss and norm of the gradient at every step [seeds, steps]."""
        found = read_npz(self.folder / "steps.npz")
        return {name: found[name][: self.seeds].astype(float) for name in ("loss", "norm")}

    def bits_per_byte(self) -> pd.Series:
        """Loss on prose in bits per byte of each seed; both sources count the same."""
        rows = self.losses[self.losses.by == "pair"]
        rows = rows[rows.source.isin(prose(tuple(rows.source.unique())))]
        sums = rows.groupby(["seed", "source"])[["nats", "bytes"]].sum()
        return (sums.nats / np.log(2) / sums.bytes).groupby("seed").mean()

    def loss(self, metric: str) -> pd.Series:
        """Loss in nats per token of each seed. `metric` is a source, "prose" or "all", with ":pair=4-31" or the like
        behind it for one bucket. Every source of a mix counts the same, except in buckets, where every token does."""
        mix, _, restriction = metric.partition(":")
        by, _, bucket = restriction.partition("=")
        rows = self.losses[self.losses.by == (by or "pair")]
        every = tuple(rows.source.unique())
        sources = {"prose": prose(every), "all": every}.get(mix, (mix,))
        rows = rows[rows.source.isin(sources)]
        if restriction:
            rows = rows[rows.bucket == bucket]
        if rows.empty:
            raise UserError(f"{self.folder}/losses.csv has nothing for metric '{metric}'")
        keys = ["seed"] if restriction else ["seed", "source"]
        sums = rows.groupby(keys)[["nats", "tokens"]].sum()
        return (sums.nats / sums.tokens).groupby("seed").mean()


def _item_error(high: ArmScores, low: ArmScores, mix: str) -> tuple[float, float]:
    """Standard error between documents of the seed-averaged difference, by bootstrap within each source, and its
    degrees of freedom."""
    first, second = high.documents, low.documents
    every = tuple(np.unique(first["source"]))
    sources = {"prose": prose(every), "all": every}.get(mix, (mix,))
    present = [source for source in sources if (first["source"] == source).any()]
    groups = []
    for source in present:
        chosen = first["source"] == source
        difference = (first["nats"] - second["nats"]).mean(axis=0)[chosen]
        groups.append((difference, first["tokens"][chosen].astype(float)))
    return bootstrap_error(groups, lambda d, t, axis=-1: d.sum(axis=axis) / t.sum(axis=axis))


def contrast(arms: dict[str, ArmScores], high: str, low: str, metric: str) -> Contrast:
    """loss(high) - loss(low) by seed; for whole sources with the error between documents.

    The metric "drift" is the change of the prose gap from the first mark of the training curve to its last.

    Where one arm has more seeds, those that both have.

    Raises:
        UserError: the arms have different seeds.
    """
    if metric == "drift":
        gap = gap_curve(arms[high], arms[low])
        return Contrast((gap.iloc[:, -1] - gap.iloc[:, 0]).to_numpy())
    first, second = paired(arms[high], arms[low])
    difference = first.loss(metric) - second.loss(metric)
    item_se, item_df = (0.0, float("inf")) if ":" in metric else _item_error(first, second, metric)
    return Contrast(difference.to_numpy(), item_se, item_df)


def paired(first: ArmScores, second: ArmScores) -> tuple[ArmScores, ArmScores]:
    """Both arms with as many seeds as the one with fewer has.

    Raises:
        UserError: these are not the same.
    """
    seeds = [list(arm.losses["seed"].unique()) for arm in (first, second)]
    count = min(map(len, seeds))
    if seeds[0][:count] != seeds[1][:count]:
        raise UserError(f"{first.folder} and {second.folder} have different seeds: {seeds[0]}, {seeds[1]}")
    return tuple(
        arm if len(own) == count else ArmScores(arm.folder, count)
        for arm, own in zip((first, second), seeds, strict=True)
    )


def gap_curve(high: ArmScores, low: ArmScores, metric: str = "prose") -> pd.DataFrame:
    """loss(high) - loss(low) at each mark: rows are seeds, columns tokens."""
    both = high.curve.merge(low.curve, on=["seed", "tokens"], suffixes=("_high", "_low"))
    both["gap"] = both[f"{metric}_high"] - both[f"{metric}_low"]
    return both.pivot(index="seed", columns="tokens", values="gap")


def failed_precondition(claim: Claim, arms: dict[str, ArmScores]) -> str | None:
    """Why a claim can't be tested at this scale, or None. Each precondition is judged without the claim's contrast.

    token-only-below-three-quarters: an architectural claim needs a token-only control (its first arm) that explains
    less than three quarters of the gap between dense and stem-full.
    dense-beats-unigram: at the first mark dense must predict better than token frequencies do.
    """
    if claim.precondition == "token-only-below-three-quarters":
        gap = float(contrast(arms, "dense", "stem-full", "prose").mean)
        token_part = float(contrast(arms, "dense", "token-only", "prose").mean)
        if gap <= 0:
            return f"there is no gap between dense and stem-full to explain ({gap:.3f} nats)"
        if token_part >= 0.75 * gap:
            return f"the token-only control explains {100 * token_part / gap:.0f}% of the gap (three quarters or more)"
    if claim.precondition == "dense-beats-unigram":
        curve, floor = arms["dense"].curve, arms["dense"].summary["unigram_nats_per_token"]
        first = float(curve[curve.tokens == curve.tokens.min()]["prose"].mean())
        if first >= floor:
            return f"at the first mark dense ({first:.2f} nats) is no better than token frequencies ({floor:.2f})"
    return None
