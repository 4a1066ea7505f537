"""The losses of an arm that `stemrepro evaluate` wrote, and paired differences of arms, which most measures are made of.

Whatever can't be right is refused by file.
"""

import itertools
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd

from stemrepro.common.errors import UserError
from stemrepro.common.files import damaged
from stemrepro.config.address import MAIN
from stemrepro.config.sources import SOURCES, prose
from stemrepro.measures.bootstrap import bootstrap_error
from stemrepro.measures.reading import SEEDS, Array, check_numbers, read_csv, read_npz, read_summary
from stemrepro.verdicts.contrast import Contrast, Unmeasured

DOCUMENTS = {
    "seeds": SEEDS,
    "source": Array("labels", "documents"),
    "tokens": Array("whole numbers", "documents"),
    "nats": Array("numbers", "seeds documents"),
}
STEPS = {"seeds": SEEDS} | dict.fromkeys(("loss", "norm"), Array("numbers", "seeds steps", gaps=True))


def members(mix: str, sources: tuple[str, ...]) -> tuple[str, ...]:
    """Return the sources of a mix: "prose", "all", or a source itself."""
    return {"prose": prose(sources), "all": sources}.get(mix, (mix,))


class ArmLosses:
    """Losses of one arm at one variant, of its first `count` seeds (None: of all).

    Raises:
        UserError: a file is missing or damaged, or holds what no run can have given.
    """

    def __init__(self, folder: Path, count: int | None = None) -> None:
        self.folder, self.count = folder, count
        self._fewer: dict[int, ArmLosses] = {}
        self._losses: dict[str, pd.Series] = {}
        self._less: dict[tuple[ArmLosses, str], Contrast] = {}

    def first(self, count: int) -> "ArmLosses":
        """Return the same of its first seeds alone, read once."""
        if count == len(self.seeds):
            return self
        return self._fewer.setdefault(count, ArmLosses(self.folder, count))

    def __str__(self) -> str:
        variant = self.folder.parent.name
        return self.folder.name if variant == MAIN else f"{self.folder.name}@{variant}"

    @cached_property
    def summary(self) -> dict:
        """Means over all seeds, costs and hashes; "seeds" is the number of those read."""
        summary = read_summary(self.folder / "summary.json")
        summary["seeds"] = min(summary["seeds"], self.count or summary["seeds"])
        return summary

    @cached_property
    def seeds(self) -> list[int]:
        """The seeds that were trained."""
        path, count = self.folder / "steps.npz", read_summary(self.folder / "summary.json")["seeds"]
        return read_npz(path, {"seeds": SEEDS}, seeds=count)["seeds"].tolist()[: self.summary["seeds"]]

    @property
    def diverged(self) -> dict[int, int]:
        """Runs that ended with a loss that is no number, and at which step; they have no scores but steps."""
        ended = self.summary.get("diverged", {})
        return {seed: ended[str(seed)] for seed in self.seeds if str(seed) in ended}

    @property
    def scored(self) -> list[int]:
        """The seeds that have losses."""
        return [seed for seed in self.seeds if seed not in self.diverged]

    @property
    def sources(self) -> tuple[str, ...]:
        """Sources of text, by name."""
        return tuple(sorted(name for name in self.summary.get("loss", {}) if name not in ("prose", "all")))

    def whole(self) -> "ArmLosses":
        """This; Unmeasured where a run diverged."""
        for seed, step in self.diverged.items():
            raise Unmeasured(f"{self} diverged: the loss of seed {seed} is no number from step {step} on")
        return self

    @cached_property
    def losses(self) -> pd.DataFrame:
        """Sums by seed, source and bucket: by, source, bucket, tokens, nats, bytes."""
        path = self.folder / "losses.csv"
        rows = read_csv(path, "seed", "tokens", "nats", "bytes", words=("by", "source", "bucket"))
        every, rows = rows, rows[rows["seed"].isin(self.scored)]
        if rows.duplicated(["seed", "by", "source", "bucket"]).any():
            raise damaged(path, "a line stands twice")
        totals = rows.pivot_table(index="seed", columns=["by", "source"], values="tokens", aggfunc="sum")
        # Every seed is scored on the same targets, which each way of sorting them adds up to.
        for source in self.sources:
            own = totals.xs(source, axis=1, level="source") if source in totals.columns.levels[1] else pd.DataFrame()
            if list(own.index) != self.scored or own.isna().any(axis=None) or own.stack().nunique() != 1:
                raise damaged(
                    path, f"of source '{source}' something is missing; summary.json has {len(self.scored)} seeds"
                )
        if strange := set(rows["source"]) - set(self.sources):
            raise damaged(path, f"source '{min(strange)}' is not in summary.json")
        self._check_means(path, every)
        return rows

    def _check_means(self, path: Path, rows: pd.DataFrame) -> None:
        """Losses must give the means over all seeds that summary.json has, which was written with them."""
        sums = rows[rows["by"] == "pair"].groupby(["source", "seed"])[["nats", "tokens"]].sum()
        means = (sums["nats"] / sums["tokens"]).groupby("source").mean()
        for source in self.sources:
            said = self.summary["loss"][source]["nats_per_token"]
            if source in means and not abs(means[source] - said) <= 2e-6 * max(1, said):
                raise damaged(
                    path, f"'{source}' comes to {means[source]:.6f} nats a token, in summary.json it is {said:.6f}"
                )

    @cached_property
    def curve(self) -> pd.DataFrame:
        """Validation losses during training, by seed and tokens; `prose` and `all` are means over sources."""
        path = self.folder / "curve.csv"
        curve = read_csv(path, "seed", "tokens", "flops", "train", *self.sources)
        curve = curve[curve["seed"].isin(self.scored)].copy()
        marks = curve.groupby("seed")["tokens"].apply(tuple)
        if list(marks.index) != self.scored or marks.nunique() != 1:
            raise damaged(path, "seeds or marks are missing")
        curve["all"] = curve[list(self.sources)].mean(axis=1)
        curve["prose"] = curve[list(prose(self.sources))].mean(axis=1)
        return curve

    @cached_property
    def documents(self) -> dict[str, np.ndarray]:
        """Source [documents], tokens [documents], nats [seeds, documents]."""
        path = self.folder / "documents.npz"
        arrays = read_npz(path, DOCUMENTS)
        kept = np.isin(arrays["seeds"], self.scored)
        if kept.sum() != len(self.scored):
            raise damaged(path, f"seeds are missing; scored are {self.scored}")
        return arrays | {"nats": arrays["nats"][kept]}

    @cached_property
    def steps(self) -> dict[str, np.ndarray]:
        """Loss and norm of the gradient at every step [seeds, steps]; nan from the step on at which a run diverged."""
        path = self.folder / "steps.npz"
        arrays, steps = read_npz(path, STEPS), {}
        for name in ("loss", "norm"):
            values = arrays[name][: len(self.seeds)].astype(float)
            for seed, row in zip(self.seeds, values, strict=True):
                check_numbers(path, name, row[: self.diverged[seed] - 1] if seed in self.diverged else row)
            steps[name] = values
        return steps

    def bits_per_byte(self) -> pd.Series:
        """Loss on prose in bits per byte of each seed; both sources count the same."""
        rows = self.losses[(self.losses.by == "pair") & self.losses.source.isin(prose(self.sources))]
        sums = rows.groupby(["seed", "source"])[["nats", "bytes"]].sum()
        return (sums.nats / np.log(2) / sums.bytes).groupby("seed").mean()

    def loss(self, metric: str) -> pd.Series:
        """Loss in nats per token of each seed. `metric` is a source, "prose" or "all", with ":pair=4-31" or the like
        behind it for one bucket. Every source of a mix counts the same, except in buckets, where every token does.
        """
        if metric not in self._losses:
            self._losses[metric] = self._mean_loss(metric)
        return self._losses[metric]

    def _mean_loss(self, metric: str) -> pd.Series:
        mix, _, restriction = metric.partition(":")
        by, _, bucket = restriction.partition("=")
        rows = self.losses[self.losses.by == (by or "pair")]
        rows = rows[rows.source.isin(members(mix, self.sources))]
        if restriction:
            rows = rows[rows.bucket == bucket]
        if rows.empty:
            raise UserError(f"{self.folder}/losses.csv has nothing for metric '{metric}'")
        keys = ["seed"] if restriction else ["seed", "source"]
        sums = rows.groupby(keys)[["nats", "tokens"]].sum()
        return (sums.nats / sums.tokens).groupby("seed").mean()


def paired(first: ArmLosses, second: ArmLosses) -> tuple[ArmLosses, ArmLosses]:
    """Both arms with as many seeds as the one with fewer has.

    Raises:
        UserError: these are not the same.
        Unmeasured: one of these runs diverged.
    """
    count = min(len(first.seeds), len(second.seeds))
    if first.seeds[:count] != second.seeds[:count]:
        raise UserError(f"{first.folder} and {second.folder} have different seeds: {first.seeds}, {second.seeds}")
    return first.first(count).whole(), second.first(count).whole()


def gap_curve(high: ArmLosses, low: ArmLosses, metric: str = "prose") -> pd.DataFrame:
    """loss(high) - loss(low) at each mark: rows are seeds, columns tokens."""
    first, second = (arm.curve.pivot(index="seed", columns="tokens", values=metric) for arm in paired(high, low))
    if list(first.columns) != list(second.columns):
        raise UserError(f"{high.folder} and {low.folder} were looked at after other numbers of tokens; score them anew")
    return first - second


WHERE = "|".join(["prose", "all", *SOURCES, "hub"])
METRICS = {
    rf"({WHERE})": "loss in nats per token, every source of a mix the same weight",
    rf"({WHERE}):(pair|frequency|position)=\d+(-\d+|\+)?": "the same of the targets in a bucket",
    "drift": "change of the prose gap from the first mark of training to its last",
}


def _item_error(first: ArmLosses, differences: np.ndarray, mix: str) -> tuple[float, float]:
    """Return standard error between documents of the seed-averaged differences [seeds, documents], by bootstrap within each source, and its
    degrees of freedom.
    """
    documents, groups = first.documents, []
    for source in members(mix, first.sources):
        chosen = documents["source"] == source
        if chosen.any():
            groups.append((differences.mean(axis=0)[chosen], documents["tokens"][chosen].astype(float)))
    return bootstrap_error(groups, lambda d, t, axis=-1: d.sum(axis=axis) / t.sum(axis=axis))


def check_documents(first: ArmLosses, *others: ArmLosses) -> None:
    """Raise UserError where arms were scored on different documents."""
    for other, name in itertools.product(others, ("source", "tokens")):
        if not np.array_equal(first.documents[name], other.documents[name]):
            raise UserError(f"{first.folder} and {other.folder} were scored on different documents; score them anew")


def contrast(high: ArmLosses, low: ArmLosses, metric: str) -> Contrast:
    """loss(high) - loss(low) by seed, over the seeds that both have; of whole sources with the error between documents.

    Raises:
        UserError: the arms have different seeds or documents.
        Unmeasured: a run diverged.
    """
    first, second = paired(high, low)
    if (second, metric) not in first._less:
        first._less[second, metric] = _contrast(first, second, metric)
    return first._less[second, metric]


def _contrast(first: ArmLosses, second: ArmLosses, metric: str) -> Contrast:
    if metric == "drift":
        gap = gap_curve(first, second)
        return Contrast((gap.iloc[:, -1] - gap.iloc[:, 0]).to_numpy())
    difference = first.loss(metric) - second.loss(metric)
    item_se, item_df = (0.0, float("inf"))
    if ":" not in metric:
        check_documents(first, second)
        item_se, item_df = _item_error(first, first.documents["nats"] - second.documents["nats"], metric)
    return Contrast(difference.to_numpy(), item_se, item_df)


def interaction(pair: tuple[ArmLosses, ArmLosses], other: tuple[ArmLosses, ArmLosses], metric: str) -> Contrast:
    """(loss(pair[0]) - loss(pair[1])) - (loss(other[0]) - loss(other[1])) by seed, over the seeds that all four have; of whole sources,
    with the error between documents.

    Raises:
        UserError: the arms have different seeds.
        Unmeasured: a run diverged.
    """
    fewest = min((*pair, *other), key=lambda arm: len(arm.seeds))
    four = [paired(arm, fewest)[0] for arm in (*pair, *other)]
    check_documents(*four)
    signs = (1, -1, -1, 1)
    difference = sum(sign * arm.loss(metric) for sign, arm in zip(signs, four, strict=True))
    documents = sum(sign * arm.documents["nats"] for sign, arm in zip(signs, four, strict=True))
    return Contrast(difference.to_numpy(), *_item_error(four[0], documents, metric))


def slope(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Least-squares slope of y [places, seeds] over log2 x, by seed."""
    return np.polyfit(np.log2(x), y, 1)[0]
