"""Scores of predictions: accuracy, F1, Matthews' correlation, Pearson's and Spearman's."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zentence.noise import derive_key

Values = NDArray[Any]  # [N]: numbers of classes, or real numbers
DRAWS = 200  # of the bootstrap


@dataclass(frozen=True)
class Score:
    """A score and its standard error over the examples (bootstrap)."""

    value: float
    standard_error: float

    def to_dict(self) -> dict[str, float]:
        """Return plain values."""
        return dict(self.__dict__)


def accuracy(found: Values, right: Values) -> float:
    """Return the share of right classes."""
    return float(np.mean(found == right))


def f1(found: Values, right: Values) -> float:
    """Return 2PR / (P + R) of class 1; 0 where nothing is found right."""
    hits = int(np.sum((found == 1) & (right == 1)))
    return 2.0 * hits / max(1, int(np.sum(found == 1)) + int(np.sum(right == 1)))


def matthews(found: Values, right: Values) -> float:
    """Return Matthews' correlation of two classes, or Gorodkin's of several; 0 where either side is constant."""
    classes = np.unique(np.concatenate((found, right)))
    return _correlation(found[:, None] == classes, right[:, None] == classes)


def pearson(found: Values, right: Values) -> float:
    """Return Pearson's correlation; 0 where either side is constant."""
    return _correlation(found[:, None], right[:, None])


def spearman(found: Values, right: Values) -> float:
    """Return Spearman's rank correlation; equal values share their mean rank."""
    return pearson(ranks(found), ranks(right))


def ranks(values: Values) -> NDArray[np.float64]:
    """Return ranks from 1; equal values have the mean of theirs."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    mean: NDArray[np.float64] = (ends - (counts - 1) / 2.0)[place]
    return mean


def _correlation(x: Values, y: Values) -> float:
    """Return Σ cov(x_k, y_k) / √(Σ var(x_k) Σ var(y_k)) over columns k of [N, K]; 0 if a variance is."""
    x, y = (side - side.mean(0) for side in (x.astype(np.float64), y.astype(np.float64)))
    scale = float(np.sqrt(np.sum(x * x) * np.sum(y * y)))
    return float(np.clip(np.sum(x * y) / scale, -1.0, 1.0)) if scale > 0.0 else 0.0


SCORES: dict[str, Callable[[Values, Values], float]] = {
    "accuracy": accuracy,
    "f1": f1,
    "matthews": matthews,
    "pearson": pearson,
    "spearman": spearman,
}


def measure(name: str, found: Values, right: Values, seed: int = 0) -> Score:
    """Return a score with the standard deviation that it has over resampled examples."""
    random = np.random.default_rng(derive_key(seed, "bootstrap", name))
    rows = (random.integers(len(right), size=len(right)) for _ in range(DRAWS))
    values = [SCORES[name](found[row], right[row]) for row in rows]
    return Score(SCORES[name](found, right), float(np.std(values, ddof=1)))
