"""Saturating power laws of loss by least squares: L = floor + amplitude * size^-exponent, summed over axes.

Axes are tokens and parameters. Given the exponents, floor and amplitudes are solved for by non-negative least squares.
So only the exponents are searched: first on a grid over all of their range, then between its points.

A ladder's next rung is predicted from those below it. Every seed's own law is extrapolated: the spread between these is
the error over seeds. How far the laws miss the rungs that they were fitted to is the other error, by bootstrap of the
residuals of the seed-averaged ladder. The interval has both, with Satterthwaite's degrees of freedom.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from stemrepro.common.errors import UserError
from stemrepro.verdicts.effect import Effect

LOWEST, HIGHEST = 0.02, 3.0
"""Range of an exponent."""
DRAWS = 200
"""Drawings of a bootstrap."""


@dataclass(frozen=True)
class PowerLaw:
    """L = floor + sum over axes of amplitude * (size / unit)^-exponent, in nats.

    Attributes:
        units: a size per axis, at which its term is its amplitude.
    """

    floor: float
    units: np.ndarray
    amplitudes: np.ndarray
    exponents: np.ndarray

    def loss(self, *sizes: np.ndarray | float) -> np.ndarray:
        """Return the law at sizes, one array per axis."""
        parts = zip(sizes, self.units, self.amplitudes, self.exponents, strict=True)
        return self.floor + sum(a * (np.asarray(size, float) / unit) ** -e for size, unit, a, e in parts)

    def reach(self, loss: float, *sizes: float | None) -> float:
        """Return the size of the axis given as None at which the law falls to a loss; infinite where it never does."""
        axis = sizes.index(None)
        parts = zip(sizes, self.units, self.amplitudes, self.exponents, strict=True)
        rest = loss - self.floor - sum(a * (size / unit) ** -e for size, unit, a, e in parts if size is not None)
        if rest <= 0 or self.amplitudes[axis] == 0:
            return float("inf")
        return float(self.units[axis] * (rest / self.amplitudes[axis]) ** (-1 / self.exponents[axis]))


class Fitted(NamedTuple):
    """A number of a law with its 95% interval."""

    value: float
    low: float
    high: float


def bootstrapped(losses: np.ndarray, *sizes: np.ndarray, tied: bool = False) -> dict[str, Fitted]:
    """Return "floor", and for axis k "amplitude k" (at the law's unit) and "exponent k", of the mean over seeds.

    Their intervals are percentiles. Every drawing takes the seeds anew, with replacement, and as many of the law's
    residuals, enlarged by what the fit took of them. With as many places as the law has parameters the interval is that
    of the seeds alone. Losses are [places, seeds]; `sizes` and `tied` are those of `fit`.
    """

    def numbers(law: PowerLaw) -> np.ndarray:
        return np.array([law.floor, *law.amplitudes, *law.exponents])

    mean, axes = losses.mean(axis=1), len(sizes)
    law = fit(mean, *sizes, tied=tied)
    left = len(mean) - _parameters(axes, tied)
    misses = (mean - law.loss(*sizes)) * (np.sqrt(len(mean) / left) if left > 0 else 0.0)
    rng, drawn = np.random.default_rng(0), []
    for _ in range(DRAWS):
        seeds = rng.integers(losses.shape[1], size=losses.shape[1])
        moved = losses[:, seeds].mean(axis=1) - mean
        flipped = rng.choice([-1, 1], len(mean)) * misses[rng.integers(len(mean), size=len(mean))]
        drawn.append(numbers(fit(law.loss(*sizes) + moved + flipped, *sizes, tied=tied)))
    low, high = np.percentile(drawn, [2.5, 97.5], axis=0)
    names = ["floor", *(f"{what} {axis}" for what in ("amplitude", "exponent") for axis in range(axes))]
    triples = np.stack([numbers(law), low, high], axis=1).tolist()
    return {name: Fitted(*triple) for name, triple in zip(names, triples, strict=True)}


def _parameters(axes: int, tied: bool) -> int:
    return 1 + axes + (1 if tied else axes)


def fit(losses: np.ndarray, *sizes: np.ndarray, tied: bool = False) -> PowerLaw:
    """Return the law nearest to losses [places] at sizes [places], one array per axis; no term is below 0.

    `tied`: all axes have one exponent. UserError for fewer places than the law has parameters.
    """
    from scipy.optimize import minimize, nnls  # half a second that reading recipes can do without

    axes = len(sizes)
    free = 1 if tied else axes
    if len(losses) < (needed := _parameters(axes, tied)):
        raise UserError(f"a power law over {axes} axes has {needed} parameters; {len(losses)} places can't tell them")
    units = np.array([np.exp(np.mean(np.log(size))) for size in sizes])
    scaled = [np.asarray(size, float) / unit for size, unit in zip(sizes, units, strict=True)]

    def solved(logs: np.ndarray) -> tuple[np.ndarray, float]:
        exponents = np.exp(np.broadcast_to(logs, axes))
        columns = [size**-e for size, e in zip(scaled, exponents, strict=True)]
        return nnls(np.column_stack([np.ones(len(losses)), *columns]), losses)

    bounds = (np.log(LOWEST), np.log(HIGHEST))
    grid = np.linspace(*bounds, 40 if free == 1 else 25)
    points = np.stack(np.meshgrid(*[grid] * free), axis=-1).reshape(-1, free)
    start = min(points, key=lambda logs: solved(logs)[1])
    # A grid step along every axis, away from the nearer bound. The error is flat where exponents are hard to tell: a
    # simplex needs no slope.
    step = grid[1] - grid[0]
    simplex = np.vstack([start, start + np.diag(np.where(start + step > bounds[1], -step, step))])
    options = {"xatol": 1e-6, "fatol": 1e-13, "initial_simplex": simplex}
    best = minimize(
        lambda logs: solved(logs)[1] ** 2, start, method="Nelder-Mead", bounds=[bounds] * free, options=options
    ).x
    floor, *amplitudes = solved(best)[0]
    return PowerLaw(float(floor), units, np.array(amplitudes), np.exp(np.broadcast_to(best, axes)))


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

    def law(self, losses: np.ndarray) -> PowerLaw:
        return fit(losses, *self.sizes, tied=self.tied)

    def extrapolated(self, losses: np.ndarray) -> float:
        return float(self.law(losses).loss(*self.at))


def forecast(arms: tuple[Below, ...], signs: tuple[int, ...]) -> Effect:
    """Return the signed sum of arms' losses at a rung that isn't in the fit, by seed, with the prediction's interval.

    The arms have the same rungs and seeds; signs 1 and -1 give the gap of two. With as many rungs as the law has
    parameters the interval holds the seeds alone. UserError for too few rungs, or where the one to predict isn't above
    those of its size.
    """
    one, rungs = arms[0], len(arms[0].losses)
    if rungs < (needed := _parameters(len(one.sizes), one.tied)):
        raise UserError(f"a prediction needs {needed} rungs below the next one; there are {rungs}")
    last = max((tokens for *size, tokens in zip(*one.sizes, strict=True) if tuple(size) == one.at[:-1]), default=0)
    if one.at[-1] <= last:
        raise UserError(f"a prediction is of a rung above those fitted, up to {last:g} tokens; got {one.at[-1]:g}")
    by_seed = np.array(signs) @ [[arm.extrapolated(losses) for losses in arm.losses.T] for arm in arms]
    if (left := rungs - needed) == 0:
        return Effect(by_seed)
    means = [arm.losses.mean(axis=1) for arm in arms]
    fitted = [arm.law(mean).loss(*arm.sizes) for arm, mean in zip(arms, means, strict=True)]
    residuals = (np.array(means) - fitted) * np.sqrt(rungs / left)
    rng, drawn = np.random.default_rng(0), []
    for _ in range(DRAWS):
        # One drawing for all arms: what moves a rung of one moves the others' with it.
        chosen = rng.integers(rungs, size=rungs + 1)
        moved = rng.choice([-1, 1], rungs + 1) * residuals[:, chosen]
        ends = [arm.extrapolated(law + miss[:-1]) for arm, law, miss in zip(arms, fitted, moved, strict=True)]
        drawn.append(np.array(signs) @ (ends + moved[:, -1]))
    seeds = len(by_seed)
    seed, miss = float(np.var(by_seed, ddof=1)) / seeds, float(np.var(drawn))
    df = (seed + miss) ** 2 / (seed**2 / (seeds - 1) + miss**2 / left)
    return Effect(by_seed, spread=((seed + miss) * seeds, df))
