"""Understanding with few labels (paper 5, §6.3 and Fig. 3): a linear head on codes, or on an encoder's features."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

from zentence.errors import ZentenceError
from zentence.tasks.classify import Accuracy, LabelledText, Study, classify, plan_study
from zentence.tasks.curve import MARKERS, SHADES, CurveLine, draw_lines, words_line
from zentence.tasks.subjects import FROZEN, Subject, unknown_share

PAPER_COUNTS = (1, 10, 100, 1000, 10_000)
FEW, RUNS_OF_MANY = 1000, 3  # labels a class beyond which as many runs are enough
Progress = Callable[[str, int, int], None]  # what, done, total


@dataclass(frozen=True)
class Curve:
    """Accuracies by number of labels a class, of one subject in one scheme."""

    subject: str
    scheme: str
    size: int  # of its vectors
    values: dict[int, Accuracy]


@dataclass(frozen=True)
class Understanding:
    """Curves, and what they must be compared with."""

    classes: tuple[str, ...]
    sentences: tuple[int, int]  # train, test
    curves: list[Curve]
    words: dict[int, Accuracy]  # TF-IDF + logistic regression
    majority: tuple[str, float]
    unknown_words: dict[str, float]  # share of the test sentences', by subject
    seed: int

    def to_dict(self) -> dict[str, Any]:
        """Return what `zentence understand --json` prints."""
        return {
            "task": "understand",
            "classes": list(self.classes),
            "train_sentences": self.sentences[0],
            "test_sentences": self.sentences[1],
            "results": [
                {
                    "subject": curve.subject,
                    "scheme": curve.scheme,
                    "size": curve.size,
                    "labels_per_class": labels,
                    "accuracy": accuracy.to_dict(),
                }
                for curve in self.curves
                for labels, accuracy in curve.values.items()
            ],
            "baselines": {
                "majority": {"class": self.majority[0], "accuracy": self.majority[1]},
                "bag_of_words": [{"labels_per_class": n, "accuracy": a.to_dict()} for n, a in self.words.items()],
            },
            "unknown_words": self.unknown_words,
            "seed": self.seed,
        }

    def draw(self, path: Path) -> None:
        """Draw the curves with their standard deviations."""
        styles = cycle(zip(SHADES, MARKERS, strict=True))
        several = len({curve.scheme for curve in self.curves}) > 1
        lines = [
            CurveLine(f"{curve.subject}, {curve.scheme}" if several else curve.subject, curve.values, *style)
            for curve, style in zip(self.curves, styles, strict=False)
        ]
        lines.append(words_line(self.words))
        draw_lines(lines, path, majority=self.majority, per_class=True, tested=self.sentences[1])


def plan_low_resource(
    train: LabelledText, test: LabelledText, *, per_class: Sequence[int] | None = None, repeats: int = 10, seed: int = 0
) -> Study:
    """Plan the runs: `repeats` for up to 1,000 labels a class, at most 3 beyond; each draws sentences of its own.

    Without `per_class` the numbers are the paper's, as far as the smallest class goes.
    """
    if per_class is None:
        smallest = min(Counter(train.labels).values())
        per_class = [count for count in PAPER_COUNTS if count <= smallest]
    if any(count < 1 for count in per_class):
        raise ZentenceError("--per-class: at least 1 label a class")
    runs = {count: repeats if count <= FEW else min(repeats, RUNS_OF_MANY) for count in per_class}
    return plan_study(train, test, labels=per_class, repeats=runs, per_class=True, classifiers=["raw"], seed=seed)


def understand(study: Study, subjects: Sequence[Subject], progress: Progress | None = None) -> Understanding:
    """Fit linear heads to the frozen vectors of each subject as they are, all on the same sentences."""
    curves: list[Curve] = []
    words: dict[int, Accuracy] = {}

    def told(what: str, total: int) -> Callable[[int], None]:
        return lambda done: progress(what, done, total) if progress is not None else None

    for subject in subjects:
        vectors = subject.read(study.texts, told(f"{subject.title}: reading", study.sentences))
        fitting = told(f"{subject.title}: fitting", len(study.trials))
        found = classify(study, vectors, fitting, with_words=not curves)
        words = words or found.words
        values = {labels: accuracy for (labels, _), accuracy in found.results.items()}
        curves.append(Curve(subject.title, FROZEN, vectors.shape[1], values))
    unknown = {subject.title: unknown_share(subject, study.test.texts) for subject in subjects}
    return Understanding(study.classes, found.sentences, curves, words, found.majority, unknown, study.seed)
