"""How much a few labels go with: classifiers on frozen codes against the number of labels (paper 4, Table 8)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zentence.corpora.readers import display_name, read_sentences
from zentence.errors import ZentenceError, suggestion
from zentence.latent import LatentSpace
from zentence.noise import derive_key
from zentence.tasks.classifiers import (
    Features,
    Labels,
    cluster_accuracy,
    linear_accuracy,
    need_sklearn,
    network_accuracy,
    raw_accuracy,
    words_accuracy,
)

CLASSIFIERS = ("linear", "raw", "mlp", "gmm")
MAX_POOL = 20_000  # unlabelled sentences that a mixture is fitted to
Progress = Callable[[int], None]  # done
Repeats = int | Mapping[int, int]  # runs, or runs by number of labels


@dataclass(frozen=True)
class LabelledText:
    """Sentences and their labels."""

    name: str
    texts: list[str]
    labels: list[str]


@dataclass(frozen=True)
class Accuracy:
    """Accuracy over runs that differ in the labelled sentences, or in the start of a mixture."""

    runs: tuple[float, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return mean, standard deviation (none for one run) and runs."""
        std = float(np.std(self.runs, ddof=1)) if len(self.runs) > 1 else None
        return {"mean": float(np.mean(self.runs)), "std": std, "runs": list(self.runs)}


@dataclass(frozen=True)
class Classification:
    """Accuracy on the test sentences by number of labels and classifier, and what it must be compared with."""

    classes: tuple[str, ...]
    sentences: tuple[int, int]  # train, test
    per_class: bool
    results: dict[tuple[int, str], Accuracy]
    words: dict[int, Accuracy]  # TF-IDF + logistic regression
    majority: tuple[str, float]  # the training text's most frequent class, and its share of the test sentences
    seed: int

    def to_dict(self) -> dict[str, Any]:
        """Return what `zentence classify --json` prints."""
        return {
            "task": "classify",
            "classes": list(self.classes),
            "train_sentences": self.sentences[0],
            "test_sentences": self.sentences[1],
            "labels_are": "per class" if self.per_class else "in all",
            "results": [
                {
                    "labels": labels,
                    "classifier": name,
                    "accuracy": accuracy.to_dict(),
                    **({"matched_on": "labels" if labels else "test"} if name == "gmm" else {}),
                }
                for (labels, name), accuracy in self.results.items()
            ],
            "baselines": {
                "majority": {"class": self.majority[0], "accuracy": self.majority[1]},
                "bag_of_words": [{"labels": n, "accuracy": a.to_dict()} for n, a in self.words.items()],
            },
            "seed": self.seed,
        }


@dataclass(frozen=True)
class Trial:
    """One classifier to fit: which sentences it may know, with labels and without."""

    labels: int
    classifier: str
    seed: int
    rows: NDArray[np.int64]  # labelled
    pool: NDArray[np.int64]  # unlabelled


def read_labelled(path: Path | str) -> LabelledText:
    """Read `label<TAB>sentence` lines; there must be two classes at least."""
    lines = list(read_sentences(path, "yes"))
    labels = [line.label or "" for line in lines]
    if len(set(labels)) < 2:
        raise ZentenceError(f"{display_name(path)} has one class only ('{labels[0]}'): there is nothing to tell apart")
    return LabelledText(display_name(path), [line.text for line in lines], labels)


@dataclass(frozen=True)
class Study:
    """A learning curve to be measured, checked and with every run's sentences drawn."""

    train: LabelledText
    test: LabelledText
    classes: tuple[str, ...]
    per_class: bool
    trials: tuple[Trial, ...]
    seed: int

    @cached_property
    def used(self) -> NDArray[np.int64]:
        """Training sentences that any classifier sees."""
        return np.unique(np.concatenate([np.concatenate((t.rows, t.pool)) for t in self.trials]))

    @property
    def texts(self) -> list[str]:
        """Sentences to encode: those of `used`, then the test sentences."""
        return [*(self.train.texts[i] for i in self.used), *self.test.texts]

    @property
    def sentences(self) -> int:
        """Number of sentences to encode."""
        return len(self.used) + len(self.test.texts)


def plan_study(
    train: LabelledText,
    test: LabelledText,
    *,
    labels: Sequence[int] = (100, 500, 1000),
    repeats: Repeats = 10,
    per_class: bool = False,
    classifiers: Sequence[str] = ("linear",),
    seed: int = 0,
) -> Study:
    """Plan which classifiers are fitted to which sentences; what cannot be done is refused here.

    `labels` counts the labelled sentences, or with `per_class` those of each class. With 0 labels there is no
    classifier to train: a mixture clusters the codes whatever `classifiers` says. Each run draws its own sentences.
    """
    classes = tuple(sorted(set(train.labels)))
    numbers_of(test, classes)
    trials = plan_trials(numbers_of(train, classes), labels, repeats, per_class, classifiers, seed)
    return Study(train, test, classes, per_class, tuple(trials), seed)


def encode_study(space: LatentSpace, study: Study, progress: Progress | None = None) -> Features:
    """Return the posterior means of a study's sentences: those of `used`, then the test sentences."""
    return space.encode(study.texts, progress=progress)


def classify(
    study: Study, codes: Features, progress: Progress | None = None, *, with_words: bool = True
) -> Classification:
    """Fit a study's classifiers to the codes of training sentences; test them on all test sentences.

    `with_words`: also to the words, which are the same whatever the codes.
    """
    need_sklearn()
    train, test = study.train, study.test
    y, test_y = numbers_of(train, study.classes), numbers_of(test, study.classes)
    x = np.zeros((len(y), codes.shape[1]), dtype=np.float32)
    x[study.used] = codes[: len(study.used)]
    test_x = codes[len(study.used) :]
    results: dict[tuple[int, str], list[float]] = {}
    words: dict[int, dict[int, float]] = {}  # by number of labels and seed: classifiers of a run share their sentences
    for number, trial in enumerate(study.trials, 1):
        found = run_trial(trial, x, y, test_x, test_y)
        results.setdefault((trial.labels, trial.classifier), []).append(found)
        known = words.setdefault(trial.labels, {}) if trial.labels and with_words else None
        if known is not None and trial.seed not in known:
            texts = [train.texts[i] for i in trial.rows]
            known[trial.seed] = words_accuracy(texts, y[trial.rows], test.texts, test_y, trial.seed)
        if progress is not None:
            progress(number)
    most = int(np.bincount(y).argmax())
    return Classification(
        study.classes,
        (len(y), len(test_y)),
        study.per_class,
        {key: Accuracy(tuple(runs)) for key, runs in results.items()},
        {key: Accuracy(tuple(runs.values())) for key, runs in words.items()},
        (study.classes[most], float((test_y == most).mean())),
        study.seed,
    )


def numbers_of(text: LabelledText, classes: Sequence[str]) -> Labels:
    """Return each sentence's class as a number."""
    known = {name: number for number, name in enumerate(classes)}
    strange = next((label for label in text.labels if label not in known), None)
    if strange is not None:
        raise ZentenceError(f"{text.name} has the label '{strange}', which no training sentence has")
    return np.array([known[label] for label in text.labels], dtype=np.int64)


def plan_trials(
    y: Labels, labels: Sequence[int], repeats: Repeats, per_class: bool, classifiers: Sequence[str], seed: int
) -> list[Trial]:
    """Return the classifiers to fit, each with its sentences; classifiers of one run and number share them."""
    for name in classifiers:
        if name not in CLASSIFIERS:
            raise ZentenceError(f"Unknown classifier '{name}'.{suggestion(name, CLASSIFIERS)}")
    trials = []
    for count in dict.fromkeys(labels):
        check_count(y, count, per_class)
        for run in range(repeats if isinstance(repeats, int) else repeats[count]):
            key = derive_key(seed, "classify", count, run) % 2**32
            random = np.random.default_rng(key)
            rows = draw_rows(y, count, per_class, random)
            pool = np.sort(random.permutation(len(y))[:MAX_POOL])
            names = dict.fromkeys(classifiers) if count else ("gmm",)
            trials += [Trial(count, name, key, rows, pool if name == "gmm" else pool[:0]) for name in names]
    return trials


def check_count(y: Labels, count: int, per_class: bool) -> None:
    """Refuse a number of labels that the training sentences do not have, or that leaves a class without any."""
    sizes = np.bincount(y)
    if per_class and count > sizes.min():
        raise ZentenceError(
            f"{count:,} labels a class were asked for; the smallest class has {sizes.min():,} sentences"
        )
    if not per_class and count > len(y):
        raise ZentenceError(f"{count:,} labels were asked for; the training text has {len(y):,} sentences")
    if not per_class and 0 < count < len(sizes):
        raise ZentenceError(f"{count:,} labels are too few for {len(sizes):,} classes: each needs one")


def draw_rows(y: Labels, count: int, per_class: bool, random: np.random.Generator) -> NDArray[np.int64]:
    """Draw labelled sentences: `count` of each class, or `count` in all in the classes' proportions, one at least."""
    sizes = np.bincount(y)
    shares = np.full(len(sizes), count) if per_class or count == 0 else allot(sizes, count)
    drawn = [random.permutation(np.flatnonzero(y == label))[:share] for label, share in enumerate(shares)]
    rows: NDArray[np.int64] = np.sort(np.concatenate(drawn))
    return rows


def allot(sizes: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Share `count` places among classes in proportion to their sizes (largest remainders), one at least to each."""
    exact = count * sizes / sizes.sum()
    places: NDArray[np.int64] = np.maximum(1, np.floor(exact + 1e-9).astype(np.int64))
    while (missing := count - int(places.sum())) != 0:
        open_to = exact - places if missing > 0 else np.where(places > 1, places - exact, -np.inf)
        places[np.argmax(open_to)] += np.sign(missing)
    return places


def run_trial(trial: Trial, x: Features, y: Labels, test_x: Features, test_y: Labels) -> float:
    """Return the test accuracy of one classifier."""
    labelled = x[trial.rows], y[trial.rows]
    if trial.classifier == "gmm":
        return cluster_accuracy(x[trial.pool], labelled, test_x, test_y, int(y.max()) + 1, trial.seed)
    fit = {"linear": linear_accuracy, "raw": raw_accuracy, "mlp": network_accuracy}[trial.classifier]
    return fit(*labelled, test_x, test_y, trial.seed)
