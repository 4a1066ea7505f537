"""Variances of few seeds, moderated by those of other contrasts (Smyth 2004, as limma does).

Contrasts of one unit at one scale have true variances that are alike: 1 / variance is taken to follow a scaled chi
square with `df` degrees of freedom around 1 / sd^2. These two are estimated from all of them. A contrast of few seeds
gets the weighted mean of its own variance and of sd^2, and more degrees of freedom.
"""

from dataclasses import dataclass, replace

import numpy as np

from stemrepro.verdicts.contrast import Contrast

FEW = 5
"""Contrasts of fewer seeds are moderated."""
ENOUGH = 10
"""Contrasts that an estimate needs; with fewer nothing is moderated."""
MOST_DF = 3.0
"""Degrees of freedom that other contrasts may count for, however alike their variances look.

The estimate rests on few contrasts, which share arms. Without this bound a family of nulls erred twice as often as it
may, where variances differ much; with it no more than without moderation (tests/verdicts/test_moderation.py).
"""


@dataclass(frozen=True)
class Prior:
    """What the contrasts of a unit at a scale say of a variance.

    Attributes:
        sd: standard deviation of one seed's difference.
        df: degrees of freedom that it counts for, at most MOST_DF.
    """

    sd: float
    df: float

    def moderated(self, contrast: Contrast) -> Contrast:
        """Return the contrast with a moderated variance, or as it is where it has seeds enough."""
        variance, df = contrast.seed_variance
        if contrast.seeds >= FEW or np.isnan(variance):
            return contrast
        both = self.df + df
        return replace(contrast, spread=((self.df * self.sd**2 + df * variance) / both, both))


def trigamma_inverse(value: float) -> float:
    """Return the x whose trigamma is `value`, by Newton's method on 1 / trigamma."""
    from scipy.special import polygamma

    x = 0.5 + 1 / value
    for _ in range(50):
        trigamma = float(polygamma(1, x))
        step = trigamma * (1 - trigamma / value) / float(polygamma(2, x))
        x += step
        if abs(step) < 1e-10 * x:
            break
    return x


def fitted(contrasts: list[Contrast]) -> Prior | None:
    """Return what contrasts of one unit say of their variances, or None where there are too few.

    Moments of log variances are matched. Those of single seeds are left out, and those of nothing but rounding.
    """
    from scipy.special import digamma, polygamma

    known = [contrast.seed_variance for contrast in contrasts if contrast.seeds > 1]
    variances, dfs = np.array(known).reshape(-1, 2).T
    kept = variances > 1e-9 * np.median(variances) if len(variances) else np.array([], bool)
    variances, dfs = variances[kept], dfs[kept]
    if len(variances) < ENOUGH:
        return None
    logs = np.log(variances) - digamma(dfs / 2) + np.log(dfs / 2)
    excess = float(np.var(logs, ddof=1) - np.mean(polygamma(1, dfs / 2)))
    if excess <= 0:  # the variances differ by chance alone
        return Prior(float(np.exp(logs.mean() / 2)), MOST_DF)
    df = 2 * trigamma_inverse(excess)
    return Prior(float(np.exp((logs.mean() + digamma(df / 2) - np.log(df / 2)) / 2)), min(df, MOST_DF))
