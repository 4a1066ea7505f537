"""What an arm is worth along a ladder: in tokens, parameters and FLOPs of another, and on what that depends."""

from collections.abc import Collection
from typing import ClassVar

import numpy as np

from stemrepro.common.errors import UserError, unknown
from stemrepro.config.scale import Variant
from stemrepro.measures import factorial, losses
from stemrepro.measures.base import Precondition
from stemrepro.measures.comparison import NO_GAIN, Comparison
from stemrepro.measures.fits import Fitted, PowerLaw, bootstrapped, fit
from stemrepro.measures.forecast import Below, forecast
from stemrepro.measures.inputs import Inputs
from stemrepro.measures.losses import ArmLosses, Bucket
from stemrepro.measures.metric import Field, metric
from stemrepro.verdicts.contrast import Contrast, Unmeasured, unpaired

AT = "; at the scale itself, or at the rung after @"
SPANS = {"early": slice(3), "late": slice(-3, None)}
"""Parts of the ladder over which a slope is fitted by itself, as a gap need not change evenly: three rungs each."""


class Scaling(Comparison):
    """A ladder of budgets, at one width or more. A rung is a variant, or the scale itself, its last."""

    fields: ClassVar[dict[str, Field]] = {"span": SPANS}
    preconditions: ClassVar[dict[str, Precondition]] = {NO_GAIN: Comparison.preconditions[NO_GAIN]}

    def __init__(self, inputs: Inputs) -> None:
        super().__init__(inputs)
        named = {name: inputs.catalog.variants[name] for name in inputs.recipe.variants}
        # Another initialisation, or each arm's own rate, measures a rung anew and is no rung of its own.
        self.variants = {
            name: variant for name, variant in named.items() if not (variant.official_init or variant.tuned)
        }
        self._laws: dict[tuple[str, bool], list[PowerLaw]] = {}

    def rungs(self, width: float = 1.0) -> dict[str | None, int]:
        """Return the tokens of each rung of a width (over the scale's), rising; the rung None is the scale itself."""
        rungs = {name: one for name, one in {**self.variants, None: Variant()}.items() if one.width == width}
        tokens = {name: variant.at(self.inputs.scale).training.tokens for name, variant in rungs.items()}
        return dict(sorted(tokens.items(), key=lambda item: item[1]))

    def widths(self) -> list[float]:
        """Return the factors of the scale's width that have rungs."""
        return sorted({1.0} | {variant.width for variant in self.variants.values()})

    def losses(self, arm: str, variant: str | None) -> ArmLosses:
        """Return an arm's losses at a rung, of the first seeds alone, which all rungs have."""
        recipe = self.inputs.recipe
        seeds = min(recipe.seeds_of(arm), *(recipe.variants[name].seeds for name in self.variants))
        return self.all_losses(arm, variant).first(seeds)

    def all_losses(self, arm: str, variant: str | None) -> ArmLosses:
        """Return an arm's losses at any variant of the recipe, of all its seeds; UserError where it has none."""
        runs = self.arms[arm]
        if variant and variant not in runs.variants:
            raise UserError(f"the recipe has no arm '{arm}' at '{variant}'; add it to the variant's arms")
        return runs.variants[variant] if variant else runs.losses

    @metric("tokens:{span}", "slope of the prose gap of two arms per doubling of tokens, over early or late rungs")
    def slope(self, high: str, low: str, span: slice) -> Contrast:
        """Return the least-squares slope of the gap over log2 of the tokens, over the rungs of a span."""
        rungs = dict(list(self.rungs().items())[span])
        gaps = [losses.contrast(self.losses(high, at), self.losses(low, at), "prose") for at in rungs]
        return losses.slope_of_runs(list(rungs.values()), [gap.differences for gap in gaps])

    @metric("prose@{variant}", "prose loss at a variant of the recipe")
    def gap(self, high: str, low: str, variant: str | None, bucket: Bucket | None = None) -> Contrast:
        """Return loss(high) - loss(low) at one rung on prose, over all of its seeds."""
        return losses.contrast(self.all_losses(high, variant), self.all_losses(low, variant), "prose", bucket)

    def relative_gap(self, high: str, low: str, variant: str | None) -> Contrast:
        """Return the gap in bits per byte at one rung, in % of the first arm's."""
        return losses.lead(self.all_losses(high, variant), self.all_losses(low, variant))

    def wider_dense(self, arm: str, variant: str) -> Contrast:
        """Return an arm's prose loss at the scale's width less that of dense at a wider rung, at equal tokens, by seed.

        Between its rungs the arm's loss is a straight line in the logarithm of tokens.
        """
        rungs, at = self.rungs(), np.log(self.tokens_at(variant))
        narrow = self._rows(arm, list(rungs)).T
        wide = self.losses("dense", variant).whole().loss("prose").to_numpy()
        return unpaired(np.array([np.interp(at, np.log(list(rungs.values())), row) for row in narrow]), wide)

    def over_law(self, arm: str, variant: str | None) -> Contrast:
        """Return an arm's loss at a rung of the scale's width less dense's fitted law at as many FLOPs, by seed."""
        equal = self.narrow_tokens(variant) * self.flops(arm) / self.flops("dense")
        losses = self.losses(arm, variant).whole().loss("prose").to_numpy()
        return Contrast(losses - [float(law.loss(equal)) for law in self.laws("dense")])

    def _rows(self, arm: str, rungs: Collection[str | None]) -> np.ndarray:
        if not rungs:
            raise UserError("there is no rung below the first one")
        return np.stack([self.losses(arm, variant).whole().loss("prose").to_numpy() for variant in rungs])

    def laws(self, arm: str, widths: bool = False) -> list[PowerLaw]:
        """Return the power laws fitted to an arm's own ladder, a law per seed; UserError for too few rungs or widths.

        They are over tokens at the scale's width, or over parameters and tokens (`widths`). Two widths can't tell an
        exponent of parameters from a floor. So with two both axes share one exponent; with three each has its own.
        """
        if (arm, widths) not in self._laws:
            rows, sizes, tied = self.fitted_to(arm, widths)
            self._laws[arm, widths] = [fit(losses, *sizes, tied=tied) for losses in rows.T]
        return self._laws[arm, widths]

    def fitted_to(
        self, arm: str, widths: bool, only: Collection[str | None] | None = None
    ) -> tuple[np.ndarray, tuple[np.ndarray, ...], bool]:
        """Return losses [places, seeds], sizes [places] of each axis, and whether the axes share an exponent.

        Args:
            widths: take rungs of all widths, over parameters and tokens; else those of the scale's width, over tokens.
            only: rungs to take; None for all.
        """
        every = self.widths() if widths else [1.0]
        if widths and len(every) < 2:
            raise UserError("a law over parameters needs rungs of two widths; the recipe's variants have one")
        rows, sizes, tokens = [], [], []
        for width in every:
            rungs = {rung: count for rung, count in self.rungs(width).items() if only is None or rung in only}
            rows.append(self._rows(arm, rungs))
            tokens += rungs.values()
            sizes += [self.parameters(arm, width)] * len(rungs) if widths else []
        axes = (np.array(sizes), np.array(tokens)) if widths else (np.array(tokens),)
        return np.concatenate(rows), axes, len(every) == 2

    def law_numbers(self, arm: str, widths: bool = False) -> dict[str, Fitted]:
        """Return floor, amplitudes and exponents of an arm's law, with bootstrapped intervals; see `laws`."""
        rows, sizes, tied = self.fitted_to(arm, widths)
        return bootstrapped(rows, *sizes, tied=tied)

    def parameters(self, arm: str, width: float = 1.0, which: str = "total") -> float:
        """Return the parameters of an arm at a width: all, those of its tables, ..."""
        variant = next(iter(self.rungs(width)))
        return float(self.all_losses(arm, variant).summary["parameters"][which])

    def tokens_a_parameter(self, width: float = 1.0) -> dict[str | None, float]:
        """Return the tokens per parameter at each rung of a width; all of dense's parameters count, as in the paper."""
        return {variant: tokens / self.parameters("dense", width) for variant, tokens in self.rungs(width).items()}

    def multiplier(self, high: str, low: str, axis: str, variant: str | None) -> np.ndarray:
        """Return log2 of how many times a rung's tokens the first arm needs for the second's loss there, by seed.

        Along the axis "parameters" it is a multiple of the first arm's parameters.

        Raises:
            UserError: no rung of the scale's width.
            Unmeasured: the first arm's law never reaches a seed's loss, or only beyond its rungs by more than span.
        """
        tokens, over = self.narrow_tokens(variant), axis == "parameters"
        targets = self.losses(low, variant).whole().loss("prose").to_numpy()
        sizes = [self.parameters(high, w) for w in self.widths()] if over else list(self.rungs().values())
        spent = self.parameters(high) if over else tokens
        reached = [
            law.reach(loss, None, tokens) if over else law.reach(loss, None)
            for law, loss in zip(self.laws(high, over), targets, strict=True)
        ]
        where = variant or "the last rung"
        if never := int(np.isinf(reached).sum()):
            below = f"in {never} of {len(reached)} seeds it lies below the floor of {high}'s law"
            raise Unmeasured(f"{high} never reaches {low}'s loss at {where}: {below}")
        span = max(sizes) / min(sizes)
        if (most := max(reached) / max(sizes)) > span:
            only = f"only with {most:.3g} times the most {axis} of its ladder, which spans a factor of {span:.3g}"
            raise Unmeasured(f"{high} would reach {low}'s loss at {where} {only}")
        return np.log2(np.array(reached) / spent)

    def below(self, variant: str | None) -> list[str | None]:
        """Return the rungs from which one is predicted: the shorter ones of its width, all of the scale's else."""
        width, tokens = self.width_of(variant), self.tokens_at(variant)
        shorter = [rung for rung, count in self.rungs(width).items() if count < tokens]
        return shorter if width == 1 else [*self.rungs(), *shorter]

    def width_of(self, variant: str | None) -> float:
        """Return the factor of the scale's width at a rung; UserError where there is no such rung."""
        if variant is not None and variant not in self.variants:
            raise unknown("rung", variant, self.variants, self.inputs.name)
        return self.variants[variant].width if variant else 1.0

    def tokens_at(self, variant: str | None) -> int:
        """Return the tokens of a rung; UserError where there is no such rung."""
        return self.rungs(self.width_of(variant))[variant]

    def narrow_tokens(self, variant: str | None) -> int:
        """Return the tokens of a rung of the scale's width; UserError where it is of another, or there is none."""
        if self.width_of(variant) != 1:
            names = ", ".join(name for name in self.rungs() if name)
            raise UserError(f"'{variant}' is no rung at the scale's width; its rungs are {names}")
        return self.tokens_at(variant)

    def forecast(self, arms: tuple[str, ...], variant: str | None) -> Contrast:
        """Return an arm's prose loss at a rung, or the gap between two arms, predicted from others alone (`below`).

        At another width than the scale's it comes by the law over parameters and tokens.
        """
        width, tokens, ladders = self.width_of(variant), self.tokens_at(variant), []
        for arm in arms:
            losses, sizes, tied = self.fitted_to(arm, width != 1, self.below(variant))
            at = (self.parameters(arm, width), tokens) if width != 1 else (tokens,)
            ladders.append(Below(losses, sizes, at, tied))
        return forecast(tuple(ladders), (1, -1)[: len(arms)])

    def flops(self, arm: str) -> float:
        """Return the forward FLOPs per token of an arm at the scale."""
        return float(self.all_losses(arm, None).summary["forward_flops_per_token"])

    def step_time(self, arm: str) -> float:
        """Return the time of a training step over dense's; Unmeasured where the scale doesn't know it."""
        try:
            return self.inputs.scale.step_time(arm)
        except UserError as error:
            raise Unmeasured(f"scale '{self.inputs.scale_name}': {error}") from error

    @metric(
        "width@{variant}",
        "prose gap of two arms at the scale's width less that at a wider rung, at equal tokens per parameter",
    )
    def over_width(self, high: str, low: str, variant: str) -> Contrast:
        """Return the gap at the scale's width less that at a wider rung, after as many tokens a parameter of dense's.

        Raises:
            UserError: the scale's width has no rung of as many tokens per parameter, to 5%.
        """
        rungs = (self._as_long(variant), variant)
        pair, wider = ((self.all_losses(high, at), self.all_losses(low, at)) for at in rungs)
        return losses.interaction(pair, wider, "prose", same_size=False)

    @metric("lost@{variant}", "the same of leads in % of the first arm's bits a byte, in points")
    def lost(self, high: str, low: str, variant: str) -> Contrast:
        return unpaired(*(self.relative_gap(high, low, at).differences for at in (self._as_long(variant), variant)))

    def _as_long(self, variant: str) -> str | None:
        """Return the rung of the scale's width with as many tokens per parameter as a wider one; raises UserError."""
        wide = self.tokens_a_parameter(self.width_of(variant))[variant]
        narrow, x = min(self.tokens_a_parameter().items(), key=lambda item: abs(np.log(item[1] / wide)))
        if not 0.95 < x / wide < 1.05:
            nearest = f"the nearest rung of the scale's width has {x:.3g}"
            raise UserError(f"'{variant}' has {wide:.3g} tokens per parameter; {nearest}")
        return narrow

    @metric("interaction[@{variant}]", factorial.WORDS)
    def interaction(self, high: str, low: str, variant: str | None = None) -> Contrast:
        return factorial.interaction(high, low, tuple(self.arms), lambda arm: self.all_losses(arm, variant))

    @metric(
        "{of=token-multiplier}[@{variant}]",
        "log2 of how many times the tokens the first arm needs to reach the second's loss, by its own fitted law, "
        f"by seed{AT}",
    )
    @metric(
        "{of=parameter-multiplier}[@{variant}]",
        f"the same in parameters of the first arm, by its law over both widths{AT}",
    )
    @metric(
        "{of=flop-multiplier}[@{variant}]",
        f"the same in training FLOPs: the tokens' times the first arm's forward FLOPs over the second's{AT}",
    )
    @metric(
        "{of=time-multiplier}[@{variant}]",
        "the same in training time: the tokens' times the first arm's step time over the second's, "
        f"as the scale has them{AT}",
    )
    def scaling(self, high: str, low: str, of: str, variant: str | None = None) -> Contrast:
        times = self.multiplier(high, low, "parameters" if of == "parameter-multiplier" else "tokens", variant)
        if of == "flop-multiplier":
            times = times + np.log2(self.flops(high) / self.flops(low))
        if of == "time-multiplier":
            times = times + np.log2(self.step_time(high) / self.step_time(low))
        return Contrast(times)
