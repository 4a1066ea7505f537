"""Who is ahead of whom, and how sure that is: metrics of recipes/leaderboard.yaml.

A track is a variant of the recipe; the one that it compares at is the track of equal FLOPs.
"""

from collections.abc import Iterable
from typing import Annotated, NamedTuple

import numpy as np

from stemrepro.config.address import Address
from stemrepro.config.arm import run_settings
from stemrepro.config.catalog import Catalog
from stemrepro.config.recipe import Recipe
from stemrepro.measures.base import condition
from stemrepro.measures.comparison import gain_without_information, lead, loss
from stemrepro.measures.scores import Scores
from stemrepro.model.cost import flops_per_token, parameter_counts, table_bytes_per_token
from stemrepro.verdicts.rule import CONFOUNDED

__all__ = ["lead", "loss", "no_gain_of"]

FROZEN = ("stem-frozen", "values-frozen", "ple-frozen", "over-encoding-frozen", "engram-frozen")
"""Controls: a memory whose rows never learn."""
FLOPS, SIZE, TIME = "FLOPs", "parameters", "time"
"""Tracks, by what all arms have equal."""
SHAPES = 2.0, 4.0
"""FFNs that are ranked, from so many widths of the model to so many; Qwen2.5-7B, with 5.3, is outside."""


class Standing(NamedTuple):
    """One arm's place on a track.

    Attributes:
        best, worst: the ranks that the comparisons with all others leave, at 95% for this arm.
        ahead: probability that its loss is below the next one's: a t distribution around the mean of the differences by
            seed, with no prior; NaN for the last.
    """

    arm: str
    rank: int
    best: int
    worst: int
    ahead: float


def size(parameters: float, tokens: float) -> str:
    """Return dense's size and budget in words: a rank belongs to them, so they stand in its title."""
    return f"{parameters / 1e6:.2g}M parameters, {tokens / parameters:.0f} tokens per parameter"


def standings(leads: dict[str, np.ndarray]) -> list[Standing]:
    """Return the arms from the first to the last, by their leads over the same seeds.

    An arm's best rank is one more than the number of arms that are shown to be ahead of it, and so on: its t tests by
    seed against all others are adjusted by Holm's procedure (Mogstad et al. 2024, "Inference for Ranks").
    """
    from scipy import stats  # a second that reading recipes can do without

    order = sorted(leads, key=lambda arm: -leads[arm].mean())
    places = []
    for rank, arm in enumerate(order, 1):
        others = [other for other in order if other != arm]
        gaps = np.array([leads[arm] - leads[other] for other in others]).reshape(-1, len(leads[arm]))  # or no other
        shown = shown_by_holm(stats.ttest_1samp(gaps, 0, axis=1).pvalue)
        ahead, behind = ((shown & (sign * gaps.mean(axis=1) > 0)).sum() for sign in (-1, 1))
        following = leads[arm] - leads[order[rank]] if rank < len(order) else None
        chance = np.nan if following is None else 1 - stats.ttest_1samp(following, 0).pvalue / 2
        places.append(Standing(arm, rank, int(1 + ahead), int(len(order) - behind), float(chance)))
    return places


def shown_by_holm(p: np.ndarray, alpha: float = 0.05) -> np.ndarray:
    """Tell which of several p values are shown at `alpha` after Holm's correction [tests]."""
    order = np.argsort(p, kind="stable")
    shown = np.empty(len(p), bool)
    shown[order] = np.logical_and.accumulate(p[order] * (len(p) - np.arange(len(p))) < alpha)
    return shown


def _frozen(catalog: Catalog, recipe: Recipe) -> Iterable[str]:
    return (arm for arm in FROZEN if arm in recipe.arms)


@condition(CONFOUNDED, ("dense",))
def no_gain_of(scores: Scores, control: Annotated[str, _frozen], smallest_effect: float) -> str | None:
    """A memory whose rows never learn isn't shown to end below dense by more than the claim's smallest effect."""
    return gain_without_information(scores, (control,), smallest_effect)


def tracks(scores: Scores) -> dict[str, str]:
    """Return the variants that are tracks in words: "FLOPs, width 16"."""
    words, width = {}, scores.scale.model.width
    for name in scores.recipe.variants:
        variant = scores.catalog.variant(name)
        model = variant.at(scores.scale).model
        track = TIME if variant.equal_time else SIZE if model.track == "size" else FLOPS
        words[name] = track if model.width == width else f"{track}, width {model.width}"
    return words


def places(scores: Scores, track: str) -> list[Standing]:
    """Return the places of a track's methods; controls have none, nor untuned ones, nor shapes outside of SHAPES."""
    leads = {}
    for arm in scores.recipe.arms_at(track):
        fields = scores.catalog.arms[arm]
        tuned = scores.scale.tuned_of(arm, fields.family) is not None
        if tuned and not fields.is_control and SHAPES[0] <= costs(scores, arm, track)["shape"] <= SHAPES[1]:
            leads[arm] = lead(scores, "dense", arm, track).differences
    return standings(leads)


def costs(scores: Scores, arm: str, track: str) -> dict[str, float]:
    """Return an arm's costs on a track: numbers, forward FLOPs and bytes of rows (2 a number) a token, a step's time.

    "shape" is d_ff over the width. The time is over dense's; NaN where its model was not timed.
    """
    scale, variant = scores.scale, scores.catalog.variant(track)
    model, _ = run_settings(Address(track, arm), scores.catalog.arms[arm], variant, scale)
    timed = variant.track is None and variant.width == 1 and arm in {"dense", *scale.step_times}
    counts = parameter_counts(model)
    return {
        "parameters": counts["total"],
        "active parameters": counts["active"],
        "shape": model.ffn_width / model.width,
        "FLOPs": flops_per_token(model, scale.model.sequence),
        "bytes of rows": table_bytes_per_token(model),
        "step time": scale.step_time(arm) if timed else np.nan,
    }
