"""The error between documents of a mean over sources, by bootstrap within each source."""

from collections.abc import Callable

import numpy as np

from stemrepro.common.sums import total


def bootstrap_error(groups: list[tuple[np.ndarray, ...]], statistic: Callable) -> tuple[float, float]:
    """Return the standard error of the mean over groups of a statistic, and its degrees of freedom after Satterthwaite.

    Args:
        groups: for each source the arrays that the statistic takes, one value per document each [documents]. A source
            with one document adds nothing to the error.
        statistic: of those arrays, with an `axis` as scipy.stats.bootstrap needs it.

    Returns:
        (0, inf) when no source has two documents.
    """
    from scipy import stats  # a second that reading recipes can do without

    variances, counts = [], []
    for arrays in groups:
        if len(arrays[0]) < 2:
            continue
        result = stats.bootstrap(
            arrays, statistic, paired=True, n_resamples=1000, method="percentile", rng=np.random.default_rng(0)
        )
        variances.append(float(result.standard_error) ** 2)
        counts.append(len(arrays[0]))
    whole = total(variances)
    if whole == 0:
        return 0.0, float("inf")
    df = whole**2 / total(v**2 / (n - 1) for v, n in zip(variances, counts, strict=True))
    return float(np.sqrt(whole)) / len(groups), float(df)
