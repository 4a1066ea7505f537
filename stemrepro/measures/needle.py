"""Needles found before and after an extension of the context: metrics of recipes/needle.yaml.

They are points of needles, mean over depths. The rows are the same for every arm and seed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stemrepro.common.errors import UserError
from stemrepro.config.address import MAIN
from stemrepro.measures import losses
from stemrepro.measures.base import Level, condition, on_scale
from stemrepro.measures.losses import arm_losses
from stemrepro.measures.metric import VariantName
from stemrepro.measures.reading import arm_table
from stemrepro.measures.scores import Scores
from stemrepro.verdicts.effect import Effect, of_shares
from stemrepro.verdicts.rule import TOO_SMALL

if TYPE_CHECKING:
    import pandas as pd

FOUND = 80.0
"""Points that dense must find where it was trained to; below them there is no finding to change."""
KEPT, ANEW = "longer", "longer-anew"
"""The variants of the extension: tables carried over, and drawn again as the official code does."""


def found(scores: Scores, arm: str, length: int, at: str, way: str = "chosen") -> pd.DataFrame:
    """Return points of needles by seed (rows) and depth (columns).

    Args:
        way: "chosen" by log-likelihood among all values, "generated" greedily; or "other", another key's value.
    """
    rows = arm_table(scores, "haystack", arm, at)
    rows = rows[rows["length"] == length]
    if rows.empty:
        raise UserError(f"{scores.folder}/haystack.parquet has of {arm} no rows of {length} tokens")
    return rows.assign(percent=100 * rows[way] / rows["rows"]).pivot(index="seed", columns="depth", values="percent")


def level(scores: Scores, arm: str, length: int, at: str, way: str = "chosen") -> Level:
    """Return the mean over depths, with the number of needles that a seed looks for; see `found`."""
    points, rows = found(scores, arm, length, at, way), arm_table(scores, "haystack", arm, at)
    return Level(points.mean(axis=1).to_numpy(), int(rows[rows["length"] == length]["rows"].sum()) // len(points))


def trained_length(scores: Scores, variant: str) -> int:
    """Return the tokens of a variant's sequences."""
    return scores.catalog.variant(variant).at(scores.scale).model.sequence


def _difference(one: Level, other: Level) -> Effect:
    return of_shares(one.percent, other.percent, one.items)


def _chosen_levels(scores: Scores, length: int, at: str = MAIN) -> list[Level]:
    return [level(scores, "dense", length, at)]


@on_scale(_chosen_levels)
def chosen(scores: Scores, high: str, low: str, length: int, at: VariantName = MAIN) -> Effect:
    """Points of needles found in rows of so many tokens, by log-likelihood among all values."""
    return _difference(*(level(scores, arm, length, at) for arm in (high, low)))


def _generated_levels(scores: Scores, length: int, at: str = MAIN) -> list[Level]:
    return [level(scores, "dense", length, at, "generated")]


@on_scale(_generated_levels)
def generated(scores: Scores, high: str, low: str, length: int, at: VariantName = MAIN) -> Effect:
    """Points of needles found in rows of so many tokens, by greedy generation."""
    return _difference(*(level(scores, arm, length, at, "generated") for arm in (high, low)))


def _growth_levels(scores: Scores) -> list[Level]:
    return [level(scores, "dense", trained_length(scores, variant), KEPT) for variant in (MAIN, KEPT)]


@on_scale(_growth_levels)
def growth(scores: Scores, high: str, low: str) -> Effect:
    """Lead at the length of the extension less lead at the length before it, both after the extension, points."""
    after, before = (chosen(scores, high, low, trained_length(scores, variant), KEPT) for variant in (KEPT, MAIN))
    return Effect(after.differences - before.differences)


def anew(scores: Scores, high: str, low: str, length: int) -> Effect:
    """Points in rows of so many tokens that a lead over an arm without tables, which cancels, loses to tables anew."""
    return _difference(*(level(scores, high, length, variant) for variant in (KEPT, ANEW)))


def anew_loss(scores: Scores, high: str, low: str) -> Effect:
    """Nats per token of prose that a lead over an arm without tables, which cancels, loses to tables drawn anew."""
    return losses.contrast(arm_losses(scores, high, ANEW), arm_losses(scores, high, KEPT), "prose")


@condition(TOO_SMALL, ("dense",))
def dense_finds(scores: Scores) -> str | None:
    """Dense finds 80% at the length it was trained on."""
    length = trained_length(scores, MAIN)
    if (share := level(scores, "dense", length, MAIN)).below(FOUND):
        return f"dense finds {share.words} of the needles in {length} tokens; {FOUND:g} are needed"
    return None
