"""What an arm is worth along a ladder: in tokens, FLOPs and time of another, and on what that depends.

A rung is a variant, or the scale itself, the last one. Rungs are of one width or more, which are over the scale's.
"""

from collections.abc import Iterable
from typing import Literal

import numpy as np

from stemrepro.common.errors import UserError, unknown
from stemrepro.config.address import MAIN
from stemrepro.config.scale import Variant
from stemrepro.measures import losses
from stemrepro.measures.comparison import interaction, lead, loss, no_gain_without_information
from stemrepro.measures.fits import PowerLaw, fit
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


def _ladder(scores: Scores, arm: str, rungs: Iterable[str]) -> np.ndarray:
    """Return losses [rungs, seeds]."""
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
def laws(scores: Scores, arm: str) -> list[PowerLaw]:
    """Return the power laws of tokens fitted to an arm's rungs of the scale's width, a law per seed."""
    every = rungs(scores)
    return [fit(of_seed, np.array(list(every.values()))) for of_seed in _ladder(scores, arm, every).T]


def parameters(scores: Scores, arm: str, width: float = 1.0) -> dict[str, int]:
    """Return the parameters of an arm at a width: "total", those of its "tables", ..."""
    return dict(arm_losses(scores, arm, next(iter(rungs(scores, width)))).summary["parameters"])


def tokens_a_parameter(scores: Scores, width: float = 1.0) -> dict[str, float]:
    """Return the tokens per parameter at each rung of a width; all of dense's parameters count, as in the paper."""
    return {at: spent / parameters(scores, "dense", width)["total"] for at, spent in rungs(scores, width).items()}


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
    """Log2 of how many times a rung's tokens the first arm needs for the second's loss there, by its own fitted law.

    Unmeasured where its law never reaches a seed's loss, or only beyond its rungs by more than their span.
    """
    spent, targets, sizes = _tokens_at(scores, at), _prose(scores, low, at), list(rungs(scores).values())
    reached = [law.reach(loss) for law, loss in zip(laws(scores, high), targets, strict=True)]
    where = "the last rung" if at == MAIN else at
    if never := int(np.isinf(reached).sum()):
        beyond = f"in {never} of {len(reached)} seeds it lies below the floor of {high}'s law"
        raise Unmeasured(f"{high} never reaches {low}'s loss at {where}: {beyond}")
    span = max(sizes) / min(sizes)
    if (most := max(reached) / max(sizes)) > span:
        only = f"only with {most:.3g} times the most tokens of its ladder, which spans a factor of {span:.3g}"
        raise Unmeasured(f"{high} would reach {low}'s loss at {where} {only}")
    return Effect(np.log2(np.array(reached) / spent))


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
