"""An arm's lead over another along a ladder of widths, at a fixed vocabulary and at one that grows with the width."""

from typing import ClassVar, NamedTuple

import numpy as np

from stemrepro.common.errors import UserError, unknown
from stemrepro.config.scale import Variant
from stemrepro.measures import losses
from stemrepro.measures.comparison import Comparison
from stemrepro.measures.fits import Fitted
from stemrepro.measures.losses import ArmLosses
from stemrepro.measures.metric import Field, metric
from stemrepro.measures.size_law import SizeLaw, fit
from stemrepro.verdicts.contrast import Contrast, Unmeasured, unpaired

LINES = ("fixed", "grown")
"""What becomes of the vocabulary: it stays, or grows with the width. The scale itself is on both lines."""


class Size(NamedTuple):
    """A model of the ladder: its variant, None for the scale itself, width and vocabulary, both over the scale's."""

    variant: str | None
    width: float
    vocab: float


class Sizes(Comparison):
    """Contrasts of losses, and leads in % of the first arm's bits a byte, which all vocabularies and sizes share."""

    fields: ClassVar[dict[str, Field]] = {"line": LINES, "span": {"wide": 1.0}}

    def sizes(self, line: str, least: float = 0.0) -> list[Size]:
        """Return the models of a line from a width (over the scale's) on, in order, at the arms' own tables' rates."""
        variants = {name: self.inputs.catalog.variants[name] for name in self.inputs.recipe.variants}
        named: dict[str | None, Variant] = {None: Variant(), **variants}
        models = [
            Size(name, variant.width, variant.vocab)
            for name, variant in named.items()
            if variant.table_rate == 1
            and variant.vocab == (1 if line == "fixed" else variant.width)
            and variant.width >= least
        ]
        return sorted(models, key=lambda size: size.width)

    def of(self, arm: str, variant: str | None) -> ArmLosses:
        """Return an arm's losses at a variant, or at the scale itself; UserError where it isn't trained there."""
        runs = self.arms[arm]
        if variant is None:
            return runs.losses
        if variant not in runs.variants:
            raise unknown("variant", variant, runs.variants, f"those of {arm} in {self.inputs.name}")
        return runs.variants[variant]

    @metric("prose@{variant}", "prose loss at another size, in nats per token")
    def gap(self, high: str, low: str, variant: str | None = None) -> Contrast:
        return losses.contrast(self.of(high, variant), self.of(low, variant), "prose")

    @metric("lead[@{variant}]", "lead of the second arm in % of the first's bits a byte")
    def lead(self, high: str, low: str, variant: str | None = None) -> Contrast:
        return losses.lead(self.of(high, variant), self.of(low, variant))

    @metric("lost@{variant}", "that lead at the scale itself less that at another size, in points")
    def lost(self, high: str, low: str, variant: str) -> Contrast:
        return unpaired(*(self.lead(high, low, at).differences for at in (None, variant)))

    @metric("table-rate@{variant}", "that lead where tables learn at a constant rate, less that at the matrices' rate")
    def table_rate(self, high: str, low: str, variant: str) -> Contrast:
        named = self.inputs.catalog.variants
        same = named[variant].model_copy(update={"table_rate": 1.0})
        tied = next((name for name in self.inputs.recipe.variants if named[name] == same), None)
        if tied is None or named[variant].table_rate == 1:
            raise UserError(f"'{variant}' differs from no variant of {self.inputs.name} by its table_rate alone")
        fast, slow = (losses.lead(self.of(high, tied), self.of(low, at)) for at in (variant, tied))
        return Contrast(fast.differences - slow.differences)

    @metric(
        "fall:{line}[:{span}]",
        "by how many doublings the lead falls per doubling of the width along a line; of all widths, or of "
        "those from the scale's on",
    )
    def fall(self, high: str, low: str, line: str, span: float = 0.0) -> Contrast:
        if len(self.sizes(line, span)) > 3:
            bend = self.bend(high, low, line, span)
            low_end, high_end = bend.interval(0.05)
            if low_end > 0 or high_end < 0:
                by = f"{bend.mean:+.2f} ({low_end:.2f} to {high_end:.2f}) with every doubling of the width"
                raise Unmeasured(f"no straight line fits: the fall of {low}'s lead changes by {by}")
        return self.slope(high, low, line, span)

    def slope(self, high: str, low: str, line: str, span: float = 0.0) -> Contrast:
        """Return the least-squares slope of -log2 lead over widths; Unmeasured where a lead isn't above 0."""
        return self._polynomial(high, low, line, 1, span, -1.0)

    def bend(self, high: str, low: str, line: str, span: float = 0.0) -> Contrast:
        """Return by how much `slope` itself grows per doubling of width, by a parabola; raises as it does."""
        return self._polynomial(high, low, line, 2, span, -2.0)

    @metric("forecast@{variant}", "log2 of the lead at a size less that which the law of all narrower ones foretells")
    def missed(self, high: str, low: str, variant: str) -> Contrast:
        """Return how far a lead lies from its forecast: two samples, the second each seed's own forecast."""
        size = self._size(variant)
        law = self.law(high, low, below=size.width)
        told = law.log_leads(np.log2(size.width), np.log2(size.vocab))
        return unpaired(np.log2(self._positive(high, low, [size])[0]), told)

    def foretold(self, high: str, low: str, variant: str) -> Fitted:
        """Return the lead in % at a size by the law of all narrower ones, with the interval of the law alone."""
        size = self._size(variant)
        return self.law(high, low, below=size.width).lead(np.log2(size.width), np.log2(size.vocab))

    def law(self, high: str, low: str, below: float = np.inf) -> SizeLaw:
        """Return the law of two arms' lead over both lines, of widths below one (over the scale's)."""
        models = list(dict.fromkeys(size for line in LINES for size in self.sizes(line) if size.width < below))
        leads = self._positive(high, low, models)
        x, z = (np.log2([getattr(size, axis) for size in models]) for axis in ("width", "vocab"))
        return fit(x, z, leads)

    def _size(self, variant: str) -> Size:
        return next(size for line in LINES for size in self.sizes(line) if size.variant == variant)

    def _polynomial(self, high: str, low: str, line: str, degree: int, span: float, times: float) -> Contrast:
        """Return the highest coefficient of log2 of the lead over log2 of the width, so many times."""
        models = self.sizes(line, span)
        leads = [times * np.log2(values) for values in self._positive(high, low, models)]
        return losses.slope_of_runs([size.width for size in models], leads, degree)

    def _positive(self, high: str, low: str, models: list[Size]) -> list[np.ndarray]:
        leads = [self.lead(high, low, size.variant).differences for size in models]
        for size, values in zip(models, leads, strict=True):
            if not (values > 0).all():
                raise Unmeasured(f"{low} has no lead over {high} at {size.variant or 'the scale'} in every seed")
        return leads
