"""Scores against cases worked by hand, and against SciPy and scikit-learn."""

import numpy as np
import pytest
from scipy import stats
from sklearn import metrics

from zentence.tasks.scores import SCORES, accuracy, f1, matthews, measure, pearson, ranks, spearman

#        right: 1 1 1 1 0 0 0 0 0 0
# found: three of the ones, and one of the zeros: TP 3, FN 1, FP 1, TN 5
RIGHT = np.array([1, 1, 1, 1, 0, 0, 0, 0, 0, 0])
FOUND = np.array([1, 1, 1, 0, 1, 0, 0, 0, 0, 0])


def test_scores_of_classes_by_hand() -> None:
    assert accuracy(FOUND, RIGHT) == pytest.approx(0.8)
    assert f1(FOUND, RIGHT) == pytest.approx(0.75)  # precision 3/4, recall 3/4
    # (TP·TN − FP·FN) / √((TP+FP)(TP+FN)(TN+FP)(TN+FN)) = (15 − 1) / √(4·4·6·6) = 14/24
    assert matthews(FOUND, RIGHT) == pytest.approx(14 / 24)
    assert matthews(1 - RIGHT, RIGHT) == pytest.approx(-1.0)


def test_correlations_by_hand() -> None:
    # deviations (−1, 0, 1) and (−4/3, −1/3, 5/3): 3 / √(2 · 42/9)
    assert pearson(np.array([1.0, 2.0, 3.0]), np.array([1.0, 2.0, 4.0])) == pytest.approx(3 / (2 * 42 / 9) ** 0.5)
    assert spearman(np.array([1.0, 2.0, 30.0]), np.array([1.0, 2.0, 4.0])) == pytest.approx(1.0)
    # no ties: 1 − 6 Σd² / (n(n² − 1)) with d = (0, 1, 1, 0): 1 − 12/60
    assert spearman(np.array([1.0, 2.0, 3.0, 4.0]), np.array([1.0, 3.0, 2.0, 4.0])) == pytest.approx(0.8)
    assert ranks(np.array([5.0, 1.0, 5.0, 7.0])).tolist() == [2.5, 1.0, 2.5, 4.0]


@pytest.mark.parametrize("seed", range(5))
def test_scores_agree_with_libraries(seed: int) -> None:
    random = np.random.default_rng(seed)
    right, found = random.integers(0, 2, 60), random.integers(0, 2, 60)
    assert f1(found, right) == pytest.approx(metrics.f1_score(right, found))
    assert matthews(found, right) == pytest.approx(metrics.matthews_corrcoef(right, found))
    several, others = random.integers(0, 3, 60), random.integers(0, 3, 60)
    assert matthews(others, several) == pytest.approx(metrics.matthews_corrcoef(several, others))
    assert accuracy(others, several) == pytest.approx(metrics.accuracy_score(several, others))
    x, y = random.normal(size=60), random.integers(0, 6, 60) / 2.0  # with ties
    assert pearson(x, y) == pytest.approx(stats.pearsonr(x, y).statistic)
    assert spearman(x, y) == pytest.approx(stats.spearmanr(x, y).statistic)
    assert np.array_equal(ranks(y), stats.rankdata(y))


def test_a_constant_answer_correlates_with_nothing() -> None:
    same = np.ones(10)
    assert [score(same, RIGHT) for score in (matthews, pearson, spearman)] == [0.0, 0.0, 0.0]
    assert f1(np.zeros(10), RIGHT) == 0.0 == f1(np.zeros(3), np.zeros(3))


def test_the_standard_error_is_that_of_a_share() -> None:
    """The accuracy of n answers has standard error √(p(1 − p)/n)."""
    right = np.zeros(400, dtype=np.int64)
    found = (np.arange(400) % 5 == 0).astype(np.int64)
    score = measure("accuracy", found, right, seed=3)
    assert score.value == pytest.approx(0.8)
    assert score.standard_error == pytest.approx((0.8 * 0.2 / 400) ** 0.5, rel=0.2)
    assert score == measure("accuracy", found, right, seed=3) != measure("accuracy", found, right, seed=4)
    assert set(SCORES) == {"accuracy", "f1", "matthews", "pearson", "spearman"}
