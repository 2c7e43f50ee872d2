"""GLUE by a linear head on frozen vectors: codes, or an encoder's features (paper 5, Table 7, feature-based)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np

from zentence.errors import ZentenceError
from zentence.noise import derive_key
from zentence.tasks.classifiers import Features, linear_classes, linear_values, need_sklearn
from zentence.tasks.glue import Examples, GlueTask, read_examples
from zentence.tasks.scores import Score, Values, measure
from zentence.tasks.subjects import FROZEN, Subject, pair_features, unknown_share

Progress = Callable[[str, int, int], None]  # what, done, total


@dataclass(frozen=True)
class GlueData:
    """A task's training examples, and those of its dev files by name (`dev`, or `dev_matched` and `dev_mismatched`)."""

    task: GlueTask
    train: Examples
    dev: dict[str, Examples]


@dataclass(frozen=True)
class GlueScore:
    """What a head on a subject's vectors reaches on a dev file; `chosen` is what was chosen without it."""

    task: GlueTask
    split: str
    subject: str
    scheme: str
    trained: int
    available: int  # training examples in the file
    tested: int
    scores: dict[str, Score]
    unknown_words: float  # share of the dev file's
    seconds: float
    chosen: dict[str, Any] = field(default_factory=dict)

    @property
    def main(self) -> Score:
        """The score that the paper prints."""
        return self.scores[self.task.scores[0]]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        names = ("split", "subject", "scheme", "trained", "available", "tested", "unknown_words", "seconds", "chosen")
        figures = {name: score.to_dict() for name, score in self.scores.items()}
        return {"task": self.task.name, **{name: getattr(self, name) for name in names}, "scores": figures}


@dataclass(frozen=True)
class GlueReport:
    """All scores, what the most frequent class (or the mean value) scores, and the seed."""

    rows: list[GlueScore]
    baselines: dict[tuple[str, str], dict[str, float]]  # by task and split
    seed: int

    def averages(self) -> dict[tuple[str, str], float]:
        """Return, by subject and scheme, the mean of the tasks' first scores; a task's dev files are averaged first."""
        found: dict[tuple[str, str], dict[str, list[float]]] = {}
        for row in self.rows:
            tasks = found.setdefault((row.subject, row.scheme), {})
            tasks.setdefault(row.task.name, []).append(row.main.value)
        return {key: float(np.mean([np.mean(values) for values in tasks.values()])) for key, tasks in found.items()}

    def to_dict(self) -> dict[str, Any]:
        """Return what `zentence glue --json` prints."""
        return {
            "task": "glue",
            "results": [row.to_dict() for row in self.rows],
            "baselines": [{"task": t, "split": s, "scores": found} for (t, s), found in self.baselines.items()],
            "averages": [{"subject": s, "scheme": how, "mean": mean} for (s, how), mean in self.averages().items()],
            "seed": self.seed,
        }


def read_task(task: GlueTask, folder: Path, most: int | None = None, seed: int = 0) -> GlueData:
    """Read a task's files: all of dev, and at most `most` training examples."""
    train = read_examples(task, folder / task.name / task.files[0], most, derive_key(seed, "glue", task.name) % 2**32)
    if task.classes and len(np.unique(train.targets)) < 2:
        raise ZentenceError(f"{train.name} has one class only: there is nothing to tell apart")
    return GlueData(task, train, {Path(name).stem: read_examples(task, folder / task.name / name) for name in task.dev})


def score_frozen(data: GlueData, subject: Subject, seed: int = 0, progress: Progress | None = None) -> list[GlueScore]:
    """Return the scores of a linear head on frozen vectors; its penalty is chosen on the training examples alone."""
    need_sklearn()
    began, task = monotonic(), data.task
    x = read_vectors(subject, data.train, f"{task.name}, {subject.title}: reading", progress)
    dev = {
        split: read_vectors(subject, examples, f"{task.name}, {subject.title}: reading {split}", progress)
        for split, examples in data.dev.items()
    }
    if progress is not None:
        progress(f"{task.name}, {subject.title}: fitting", 0, 1)
    joined = np.concatenate(list(dev.values()))
    found: Values
    if task.classes:
        found = linear_classes(x, data.train.targets.astype(np.int64), joined, derive_key(seed, "glue fit") % 2**32)
    else:
        found = linear_values(x, data.train.targets.astype(np.float64), joined)
    parts = np.split(found, np.cumsum([len(part) for part in dev.values()])[:-1])
    predictions = dict(zip(dev, parts, strict=True))
    return scored(data, subject, FROZEN, predictions, seed=seed, seconds=monotonic() - began)


def scored(
    data: GlueData,
    subject: Subject,
    scheme: str,
    predictions: dict[str, Values],
    *,
    seed: int,
    seconds: float,
    chosen: dict[str, Any] | None = None,
) -> list[GlueScore]:
    """Return the scores of predictions for each dev file."""
    return [
        GlueScore(
            data.task,
            split,
            subject.title,
            scheme,
            len(data.train),
            data.train.total,
            len(examples),
            {name: measure(name, predictions[split], examples.targets, seed) for name in data.task.scores},
            unknown_share(subject, [*examples.first, *(examples.second or ())]),
            round(seconds, 1),
            chosen or {},
        )
        for split, examples in data.dev.items()
    ]


def read_vectors(subject: Subject, examples: Examples, what: str, progress: Progress | None) -> Features:
    """Return the vectors of examples [N, D], or of pairs [N, 4D]."""
    texts = [*examples.first, *(examples.second or ())]
    found = subject.read(texts, (lambda done: progress(what, done, len(texts))) if progress is not None else None)
    if examples.second is None:
        return found
    return pair_features(found[: len(examples)], found[len(examples) :])


def baseline(data: GlueData) -> dict[str, dict[str, float]]:
    """Return, by dev file, the scores of always saying the training examples' most frequent class, or their mean."""
    y = data.train.targets
    said = np.bincount(y.astype(np.int64)).argmax() if data.task.classes else y.mean()
    return {
        split: {name: measure(name, np.full(len(part), said), part.targets).value for name in data.task.scores}
        for split, part in data.dev.items()
    }


def report(datas: Sequence[GlueData], rows: Sequence[GlueScore], seed: int) -> GlueReport:
    """Return all scores with their baselines."""
    baselines = {(data.task.name, split): found for data in datas for split, found in baseline(data).items()}
    return GlueReport(list(rows), baselines, seed)
