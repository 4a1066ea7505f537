"""How an arm's lead goes with the width and the vocabulary of the model, and how far that can be trusted beyond them.

log2 lead = a + b x + c z + q x^2, with x = log2 of the width and z = log2 of the vocabulary, each over a reference. The
lead is relative to dense's loss. A straight line in x is not known to go on. So q has a prior around 0, whose spread
says how much a slope may change a doubling; it widens the interval where no model was trained.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stemrepro.common.errors import UserError
from stemrepro.measures.fits import Fitted

CURVATURE = 0.05
"""Prior standard deviation of q, in doublings of the lead per squared doubling of the width."""


@dataclass(frozen=True)
class SizeLaw:
    """A fitted law.

    Attributes:
        coefficients: a, b, c and q.
        covariance: theirs, [4, 4].
        variance: of one seed's log2 lead, from which that of the coefficients follows.
        df: degrees of freedom of the variance.
        by_seed: a, b, c and q of each seed alone, by the same weights [4, seeds]; over the seeds that all sizes have.
    """

    coefficients: np.ndarray
    covariance: np.ndarray
    variance: float
    df: float
    by_seed: np.ndarray

    def log_leads(self, x: float, z: float) -> np.ndarray:
        """Return log2 of the lead at a size, by the law of each seed alone [seeds]."""
        return np.array([1, x, z, x * x]) @ self.by_seed

    def log_lead(self, x: float, z: float) -> tuple[float, float]:
        """Return log2 of the lead at a size, and its standard error."""
        at = np.array([1, x, z, x * x])
        return float(at @ self.coefficients), float(np.sqrt(at @ self.covariance @ at))

    def lead(self, x: float, z: float) -> Fitted:
        """Return the lead at a size with its 95% interval."""
        from scipy.special import stdtrit

        middle, error = self.log_lead(x, z)
        half = float(stdtrit(self.df, 0.975)) * error
        return Fitted(*(2**value for value in (middle, middle - half, middle + half)))


def fit(x: Sequence[float], z: Sequence[float], leads: Sequence[np.ndarray], curvature: float = CURVATURE) -> SizeLaw:
    """Fit the law to the leads of models, each over its own seeds.

    A seed's error on the logarithmic scale is pooled over sizes. Where points lie farther from the law than seeds
    explain, it is raised until they don't.

    Args:
        x: log2 of the width over the reference's, of each model.
        z: log2 of the vocabulary over the reference's.
        leads: above 0, of each model's seeds.
        curvature: prior standard deviation of q.

    Raises:
        UserError: too few sizes, or a lead that isn't above 0.
    """
    if len(x) < 4:
        raise UserError(f"a law over sizes needs four of them; there are {len(x)}")
    if any((of_size <= 0).any() for of_size in leads):
        raise UserError("a law over sizes needs leads above 0")
    logs = [np.log2(of_size) for of_size in leads]
    counts = np.array([len(values) for values in logs])
    df = float((counts - 1).sum())
    variance = sum(((values - values.mean()) ** 2).sum() for values in logs) / df
    means, xs = np.array([values.mean() for values in logs]), np.asarray(x, float)
    design = np.stack([np.ones_like(xs), xs, np.asarray(z, float), xs * xs], axis=1)
    if np.linalg.matrix_rank(design[:, :3]) < 3:
        raise UserError("a law over sizes needs two vocabularies at one width")
    prior = np.diag([0, 0, 0, curvature**-2])

    def fitted(variance: float) -> tuple[np.ndarray, np.ndarray]:
        weighted = design.T * counts / variance
        covariance = np.linalg.inv(weighted @ design + prior)
        return covariance @ weighted, covariance

    residuals = means - design @ fitted(variance)[0] @ means
    misfit = float((counts * residuals**2).sum() / (len(xs) - 3) / variance)
    variance *= max(1.0, misfit)
    weights, covariance = fitted(variance)
    by_seed = weights @ np.stack([values[: counts.min()] for values in logs])
    return SizeLaw(weights @ means, covariance, float(variance), df, by_seed)
