"""What an arm is worth along a ladder: in tokens, parameters and FLOPs of another, and on what that depends.

A rung is a variant, or the scale itself, the last one. Rungs are of one width or more, which are over the scale's.
"""

from collections.abc import Collection, Iterable
from itertools import combinations
from typing import Literal, NamedTuple

import numpy as np

from stemrepro.common.errors import UserError, unknown
from stemrepro.config.address import MAIN
from stemrepro.config.scale import Variant
from stemrepro.measures import losses
from stemrepro.measures.comparison import interaction, lead, loss, no_gain_without_information
from stemrepro.measures.fits import Below, Fitted, PowerLaw, bootstrapped, fit, forecast
from stemrepro.measures.losses import ArmLosses, arm_losses
from stemrepro.measures.metric import VariantName
from stemrepro.measures.scores import Scores, kept
from stemrepro.verdicts.effect import Effect, Unmeasured, unpaired

__all__ = ["interaction", "lead", "loss", "no_gain_without_information"]  # of comparison, for recipes
Span = Literal["early", "late"]
SPANS: dict[Span, slice] = {"early": slice(3), "late": slice(-3, None)}
"""Parts of the ladder over which a slope is fitted by itself, as a gap need not change evenly: three rungs each."""


def _variants(scores: Scores) -> dict[str, Variant]:
    """Another initialisation, or each arm's own rate, measures a rung anew and is no rung of its own."""
    named = {name: scores.catalog.variant(name) for name in (*scores.recipe.variants, MAIN)}
    return {name: variant for name, variant in named.items() if not (variant.official_init or variant.tuned)}


def widths(scores: Scores) -> list[float]:
    """Return the widths that have rungs."""
    return sorted({variant.width for variant in _variants(scores).values()})


def rungs(scores: Scores, width: float = 1.0) -> dict[str, int]:
    """Return the tokens of each rung of a width, rising."""
    named = [(name, variant) for name, variant in _variants(scores).items() if variant.width == width]
    tokens = {name: variant.at(scores.scale).training.tokens for name, variant in named}
    return dict(sorted(tokens.items(), key=lambda item: item[1]))


def _place(scores: Scores, at: str) -> tuple[float, int]:
    """Return width and tokens of a rung; UserError where there is no such rung."""
    variants = _variants(scores)
    if at not in variants:
        raise unknown("rung", at, variants, scores.name)
    return variants[at].width, variants[at].at(scores.scale).training.tokens


def _tokens_at(scores: Scores, at: str) -> int:
    """Return the tokens of a rung of the scale's width; UserError where it is of another, or there is none."""
    width, tokens = _place(scores, at)
    if width != 1:
        names = ", ".join(name for name in rungs(scores) if name != MAIN)
        raise UserError(f"'{at}' is no rung at the scale's width; its rungs are {names}")
    return tokens


def rung_losses(scores: Scores, arm: str, at: str) -> ArmLosses:
    """Return an arm's losses at a rung, of the first seeds alone, which all rungs have."""
    recipe = scores.recipe
    variants = [recipe.variants[name].seeds for name in _variants(scores) if name != MAIN]
    return arm_losses(scores, arm, at).first(min(recipe.seeds_of(arm), *variants))


def _prose(scores: Scores, arm: str, at: str) -> np.ndarray:
    return rung_losses(scores, arm, at).whole().loss("prose").to_numpy()


def _ladder(scores: Scores, arm: str, rungs: Collection[str]) -> np.ndarray:
    """Return losses [rungs, seeds]."""
    if not rungs:
        raise UserError("there is no rung below the first one")
    return np.stack([_prose(scores, arm, at) for at in rungs])


def tokens(scores: Scores, high: str, low: str, span: Span) -> Effect:
    """Slope of the prose gap of two arms per doubling of tokens, over early or late rungs."""
    chosen = dict(list(rungs(scores).items())[SPANS[span]])
    gaps = [losses.contrast(rung_losses(scores, high, at), rung_losses(scores, low, at), "prose") for at in chosen]
    return losses.slope_of_runs(list(chosen.values()), [gap.differences for gap in gaps])


def wider_dense(scores: Scores, arm: str, at: str) -> Effect:
    """Return an arm's prose loss at the scale's width less that of dense at a wider rung, at equal tokens, by seed.

    Between its rungs the arm's loss is a straight line in the logarithm of tokens.
    """
    narrow = rungs(scores)
    steps, spent = np.log(list(narrow.values())), np.log(_place(scores, at)[1])
    between = np.array([np.interp(spent, steps, row) for row in _ladder(scores, arm, narrow).T])
    return unpaired(between, _prose(scores, "dense", at))


def over_law(scores: Scores, arm: str, at: str) -> Effect:
    """Return an arm's loss at a rung of the scale's width less dense's fitted law at as many FLOPs, by seed."""
    equal = _tokens_at(scores, at) * _flops(scores, arm) / _flops(scores, "dense")
    return Effect(_prose(scores, arm, at) - [float(law.loss(equal)) for law in laws(scores, "dense")])


@kept
def laws(scores: Scores, arm: str, wide: bool = False) -> list[PowerLaw]:
    """Return the power laws fitted to an arm's own ladder, a law per seed; UserError for too few rungs or widths.

    They are over tokens at the scale's width, or over parameters and tokens (`wide`). Two widths can't tell an
    exponent of parameters from a floor. So with two both axes share one exponent; with three each has its own.
    """
    rows, sizes, tied = fitted_to(scores, arm, wide)
    return [fit(of_seed, *sizes, tied=tied) for of_seed in rows.T]


def law_numbers(scores: Scores, arm: str, wide: bool = False) -> dict[str, Fitted]:
    """Return floor, amplitudes and exponents of an arm's law, with bootstrapped intervals; see `laws`."""
    rows, sizes, tied = fitted_to(scores, arm, wide)
    return bootstrapped(rows, *sizes, tied=tied)


def fitted_to(
    scores: Scores, arm: str, wide: bool, only: Collection[str] | None = None
) -> tuple[np.ndarray, tuple[np.ndarray, ...], bool]:
    """Return losses [places, seeds], sizes [places] of each axis, and whether the axes share an exponent.

    `wide` takes rungs of all widths, over parameters and tokens; else those of the scale's width, over tokens.
    """
    every = widths(scores) if wide else [1.0]
    if wide and len(every) < 2:
        raise UserError("a law over parameters needs rungs of two widths; the recipe's variants have one")
    rows: list[np.ndarray] = []
    sizes: list[int] = []
    spent: list[int] = []
    for width in every:
        chosen = {at: count for at, count in rungs(scores, width).items() if only is None or at in only}
        rows.append(_ladder(scores, arm, chosen))
        spent += chosen.values()
        sizes += [parameters(scores, arm, width)["total"]] * len(chosen) if wide else []
    axes = (np.array(sizes, float), np.array(spent)) if wide else (np.array(spent),)
    return np.concatenate(rows), axes, len(every) == 2


def parameters(scores: Scores, arm: str, width: float = 1.0) -> dict[str, int]:
    """Return the parameters of an arm at a width: "total", those of its "tables", ..."""
    return dict(arm_losses(scores, arm, next(iter(rungs(scores, width)))).summary["parameters"])


def tokens_a_parameter(scores: Scores, width: float = 1.0) -> dict[str, float]:
    """Return the tokens per parameter at each rung of a width; all of dense's parameters count, as in the paper."""
    return {at: spent / parameters(scores, "dense", width)["total"] for at, spent in rungs(scores, width).items()}


def below(scores: Scores, at: str) -> list[str]:
    """Return the rungs from which one is predicted: the shorter ones of its width, all of the scale's else."""
    width, spent = _place(scores, at)
    shorter = [rung for rung, count in rungs(scores, width).items() if count < spent]
    return shorter if width == 1 else [*rungs(scores), *shorter]


def predicted(scores: Scores, arms: tuple[str, ...], at: str) -> Effect:
    """Return an arm's prose loss at a rung, or the gap between two arms, predicted from others alone (`below`).

    At another width than the scale's it comes by the law over parameters and tokens.
    """
    width, spent = _place(scores, at)
    ladders = []
    for arm in arms:
        rows, sizes, tied = fitted_to(scores, arm, width != 1, below(scores, at))
        place = (spent,) if width == 1 else (parameters(scores, arm, width)["total"], spent)
        ladders.append(Below(rows, sizes, place, tied))
    return forecast(tuple(ladders), (1, -1)[: len(arms)])


def _flops(scores: Scores, arm: str) -> float:
    return float(arm_losses(scores, arm).summary["forward_flops_per_token"])


def width(scores: Scores, high: str, low: str, at: VariantName) -> Effect:
    """Prose gap of two arms at the scale's width less that at a wider rung, at equal tokens per parameter.

    UserError where the scale's width has no rung of as many tokens per parameter of dense's, to 5%.
    """
    pair, wider = (
        (arm_losses(scores, high, rung), arm_losses(scores, low, rung)) for rung in (_as_long(scores, at), at)
    )
    return losses.interaction(pair, wider, "prose", same_size=False)


def lost(scores: Scores, high: str, low: str, at: VariantName) -> Effect:
    """Lead in % of the first arm's bits a byte at the scale's width, less that at a wider rung, in points.

    Both are after as many tokens per parameter.
    """
    return unpaired(*(lead(scores, high, low, rung).differences for rung in (_as_long(scores, at), at)))


def _as_long(scores: Scores, at: str) -> str:
    """Return the rung of the scale's width with as many tokens per parameter as a wider one; raises UserError."""
    wide = tokens_a_parameter(scores, _place(scores, at)[0])[at]
    narrow, x = min(tokens_a_parameter(scores).items(), key=lambda item: abs(np.log(item[1] / wide)))
    if not 0.95 < x / wide < 1.05:
        raise UserError(
            f"'{at}' has {wide:.3g} tokens per parameter; the nearest rung of the scale's width has {x:.3g}"
        )
    return narrow


def token_multiplier(scores: Scores, high: str, low: str, at: VariantName = MAIN) -> Effect:
    """Log2 of how many times a rung's tokens the first arm needs for the second's loss there, by its own fitted law."""
    every = list(rungs(scores).values())
    return _multiplier(scores, (high, low), at, "tokens", every, _tokens_at(scores, at))


def parameter_multiplier(scores: Scores, high: str, low: str, at: VariantName = MAIN) -> Effect:
    """Log2 of the same in parameters of the first arm, by its law over parameters and tokens."""
    every = [parameters(scores, high, width)["total"] for width in widths(scores)]
    return _multiplier(scores, (high, low), at, "parameters", every, parameters(scores, high)["total"])


def flop_multiplier(scores: Scores, high: str, low: str, at: VariantName = MAIN) -> Effect:
    """Log2 of the same in training FLOPs: the tokens' times the first arm's forward FLOPs over the second's."""
    of_tokens = token_multiplier(scores, high, low, at).differences
    return Effect(of_tokens + np.log2(_flops(scores, high) / _flops(scores, low)))


def time_multiplier(scores: Scores, high: str, low: str, at: VariantName = MAIN) -> Effect:
    """Log2 of the same in training time: the tokens' times the first arm's step time over the second's."""
    of_tokens = token_multiplier(scores, high, low, at).differences
    try:
        one, other = (scores.scale.step_time(arm) for arm in (high, low))
    except UserError as error:
        raise Unmeasured(f"scale '{scores.scale_name}': {error}") from error
    return Effect(of_tokens + np.log2(one / other))


def _multiplier(
    scores: Scores, pair: tuple[str, str], at: str, axis: Literal["tokens", "parameters"], sizes: list[int], spent: int
) -> Effect:
    """Return log2 of how many times what it has spent along an axis the first arm needs for the second's loss, by seed.

    The first arm's rungs have `sizes` along it. Unmeasured where its law never reaches a seed's loss, or only beyond
    its rungs by more than their span.
    """
    (high, low), wide, tokens = pair, axis == "parameters", _tokens_at(scores, at)
    free = (None, tokens) if wide else (None,)
    targets = _prose(scores, low, at)
    reached = [law.reach(loss, *free) for law, loss in zip(laws(scores, high, wide), targets, strict=True)]
    where = "the last rung" if at == MAIN else at
    if never := int(np.isinf(reached).sum()):
        beyond = f"in {never} of {len(reached)} seeds it lies below the floor of {high}'s law"
        raise Unmeasured(f"{high} never reaches {low}'s loss at {where}: {beyond}")
    span = max(sizes) / min(sizes)
    if (most := max(reached) / max(sizes)) > span:
        only = f"only with {most:.3g} times the most {axis} of its ladder, which spans a factor of {span:.3g}"
        raise Unmeasured(f"{high} would reach {low}'s loss at {where} {only}")
    return Effect(np.log2(np.array(reached) / spent))


class Agreement(NamedTuple):
    """How often a cheaper setting calls a comparison of two arms as a ladder's last rung does.

    These are means over pairs of arms, and over all choices of so many seeds, at one variant.

    Attributes:
        pairs: comparisons that the last rung can tell.
        same_sign: share whose mean has the last rung's sign.
        right: share that its own 95% interval calls as the last rung does.
        wrong: share that is called the other way. The rest is left open.
    """

    pairs: int
    same_sign: float
    right: float
    wrong: float


def _sign(effect: Effect) -> int:
    """Return -1 or 1 where the 95% interval lies below or above 0, else 0."""
    low, high = effect.interval(0.05)
    return int(low > 0) - int(high < 0)


def agreement(pairs: Iterable[tuple[Effect, Effect]], seeds: int) -> Agreement:
    """Compare a cheaper setting, each choice of so many of its seeds, with the last rung, at which all seeds count.

    `pairs` are two arms' difference at the last rung, and at the setting.
    """
    shares, told = [], 0
    for last, cheap in pairs:
        if not (end := _sign(last)):
            continue
        told += 1
        for chosen in combinations(cheap.differences, seeds):
            effect = Effect(np.array(chosen))
            called = end * _sign(effect)
            shares.append((end * effect.mean > 0, called > 0, called < 0))
    same, right, wrong = np.mean(shares, axis=0) if shares else (np.nan,) * 3
    return Agreement(told, float(same), float(right), float(wrong))
