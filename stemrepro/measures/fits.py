"""Saturating power laws of loss by least squares: L = floor + amplitude * size^-exponent, summed over axes.

Axes are tokens and parameters. Given the exponents, floor and amplitudes are solved for by non-negative least squares.
So only the exponents are searched: first on a grid over all of their range, then between its points.
"""

from dataclasses import dataclass

import numpy as np

from stemrepro.common.errors import UserError

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
        fixed = [i for i in range(len(sizes)) if i != axis]
        rest = loss - self.floor
        rest -= sum(self.amplitudes[i] * (sizes[i] / self.units[i]) ** -self.exponents[i] for i in fixed)
        if rest <= 0 or self.amplitudes[axis] == 0:
            return float("inf")
        return float(self.units[axis] * (rest / self.amplitudes[axis]) ** (-1 / self.exponents[axis]))


@dataclass(frozen=True)
class Fitted:
    """A number of a law with its 95% interval."""

    value: float
    low: float
    high: float


def bootstrapped(losses: np.ndarray, *sizes: np.ndarray, tied: bool = False) -> dict[str, Fitted]:
    """Return floor, amplitudes (at the law's units) and exponents of the mean over seeds, with percentile intervals.

    Every drawing takes the seeds anew, with replacement, and as many of the law's residuals, enlarged by what the fit
    took of them. With as many places as the law has parameters the interval is that of the seeds alone.

    Args:
        losses: [places, seeds].
        sizes, tied: as in `fit`.

    Returns:
        "floor", and for axis k "amplitude k" and "exponent k".
    """

    def numbers(law: PowerLaw) -> np.ndarray:
        return np.array([law.floor, *law.amplitudes, *law.exponents])

    mean, axes = losses.mean(axis=1), len(sizes)
    law = fit(mean, *sizes, tied=tied)
    left = len(mean) - (1 + axes + (1 if tied else axes))
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


def fit(losses: np.ndarray, *sizes: np.ndarray, tied: bool = False) -> PowerLaw:
    """Return the law nearest to losses [places] at sizes [places], one array per axis; no term is below 0.

    Args:
        tied: all axes have one exponent.

    Raises:
        UserError: fewer places than the law has parameters.
    """
    from scipy.optimize import minimize, nnls  # half a second that reading recipes can do without

    axes = len(sizes)
    free = 1 if tied else axes
    if len(losses) < (needed := 1 + axes + free):
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
    # The error is flat where exponents are hard to tell: a simplex needs no slope.
    best = minimize(
        lambda logs: solved(logs)[1] ** 2, start, method="Nelder-Mead", bounds=[bounds] * free,
        options={"xatol": 1e-6, "fatol": 1e-13, "initial_simplex": _simplex(start, grid[1] - grid[0], bounds)},
    ).x  # fmt: skip
    floor, *amplitudes = solved(best)[0]
    return PowerLaw(float(floor), units, np.array(amplitudes), np.exp(np.broadcast_to(best, axes)))


def _simplex(start: np.ndarray, step: float, bounds: tuple[float, float]) -> np.ndarray:
    """Return a grid step along every axis, away from the nearer bound."""
    signs = np.where(start + step > bounds[1], -step, step)
    return np.vstack([start, start + np.diag(signs)])
