"""Paired bootstrap: is the difference of two runs on the same sentences larger than the choice of sentences?"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from zentence.errors import ZentenceError
from zentence.evaluation.metrics import Direction

RESAMPLES = 10_000
_DRAWN_AT_ONCE = 1 << 22  # indices: memory does not grow with resamples × sentences


class PairedDifference(NamedTuple):
    """Mean of first − second over sentences, its 95 % interval, and how often the first is better in a resample."""

    difference: float
    low: float
    high: float
    first_better: float  # share of resamples; half of the ties
    sentences: int
    resamples: int


def paired_bootstrap(
    first: NDArray[np.float64],
    second: NDArray[np.float64],
    direction: Direction,
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> PairedDifference:
    """Resample the sentences with replacement, the same for both runs [N], and look at the mean difference.

    The interval is the percentile interval. For large N the mean difference is normal with standard error s/√N, s the
    standard deviation of the sentences' differences; the lengths of sentences, which move both runs alike, cancel.
    """
    if first.shape != second.shape or first.ndim != 1 or len(first) < 2:
        raise ZentenceError("A paired bootstrap needs the figures of the same two or more sentences")
    differences = first.astype(np.float64) - second.astype(np.float64)
    if not np.isfinite(differences).all():
        raise ZentenceError("A paired bootstrap needs finite figures of all sentences")
    random, count = np.random.default_rng(seed), len(differences)
    means = np.empty(resamples)
    rows = max(1, _DRAWN_AT_ONCE // count)
    for start in range(0, resamples, rows):
        block = means[start : start + rows]
        block[:] = differences[random.integers(0, count, (len(block), count), dtype=np.int32)].mean(1)
        if progress is not None:
            progress(start + len(block), resamples)
    low, high = np.quantile(means, (0.025, 0.975))
    better = (means < 0.0 if direction == "lower" else means > 0.0).mean() + 0.5 * (means == 0.0).mean()
    return PairedDifference(float(differences.mean()), float(low), float(high), float(better), count, resamples)
