"""A ladder's next rung, predicted from those below it, before it is run.

Every seed's own power law is extrapolated: the spread between these is the error over seeds. How far the laws miss the
rungs that they were fitted to is the other error, by bootstrap of the residuals of the seed-averaged ladder. A
prediction's interval has both, with Satterthwaite's degrees of freedom.
"""

from dataclasses import dataclass

import numpy as np

from stemrepro.common.errors import UserError
from stemrepro.measures.fits import PowerLaw, fit
from stemrepro.verdicts.effect import Effect

DRAWS = 200


@dataclass(frozen=True)
class Below:
    """An arm's rungs below the one to predict, and where that one is.

    Attributes:
        losses: [rungs, seeds].
        sizes: [rungs] for each axis of the law: tokens, or parameters and tokens.
        at: sizes of the rung to predict, one for each axis.
    """

    losses: np.ndarray
    sizes: tuple[np.ndarray, ...]
    at: tuple[float, ...]
    tied: bool = False

    @property
    def fitted(self) -> int:
        """Parameters of the law."""
        return 1 + len(self.sizes) + (1 if self.tied else len(self.sizes))

    def law(self, losses: np.ndarray) -> PowerLaw:
        return fit(losses, *self.sizes, tied=self.tied)

    def extrapolated(self, losses: np.ndarray) -> float:
        return float(self.law(losses).loss(*self.at))


def forecast(arms: tuple[Below, ...], signs: tuple[int, ...]) -> Effect:
    """Return the signed sum of arms' losses at a rung that isn't in the fit, by seed, with the prediction's interval.

    With as many rungs as the law has parameters the interval holds the seeds alone.

    Args:
        arms: with the same rungs and the same seeds.
        signs: of the arms in the sum; 1 and -1 give the gap of two.

    Raises:
        UserError: too few rungs, or the one to predict isn't above those of its size.
    """
    rungs, needed, at = len(arms[0].losses), arms[0].fitted, arms[0].at
    if rungs < needed:
        raise UserError(f"a prediction needs {needed} rungs below the next one; there are {rungs}")
    last = max((tokens for *size, tokens in zip(*arms[0].sizes, strict=True) if tuple(size) == at[:-1]), default=0)
    if at[-1] <= last:
        raise UserError(f"a prediction is of a rung above those fitted, up to {last:g} tokens; got {at[-1]:g}")
    values = [[arm.extrapolated(losses) for losses in arm.losses.T] for arm in arms]
    by_seed = sum(sign * np.array(losses) for sign, losses in zip(signs, values, strict=True))
    if (left := rungs - needed) == 0:
        return Effect(by_seed)
    fitted, residuals = [], []
    for arm in arms:
        mean = arm.losses.mean(axis=1)
        fitted.append(arm.law(mean).loss(*arm.sizes))
        residuals.append((mean - fitted[-1]) * np.sqrt(rungs / left))
    rng, drawn = np.random.default_rng(0), []
    for _ in range(DRAWS):
        # One drawing for all arms: what moves a rung of one moves the others' with it.
        chosen = rng.integers(rungs, size=rungs + 1)
        flips = rng.choice([-1, 1], rungs + 1)
        moved = [flips * miss[chosen] for miss in residuals]
        ends = [
            arm.extrapolated(mean + miss[:-1]) + miss[-1] for arm, mean, miss in zip(arms, fitted, moved, strict=True)
        ]
        drawn.append(sum(sign * end for sign, end in zip(signs, ends, strict=True)))
    seeds = len(by_seed)
    seed, miss = float(np.var(by_seed, ddof=1)) / seeds, float(np.var(drawn))
    df = (seed + miss) ** 2 / (seed**2 / (seeds - 1) + miss**2 / left)
    return Effect(by_seed, spread=((seed + miss) * seeds, df))
