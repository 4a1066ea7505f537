"""The losses of an arm that `stemrepro score` wrote, and paired differences of arms, of which most measures consist."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from stemrepro.common.errors import UserError, unknown
from stemrepro.common.files import damaged
from stemrepro.common.sums import total
from stemrepro.config.address import MAIN, Address
from stemrepro.config.sources import prose
from stemrepro.measures import store
from stemrepro.measures.reading import ArmScores
from stemrepro.measures.scores import Scores, kept
from stemrepro.verdicts.effect import Effect, combined

if TYPE_CHECKING:
    import pandas as pd


class Bucket(NamedTuple):
    """A part of the targets."""

    by: str
    name: str


def members(mix: str, sources: tuple[str, ...]) -> tuple[str, ...]:
    """Return the sources of a mix: "prose", "all", or a source itself."""
    return {"prose": prose(sources), "all": sources}.get(mix, (mix,))


class ArmLosses(ArmScores):
    """Losses of one arm at one variant, of its first `count` seeds (None: of all)."""

    kind = "losses"

    def __init__(self, folder: Path, address: Address, count: int | None = None) -> None:
        super().__init__(folder, address)
        self.count = count
        self._fewer: dict[int, ArmLosses] = {}
        self._losses: dict[tuple[str, Bucket | None], pd.Series] = {}
        self._less: dict[tuple[ArmLosses, str, Bucket | None], Effect] = {}

    def first(self, count: int) -> ArmLosses:
        """Return the losses of the first `count` seeds alone, read once."""
        if count == len(self.seeds):
            return self
        return self._fewer.setdefault(count, ArmLosses(self.folder, self.address, count))

    @cached_property
    def summary(self) -> dict[str, Any]:
        about = store.about(self.folder, self.kind, self.address)
        return about | {"seeds": min(about["seeds"], self.count or about["seeds"])}

    @cached_property
    def seeds(self) -> list[int]:
        return self.summary["seed_numbers"][: self.summary["seeds"]]

    @property
    def diverged(self) -> dict[int, int]:
        """Runs that diverged among the seeds that are read, and the step of each."""
        ended = super().diverged
        return {seed: ended[seed] for seed in self.seeds if seed in ended}

    @property
    def scored(self) -> list[int]:
        return [seed for seed in self.seeds if seed not in self.diverged]

    @property
    def sources(self) -> tuple[str, ...]:
        return tuple(sorted(name for name in self.summary.get("loss", {}) if name not in ("prose", "all")))

    def of_scored(self, table: str) -> pd.DataFrame:
        """Return the lines of a table of the seeds that are read and did not diverge."""
        rows = self.lines(table)
        return rows[rows["seed"].isin(self.scored)]

    @cached_property
    def losses(self) -> pd.DataFrame:
        """Sums by seed, source and bucket: by, source, bucket, tokens, nats, bytes."""
        import pandas as pd

        rows = self.of_scored("losses")
        totals = rows.pivot_table(index="seed", columns=["by", "source"], values="tokens", aggfunc="sum")
        # Every seed is scored on the same targets, which each way of sorting them adds up to.
        for source in self.sources:
            counts = totals.xs(source, axis=1, level="source") if source in totals.columns.levels[1] else pd.DataFrame()
            if list(counts.index) != self.scored or len(np.unique(counts)) != 1:
                missing = f"of {self} and source '{source}' some of {len(self.scored)} seeds or a bucket is missing"
                raise damaged(self.folder / "losses.parquet", missing)
        return rows

    @cached_property
    def curve(self) -> pd.DataFrame:
        """Validation losses during training, by seed and tokens; `prose` is a mean over sources."""
        rows = self.of_scored("curve")
        marks = ["seed", "tokens", "flops", "train"]
        curve = rows.pivot(index=marks, columns="source", values="nats").reset_index()
        told = curve.groupby("seed")["tokens"].apply(tuple)
        if list(told.index) != self.scored or told.nunique() != 1 or curve.isna().any(axis=None):
            raise damaged(self.folder / "curve.parquet", f"of {self} seeds or marks are missing")
        curve["prose"] = curve[list(prose(self.sources))].mean(axis=1)
        return curve

    @cached_property
    def documents(self) -> dict[str, np.ndarray]:
        """Source, tokens, and nats as means over the seeds that are read, each [documents]."""
        rows, count = self.lines("documents"), len(self.seeds)
        if (rows["seeds"] != count).all():
            asked = " or ".join(map(str, rows["seeds"].unique()))
            where = f"{self.folder}/documents.parquet has sums of {self} over the first {asked} seeds"
            raise UserError(f"{where}, not over {count}; compare as many seeds")
        rows = rows[rows["seeds"] == count]
        return {name: rows[name].to_numpy() for name in ("source", "tokens")} | {
            "nats": rows["nats"].to_numpy() / count
        }

    @cached_property
    def steps(self) -> dict[str, np.ndarray]:
        """Loss and norm of the gradient at every step [seeds, steps]; NaN from the step on at which a run diverged."""
        if "steps" not in self.summary["lines"]:
            asked = "a recipe that reads losses by step has 'steps' among its scores"
            raise UserError(f"{self.folder}/steps.parquet has nothing of {self}; {asked}")
        rows, every = self.lines("steps"), range(1, self.summary["steps"] + 1)
        tables = {name: rows.pivot(index="seed", columns="step", values=name) for name in ("loss", "norm")}
        return {name: table.reindex(self.seeds, columns=every).to_numpy(float) for name, table in tables.items()}

    @cached_property
    def bits_per_byte(self) -> pd.Series:
        """The loss on prose in bits per byte of each seed; every source counts the same."""
        rows = self.losses[(self.losses.by == "pair") & self.losses.source.isin(prose(self.sources))]
        sums = rows.groupby(["seed", "source"])[["nats", "bytes"]].sum()
        return (sums.nats / np.log(2) / sums.bytes).groupby("seed").mean()

    def loss(self, mix: str, bucket: Bucket | None = None) -> pd.Series:
        """Return the loss in nats per token of each seed, of all targets or those of a bucket.

        Every source of a mix counts the same, except in buckets, where every token does.
        """
        if (mix, bucket) in self._losses:
            return self._losses[mix, bucket]
        rows = self.losses[self.losses.by == (bucket.by if bucket else "pair")]
        rows = rows[rows.source.isin(members(mix, self.sources))]
        if bucket:
            rows = rows[rows.bucket == bucket.name]
        if rows.empty:
            where = f" in the bucket {bucket.by}={bucket.name}" if bucket else ""
            raise UserError(f"{self.folder}/losses.parquet has nothing of {self} and '{mix}'{where}")
        keys = ["seed"] if bucket else ["seed", "source"]
        sums = rows.groupby(keys)[["nats", "tokens"]].sum()
        self._losses[mix, bucket] = (sums.nats / sums.tokens).groupby("seed").mean()
        return self._losses[mix, bucket]


def paired(first: ArmLosses, second: ArmLosses) -> tuple[ArmLosses, ArmLosses]:
    """Return both arms with as many seeds as the one with fewer has."""
    count = min(len(first.seeds), len(second.seeds))
    if first.seeds[:count] != second.seeds[:count]:
        raise UserError(f"{first} and {second} have different seeds: {first.seeds}, {second.seeds}")
    return first.first(count).whole(), second.first(count).whole()


def bootstrap_error(groups: Sequence[tuple[np.ndarray, ...]], statistic: Callable[..., np.ndarray]) -> float:
    """Return the standard error between documents of the mean over sources of a statistic, as scipy's bootstrap asks.

    `groups` has for each source the statistic's arrays [documents]; a source with a single document adds nothing.
    """
    from scipy import stats  # a second that reading recipes can do without

    variances = []
    for arrays in groups:
        if len(arrays[0]) > 1:
            rng = np.random.default_rng(0)
            drawn = stats.bootstrap(arrays, statistic, paired=True, n_resamples=1000, method="percentile", rng=rng)
            variances.append(float(drawn.standard_error) ** 2)
    return float(np.sqrt(total(variances))) / len(groups) if variances else 0.0


def _mean_of(nats: np.ndarray, tokens: np.ndarray, axis: int = -1) -> np.ndarray:
    return nats.sum(axis=axis) / tokens.sum(axis=axis)


def _item_error(first: ArmLosses, difference: np.ndarray, mix: str) -> float:
    """Return the standard error between documents of a difference averaged over seeds."""
    source, tokens = first.documents["source"], first.documents["tokens"].astype(float)
    of_sources = [source == name for name in members(mix, first.sources) if (source == name).any()]
    return bootstrap_error([(difference[chosen], tokens[chosen]) for chosen in of_sources], _mean_of)


def arm_losses(scores: Scores, arm: str, variant: str | None = None) -> ArmLosses:
    """Return a recipe's losses of an arm at a variant, of its first seeds; None is where the recipe compares its arms.

    UserError where the recipe doesn't want the arm there.
    """
    return _arm_losses(scores, arm, variant or scores.recipe.compare_at)


@kept
def _arm_losses(scores: Scores, arm: str, variant: str) -> ArmLosses:
    recipe = scores.recipe
    if variant == recipe.compare_at:
        return ArmLosses(scores.folder, Address(variant, arm), recipe.seeds_of(arm))
    if variant == MAIN:
        return ArmLosses(scores.folder, Address(variant, arm), recipe.more_seeds.get(arm, recipe.seeds))
    if variant not in recipe.variants_of(arm):
        raise unknown("variant", variant, recipe.variants_of(arm), f"recipes/{scores.name}.yaml of '{arm}'")
    return ArmLosses(scores.folder, Address(variant, arm), recipe.variants[variant].seeds)


def check_documents(first: ArmLosses, *others: ArmLosses) -> None:
    """Raise UserError where arms were scored on different documents."""
    for other, name in itertools.product(others, ("source", "tokens")):
        if not np.array_equal(first.documents[name], other.documents[name]):
            raise UserError(f"{first} and {other} were scored on different documents; score them anew")


def contrast(high: ArmLosses, low: ArmLosses, mix: str, bucket: Bucket | None = None) -> Effect:
    """Return loss(high) - loss(low) by seed, over the seeds that both have; of whole sources with documents' error."""
    first, second = paired(high, low)
    if (second, mix, bucket) not in first._less:
        difference, error = first.loss(mix, bucket) - second.loss(mix, bucket), 0.0
        if not bucket:
            check_documents(first, second)
            error = _item_error(first, first.documents["nats"] - second.documents["nats"], mix)
        first._less[second, mix, bucket] = Effect(difference.to_numpy(), error)
    return first._less[second, mix, bucket]


def drift(high: ArmLosses, low: ArmLosses) -> Effect:
    """Return how the prose gap changes from the first mark of training to its last, by seed."""
    first, second = (arm.curve.pivot(index="seed", columns="tokens", values="prose") for arm in paired(high, low))
    if list(first.columns) != list(second.columns):
        raise UserError(f"{high} and {low} were evaluated at different marks; score them anew")
    gap = first - second
    return Effect((gap.iloc[:, -1] - gap.iloc[:, 0]).to_numpy())


def interaction(
    pair: tuple[ArmLosses, ArmLosses], other: tuple[ArmLosses, ArmLosses], metric: str, *, same_size: bool = True
) -> Effect:
    """Return (loss(pair[0]) - loss(pair[1])) - (loss(other[0]) - loss(other[1])) over the seeds that all four have.

    It is of whole sources, with the error between documents. Of two sizes, the two differences aren't paired.
    """
    fewest = min((*pair, *other), key=lambda arm: len(arm.seeds))
    four = [paired(arm, fewest)[0] for arm in (*pair, *other)]
    check_documents(*four)
    loss, documents = [arm.loss(metric).to_numpy() for arm in four], [arm.documents["nats"] for arm in four]
    error = _item_error(four[0], documents[0] - documents[1] - documents[2] + documents[3], metric)
    if not same_size:
        return combined((1, -1), (loss[0] - loss[1], loss[2] - loss[3]), error)
    return Effect(loss[0] - loss[1] - loss[2] + loss[3], error)


def lead(high: ArmLosses, low: ArmLosses) -> Effect:
    """Return the second arm's lead on prose in % of the first's bits a byte, by seed, comparable over vocabularies."""
    first, second = paired(high, low)
    return Effect((100 * (1 - second.bits_per_byte / first.bits_per_byte)).to_numpy())


def slope(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the least-squares slope of y [places, seeds] over log2 x, by seed."""
    return np.polyfit(np.log2(x), y, 1)[0]


def slope_of_runs(x: Sequence[float], samples: Sequence[np.ndarray], degree: int = 1) -> Effect:
    """Return the highest coefficient of a polynomial over log2 x through samples [seeds] of different runs, not paired.

    With degree 1 it is the slope of a straight line.
    """
    return combined(np.linalg.pinv(np.vander(np.log2(x), degree + 1))[0], samples)
