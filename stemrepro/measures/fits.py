"""Saturating power laws of loss by least squares: L = floor + amplitude * size^-exponent.

Given the exponent, floor and amplitude are solved for by non-negative least squares. So only the exponent is searched:
first on a grid over all of its range, then between its points.
"""

from dataclasses import dataclass

import numpy as np

from stemrepro.common.errors import UserError

LOWEST, HIGHEST = 0.02, 3.0
"""Range of an exponent."""


@dataclass(frozen=True)
class PowerLaw:
    """L = floor + amplitude * (size / unit)^-exponent, in nats.

    Attributes:
        unit: a size, at which the term is its amplitude.
    """

    floor: float
    unit: float
    amplitude: float
    exponent: float

    def loss(self, size: np.ndarray | float) -> np.ndarray:
        """Return the law at sizes."""
        return self.floor + self.amplitude * (np.asarray(size, float) / self.unit) ** -self.exponent

    def reach(self, loss: float) -> float:
        """Return the size at which the law falls to a loss; infinite where it never does."""
        rest = loss - self.floor
        if rest <= 0 or self.amplitude == 0:
            return float("inf")
        return float(self.unit * (rest / self.amplitude) ** (-1 / self.exponent))


def fit(losses: np.ndarray, sizes: np.ndarray) -> PowerLaw:
    """Return the law nearest to losses at sizes; no term is below 0. UserError for fewer than three places."""
    from scipy.optimize import minimize, nnls  # half a second that reading recipes can do without

    if len(losses) < 3:
        raise UserError(f"a power law has 3 parameters; {len(losses)} places can't tell them")
    unit = np.exp(np.mean(np.log(sizes)))
    scaled = np.asarray(sizes, float) / unit

    def solved(logs: np.ndarray) -> tuple[np.ndarray, float]:
        return nnls(np.column_stack([np.ones(len(losses)), scaled ** -np.exp(logs[0])]), losses)

    bounds = (np.log(LOWEST), np.log(HIGHEST))
    grid = np.linspace(*bounds, 40)[:, None]
    start = min(grid, key=lambda logs: solved(logs)[1])
    # A step away from the nearer bound. The error is flat where exponents are hard to tell: a simplex needs no slope.
    step = grid[1] - grid[0]
    simplex = np.vstack([start, start + np.where(start + step > bounds[1], -step, step)])
    options = {"xatol": 1e-6, "fatol": 1e-13, "initial_simplex": simplex}
    best = minimize(lambda logs: solved(logs)[1] ** 2, start, method="Nelder-Mead", bounds=[bounds], options=options).x
    floor, amplitude = solved(best)[0]
    return PowerLaw(float(floor), float(unit), float(amplitude), float(np.exp(best[0])))
