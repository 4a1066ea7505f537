"""What an arm is worth along a ladder: in tokens, parameters and FLOPs of another, and what of it hangs on what."""

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
from stemrepro.measures.losses import ArmLosses, Bucket, paired
from stemrepro.measures.metric import metric
from stemrepro.verdicts.contrast import Contrast, Unmeasured

AT = "; at the scale itself, or at the rung after @"


class Scaling(Comparison):
    """A ladder of budgets, at one width or more. A rung is a variant, or the scale itself, its last."""

    preconditions: ClassVar[dict[str, Precondition]] = {NO_GAIN: Comparison.preconditions[NO_GAIN]}

    def __init__(self, inputs: Inputs) -> None:
        super().__init__(inputs)
        named = {name: inputs.catalog.variants[name] for name in inputs.recipe.variants}
        # Another start, or each arm's own rate, measures a place anew and is no place of its own.
        self.variants = {name: own for name, own in named.items() if not (own.official_init or own.tuned)}
        self._laws: dict[tuple[str, bool], list[PowerLaw]] = {}

    def rungs(self, width: float = 1.0) -> dict[str | None, int]:
        """Rungs of a width (a factor of the scale's) -> their tokens, in rising order; None is the scale itself."""
        everywhere: dict[str | None, Variant] = {**self.variants, None: Variant()}
        tokens = {
            name: variant.at(self.inputs.scale).training.tokens
            for name, variant in everywhere.items()
            if variant.width == width
        }
        return dict(sorted(tokens.items(), key=lambda own: own[1]))

    def widths(self) -> list[float]:
        """Factors of the scale's width that there are rungs of."""
        return sorted({1.0} | {variant.width for variant in self.variants.values()})

    def losses(self, arm: str, variant: str | None) -> ArmLosses:
        """Return an arm's losses at a rung, of the seeds that all rungs share: the first so many."""
        recipe = self.inputs.recipe
        seeds = min(recipe.seeds_of(arm), *(recipe.variants[name].seeds for name in self.variants))
        return self.all_losses(arm, variant).first(seeds)

    def all_losses(self, arm: str, variant: str | None) -> ArmLosses:
        """Return the same of all its seeds there, or at any variant of the recipe.

        Raises:
            UserError: the recipe doesn't want the arm there.
        """
        own = self.arms[arm]
        if variant and variant not in own.variants:
            raise UserError(f"the recipe has no arm '{arm}' at '{variant}'; add it to the variant's arms")
        return own.variants[variant] if variant else own.losses

    @metric("tokens", "slope of the prose gap of two arms a doubling of tokens, by seed")
    def slope(self, high: str, low: str, part: slice = slice(None)) -> Contrast:
        """Least-squares slope of the gap over log2 of the tokens, by seed; over all rungs or a part of them."""
        rungs = dict(list(self.rungs().items())[part])
        gaps = [losses.contrast(self.losses(high, at), self.losses(low, at), "prose") for at in rungs]
        return Contrast(losses.slope(np.array(list(rungs.values())), np.stack([gap.differences for gap in gaps])))

    @metric("prose@{variant}", "prose loss at a variant of the recipe")
    def gap(self, high: str, low: str, variant: str | None, bucket: Bucket | None = None) -> Contrast:
        """loss(high) - loss(low) at one rung on prose, over all of its seeds."""
        return losses.contrast(self.all_losses(high, variant), self.all_losses(low, variant), "prose", bucket)

    def relative_gap(self, high: str, low: str, variant: str | None) -> Contrast:
        """Return the gap in bits a byte at one rung, in % of the first arm's: the same number in any vocabulary and unit of loss."""
        first, second = paired(self.all_losses(high, variant), self.all_losses(low, variant))
        return Contrast((100 * (1 - second.bits_per_byte() / first.bits_per_byte())).to_numpy())

    def wider_dense(self, arm: str, variant: str) -> Contrast:
        """Return an arm's prose loss at the scale's width less that of dense at a wider rung, at equal tokens, by seed: the arm's is taken between
        its rungs, along a straight line in the logarithm of tokens.
        """
        rungs, at = self.rungs(), np.log(self.tokens_at(variant))
        own = self._rows(arm, list(rungs)).T
        wide = self.losses("dense", variant).whole().loss("prose").to_numpy()
        return Contrast(np.array([np.interp(at, np.log(list(rungs.values())), row) for row in own]) - wide)

    def over_law(self, arm: str, variant: str | None) -> Contrast:
        """Return an arm's prose loss at a rung of the scale's width less dense's fitted law at as many training FLOPs, by seed."""
        equal = self.narrow_tokens(variant) * self.flops(arm) / self.flops("dense")
        own = self.losses(arm, variant).whole().loss("prose").to_numpy()
        return Contrast(own - [float(law.loss(equal)) for law in self.laws("dense")])

    def _rows(self, arm: str, rungs: Collection[str | None]) -> np.ndarray:
        if not rungs:
            raise UserError("there is no rung below the first one")
        return np.stack([self.losses(arm, variant).whole().loss("prose").to_numpy() for variant in rungs])

    def laws(self, arm: str, widths: bool = False) -> list[PowerLaw]:
        """Power laws fitted to an arm's own ladder, a law a seed: over tokens at the scale's width, or over parameters and tokens.

        Two widths can't tell an exponent of parameters from a floor, so with two both axes have one exponent; with three each its own.

        Raises:
            UserError: too few rungs, or one width alone.
        """
        if (arm, widths) not in self._laws:
            self._laws[arm, widths] = self._fitted(arm, widths)
        return self._laws[arm, widths]

    def _fitted(self, arm: str, widths: bool) -> list[PowerLaw]:
        rows, sizes, tied = self.fitted_to(arm, widths)
        return [fit(own, *sizes, tied=tied) for own in rows.T]

    def fitted_to(
        self, arm: str, widths: bool, only: Collection[str | None] | None = None
    ) -> tuple[np.ndarray, tuple[np.ndarray, ...], bool]:
        """Return what a law is fitted to: losses [places, seeds], sizes [places] of each axis, and whether the axes share an exponent.

        Args:
            only: rungs to take, of all that there are.
        """
        every = self.widths() if widths else [1.0]
        if widths and len(every) < 2:
            raise UserError("a law over parameters needs rungs of two widths; the recipe's variants have one")
        rows, sizes, tokens = [], [], []
        for width in every:
            rungs = {variant: own for variant, own in self.rungs(width).items() if only is None or variant in only}
            rows.append(self._rows(arm, rungs))
            tokens += rungs.values()
            sizes += [self.parameters(arm, width)] * len(rungs) if widths else []
        axes = (np.array(sizes), np.array(tokens)) if widths else (np.array(tokens),)
        return np.concatenate(rows), axes, len(every) == 2

    def law_numbers(self, arm: str, widths: bool = False) -> dict[str, Fitted]:
        """Floor, amplitudes and exponents of an arm's law, with bootstrapped intervals; see `laws`."""
        rows, sizes, tied = self.fitted_to(arm, widths)
        return bootstrapped(rows, *sizes, tied=tied)

    def parameters(self, arm: str, width: float = 1.0, which: str = "total") -> float:
        """Parameters of an arm at a width: all, those of its tables, ..."""
        variant = next(iter(self.rungs(width)))
        return float(self.all_losses(arm, variant).summary["parameters"][which])

    def tokens_a_parameter(self, width: float = 1.0) -> dict[str | None, float]:
        """Rungs of a width -> tokens a parameter, all of dense's, as the paper counts them."""
        return {variant: tokens / self.parameters("dense", width) for variant, tokens in self.rungs(width).items()}

    def multiplier(self, high: str, low: str, axis: str, variant: str | None) -> np.ndarray:
        """log2 of how many times a rung's tokens (or the first arm's parameters) give the first arm the second's loss there, by seed.

        Raises:
            UserError: no rung of the scale's width.
            Unmeasured: a seed's loss lies below what the first arm's law ever reaches, or so far beyond its last rung that the ladder would
                have to be drawn on by more than its own length.
        """
        tokens, over = self.narrow_tokens(variant), axis == "parameters"
        targets = self.losses(low, variant).whole().loss("prose").to_numpy()
        sizes = [self.parameters(high, w) for w in self.widths()] if over else list(self.rungs().values())
        own = self.parameters(high) if over else tokens
        reached = [
            law.reach(loss, None, tokens) if over else law.reach(loss, None)
            for law, loss in zip(self.laws(high, over), targets, strict=True)
        ]
        where = variant or "the last rung"
        if never := int(np.isinf(reached).sum()):
            raise Unmeasured(
                f"{high} never reaches {low}'s loss at {where}: in {never} of {len(reached)} seeds it lies below the floor of {high}'s law"
            )
        span = max(sizes) / min(sizes)
        if (most := max(reached) / max(sizes)) > span:
            raise Unmeasured(
                f"{high} would reach {low}'s loss at {where} only with {most:.3g} times the most {axis} of its ladder, "
                f"which spans a factor of {span:.3g}"
            )
        return np.log2(np.array(reached) / own)

    def below(self, variant: str | None) -> list[str | None]:
        """Rungs from which one is foretold: the shorter ones of its width, and all of the scale's width if that is another."""
        width, tokens = self.width_of(variant), self.tokens_at(variant)
        shorter = [name for name, own in self.rungs(width).items() if own < tokens]
        return shorter if width == 1 else [*self.rungs(), *shorter]

    def width_of(self, variant: str | None) -> float:
        """Factor of the scale's width at a rung.

        Raises:
            UserError: there is no such rung.
        """
        if variant is not None and variant not in self.variants:
            raise unknown("rung", variant, self.variants, self.inputs.name)
        return self.variants[variant].width if variant else 1.0

    def tokens_at(self, variant: str | None) -> int:
        """Return tokens of a rung.

        Raises:
            UserError: there is no such rung.
        """
        return self.rungs(self.width_of(variant))[variant]

    def narrow_tokens(self, variant: str | None) -> int:
        """Return tokens of a rung of the scale's own width, which a law over tokens alone is of.

        Raises:
            UserError: it is of another width, or there is no such rung.
        """
        if self.width_of(variant) != 1:
            names = ", ".join(name for name in self.rungs() if name)
            raise UserError(f"'{variant}' is no rung at the scale's width; there are {names}")
        return self.tokens_at(variant)

    def forecast(self, arms: tuple[str, ...], variant: str | None) -> Contrast:
        """Return an arm's prose loss at a rung, or the gap between two arms, foretold from others alone (`below`); of another width than the
        scale's by the law over parameters and tokens.

        Raises:
            UserError: no such rung, or too few to fit.
        """
        width, tokens, ladders = self.width_of(variant), self.tokens_at(variant), []
        for arm in arms:
            losses, sizes, tied = self.fitted_to(arm, width != 1, self.below(variant))
            at = (self.parameters(arm, width), tokens) if width != 1 else (tokens,)
            ladders.append(Below(losses, sizes, at, tied))
        return forecast(tuple(ladders), (1, -1)[: len(arms)])

    def flops(self, arm: str) -> float:
        """Forward FLOPs a token of an arm at the scale."""
        return float(self.all_losses(arm, None).summary["forward_flops_per_token"])

    def step_time(self, arm: str) -> float:
        """Time of a training step over dense's; Unmeasured where the scale doesn't know it."""
        times = self.inputs.scale.step_times
        if arm not in times and arm != "dense":
            raise Unmeasured(
                f"scale '{self.inputs.scale_name}' has no step time of {arm} (step_times, by benchmarks.engine)"
            )
        return times.get(arm, 1.0)

    @metric(
        "width@{variant}",
        "prose gap of two arms at the scale's width less that at a wider rung, at equal tokens a parameter",
    )
    def over_width(self, high: str, low: str, variant: str) -> Contrast:
        """Return the gap of two arms at the scale's width less that at a wider rung, after as many tokens a parameter of dense's.

        Raises:
            UserError: the scale's width has no rung of as many tokens a parameter, to 5%.
        """
        wide = self.tokens_a_parameter(self.width_of(variant))[variant]
        narrow, x = min(self.tokens_a_parameter().items(), key=lambda own: abs(np.log(own[1] / wide)))
        if not 0.95 < x / wide < 1.05:
            raise UserError(
                f"'{variant}' has {wide:.3g} tokens a parameter; the nearest rung of the scale's width has {x:.3g}"
            )
        pair, wider = ((self.all_losses(high, at), self.all_losses(low, at)) for at in (narrow, variant))
        return losses.interaction(pair, wider, "prose")

    @metric("interaction[@{variant}]", factorial.WORDS)
    def interaction(self, high: str, low: str, variant: str | None = None) -> Contrast:
        """See stemrepro.measures.factorial; at one rung."""
        return factorial.interaction(high, low, tuple(self.arms), lambda arm: self.all_losses(arm, variant))

    @metric(
        "{of=token-multiplier}[@{variant}]",
        f"log2 of how many times the tokens the first arm needs to reach the second's loss, by its own fitted law, by seed{AT}",
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
        f"the same in training time: the tokens' times the first arm's step time over the second's, as the scale has them{AT}",
    )
    def scaling(self, high: str, low: str, of: str, variant: str | None = None) -> Contrast:
        """Return a multiplier's log2 by seed; see `multiplier`."""
        times = self.multiplier(high, low, "parameters" if of == "parameter-multiplier" else "tokens", variant)
        if of == "flop-multiplier":
            times = times + np.log2(self.flops(high) / self.flops(low))
        if of == "time-multiplier":
            times = times + np.log2(self.step_time(high) / self.step_time(low))
        return Contrast(times)
