"""Classifiers on frozen codes, and on words to compare with. Each returns its accuracy on the test sentences."""

import warnings
from collections.abc import Sequence
from importlib.util import find_spec
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zentence.errors import ZentenceError

Features = NDArray[np.float32]  # [N, D]
Labels = NDArray[np.int64]  # [N], numbers of classes
PENALTIES = (1e4, 1e3, 100.0, 10.0, 1.0, 0.1, 0.01)  # weights of the squared norm; the loss is summed over labels
WORD_PENALTIES = (10.0, 1.0, 0.1, 0.01, 1e-3)  # rows of TF-IDF have length 1: they need less of it
NETWORK_PENALTIES = (30.0, 3.0, 0.3)
FOLDS = 5
MANY = 10_000  # labels; with more, a single held-out fifth tells penalties apart
HIDDEN = 64
FULL_COVARIANCE_SIZE = 128  # codes with more dimensions get diagonal covariances


def need_sklearn() -> None:
    """Raise a ZentenceError if scikit-learn is missing."""
    if find_spec("sklearn") is None:
        raise ZentenceError("Classification needs scikit-learn: pip install scikit-learn")


def linear_accuracy(x: Features, y: Labels, test_x: Features, test_y: Labels, seed: int) -> float:
    """Logistic regression on standardised codes; its regularisation is chosen by cross-validation on x, y alone."""
    return float((linear_classes(x, y, test_x, seed) == test_y).mean())


def linear_classes(x: Features, y: Labels, test_x: Features, seed: int) -> Labels:
    """Return the classes [N] that the classifier of `linear_accuracy` gives."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler

    candidates = [LogisticRegression(C=1.0 / penalty, max_iter=1000) for penalty in PENALTIES]
    found: Labels = _chosen(StandardScaler(), candidates, x, y, seed).predict(test_x)
    return found


def raw_accuracy(x: Features, y: Labels, test_x: Features, test_y: Labels, seed: int) -> float:
    """Logistic regression on codes as they are, but for their centre and one scale for all dimensions together.

    A few labels do not tell the spread of a dimension; and the spreads of codes tell which dimensions say something,
    which standardisation would hide. Regularisation is chosen as that of `linear_accuracy`.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import FunctionTransformer

    center = x.mean(0)
    scale = float(np.sqrt(np.mean(np.square(x - center, dtype=np.float64)))) or 1.0
    candidates = [LogisticRegression(C=1.0 / penalty, max_iter=1000) for penalty in PENALTIES]
    found = _chosen(FunctionTransformer(), candidates, (x - center) / np.float32(scale), y, seed)
    return _accuracy(found, (test_x - center) / np.float32(scale), test_y)


def linear_values(x: Features, y: NDArray[np.float64], test_x: Features) -> NDArray[np.float64]:
    """Return real numbers [N] by ridge regression on standardised codes; its penalty is chosen by leave-one-out."""
    from sklearn.linear_model import RidgeCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    found: NDArray[np.float64] = make_pipeline(StandardScaler(), RidgeCV(PENALTIES)).fit(x, y).predict(test_x)
    return found


def words_accuracy(texts: Sequence[str], y: Labels, test: Sequence[str], test_y: Labels, seed: int) -> float:
    """Logistic regression on TF-IDF of the labelled sentences' words: what the same labels give without a model."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression

    words = TfidfVectorizer(token_pattern=r"\S+", sublinear_tf=True)
    candidates = [LogisticRegression(C=1.0 / penalty, max_iter=1000) for penalty in WORD_PENALTIES]
    return _accuracy(_chosen(words, candidates, texts, y, seed), test, test_y)


def network_accuracy(x: Features, y: Labels, test_x: Features, test_y: Labels, seed: int) -> float:
    """A network with one hidden layer on standardised codes; its weight penalty is chosen like the linear one's."""
    from sklearn.neural_network import MLPClassifier
    from sklearn.preprocessing import StandardScaler

    candidates = [
        MLPClassifier((HIDDEN,), solver="lbfgs", alpha=penalty, max_iter=100, random_state=seed)
        for penalty in NETWORK_PENALTIES
    ]
    return _accuracy(_chosen(StandardScaler(), candidates, x, y, seed), test_x, test_y)


def cluster_accuracy(
    pool: Features, labelled: tuple[Features, Labels], test_x: Features, test_y: Labels, classes: int, seed: int
) -> float:
    """Gaussian mixture with one component a class, fitted to the unlabelled codes `pool`; components become classes
    by the best one-to-one matching.

    With labelled sentences these decide the matching. Without, the test labels do: the usual accuracy of clusterings,
    which no choice of names can beat.
    """
    from sklearn.mixture import GaussianMixture
    from sklearn.preprocessing import StandardScaler

    scaler = StandardScaler().fit(pool)
    kind = "full" if pool.shape[1] <= FULL_COVARIANCE_SIZE else "diag"
    mixture = GaussianMixture(classes, covariance_type=kind, reg_covar=1e-4, n_init=3, random_state=seed)
    with warnings.catch_warnings():
        _quiet()
        mixture.fit(scaler.transform(pool))
    found = mixture.predict(scaler.transform(test_x))
    x, y = labelled
    names = best_matching(mixture.predict(scaler.transform(x)), y, classes) if len(y) else None
    if names is None:
        names = best_matching(found, test_y, classes)
    return float((names[found] == test_y).mean())


def best_matching(clusters: NDArray[Any], labels: Labels, classes: int) -> Labels:
    """Return a class for each cluster, each once, such that most sentences are right (Hungarian assignment)."""
    from scipy.optimize import linear_sum_assignment

    together = np.zeros((classes, classes), dtype=np.int64)
    np.add.at(together, (clusters, labels), 1)
    names: Labels = linear_sum_assignment(together, maximize=True)[1].astype(np.int64)
    return names


def _accuracy(classifier: Any, test_x: Any, test_y: Labels) -> float:
    return float((classifier.predict(test_x) == test_y).mean())


def _chosen(features: Any, candidates: Sequence[Any], x: Any, y: Labels, seed: int) -> Any:
    """Return features and a candidate, fitted: the one that finds held-out labels the most likely.

    If a class has a single label, nothing can be held out: the candidate in the middle.
    """
    from sklearn.base import clone
    from sklearn.metrics import log_loss
    from sklearn.model_selection import StratifiedKFold
    from sklearn.pipeline import make_pipeline

    losses = np.abs(np.arange(len(candidates)) - len(candidates) // 2).astype(np.float64)
    folds = min(FOLDS, int(np.bincount(y)[np.unique(y)].min()))
    with warnings.catch_warnings():
        _quiet()
        if folds >= 2:
            losses[:] = 0.0
            parts = StratifiedKFold(folds, shuffle=True, random_state=seed).split(y, y)
            for fit, held in islice(parts, 1 if len(y) > MANY else None):
                part = clone(features)
                fit_x, held_x = part.fit_transform(_taken(x, fit)), part.transform(_taken(x, held))
                for number, candidate in enumerate(candidates):
                    found = clone(candidate).fit(fit_x, y[fit])
                    losses[number] += log_loss(y[held], found.predict_proba(held_x), labels=found.classes_)
        return make_pipeline(features, candidates[int(losses.argmin())]).fit(x, y)


def _taken(x: Any, rows: NDArray[np.int64]) -> Any:
    """Return some rows of vectors [N, D], or some of the texts of a list."""
    return x[rows] if isinstance(x, np.ndarray) else [x[i] for i in rows]


def _quiet() -> None:
    """Pass over optimisers that were stopped early: cross-validation and the test judge what they found."""
    from sklearn.exceptions import ConvergenceWarning

    warnings.simplefilter("ignore", ConvergenceWarning)
