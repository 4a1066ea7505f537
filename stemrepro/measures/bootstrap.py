"""The error between documents of a mean over sources, by bootstrap within each source."""

from collections.abc import Callable

import numpy as np

from stemrepro.common.sums import total


def bootstrap_error(groups: list[tuple[np.ndarray, ...]], statistic: Callable) -> float:
    """Return the standard error of the mean over groups of a statistic; 0 where no source has two documents.

    Args:
        groups: for each source the arrays that the statistic takes, one value per document each [documents]. A source
            with one document adds nothing to the error.
        statistic: of those arrays, with an `axis` as scipy.stats.bootstrap needs it.
    """
    from scipy import stats  # a second that reading recipes can do without

    variances = []
    for arrays in groups:
        if len(arrays[0]) < 2:
            continue
        result = stats.bootstrap(
            arrays, statistic, paired=True, n_resamples=1000, method="percentile", rng=np.random.default_rng(0)
        )
        variances.append(float(result.standard_error) ** 2)
    return float(np.sqrt(total(variances))) / len(groups) if variances else 0.0
