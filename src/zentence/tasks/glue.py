"""GLUE's nine tasks and their own file formats (Wang et al. 2019): tables with tabs, in which quotation marks are text.

| task | file | columns |
| --- | --- | --- |
| CoLA | no header | source, label, the author's mark, sentence |
| SST-2 | header | sentence, label |
| MRPC | header | Quality, #1 ID, #2 ID, #1 String, #2 String |
| STS-B | header; also without: score in column 5, sentences in 6 and 7 | …, sentence1, sentence2, score |
| QQP | header | id, qid1, qid2, question1, question2, is_duplicate |
| MNLI | header; dev_matched.tsv and dev_mismatched.tsv | …, sentence1, sentence2, …, gold_label |
| QNLI | header | index, question, sentence, label |
| RTE, WNLI | header | index, sentence1, sentence2, label |
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from zentence.corpora.readers import ReadStats, display_name, filled_lines
from zentence.errors import ZentenceError, suggestion
from zentence.latent.maps import choose
from zentence.tasks.scores import Values

_BINARY = ("0", "1")
_ENTAILMENT = ("not_entailment", "entailment")
_FEW_DAMAGED = 0.01  # QQP's own file has a few rows that are cut short; more is another format


@dataclass(frozen=True)
class GlueTask:
    """A task: its columns, its classes in the order of their numbers (none: a real number), and its scores.

    The first score is the one that the paper prints: accuracy, F1 for QQP and MRPC, Spearman for STS-B; for CoLA,
    whose printed figures are below any accuracy, Matthews.
    """

    name: str
    columns: tuple[str, ...]  # sentence, or two; last the label
    classes: tuple[str, ...]
    scores: tuple[str, ...]
    places: tuple[int, ...] = ()  # of the columns, in files without a header
    dev: tuple[str, ...] = ("dev.tsv",)
    skipped: frozenset[str] = field(default=frozenset())  # labels of examples without a class

    @property
    def is_pair(self) -> bool:
        """Whether an example has two sentences."""
        return len(self.columns) == 3

    @property
    def files(self) -> tuple[str, ...]:
        """The files that the task needs, in its folder: training first."""
        return ("train.tsv", *self.dev)


_PAIR = ("sentence1", "sentence2")
TASKS = {
    task.name: task
    for task in (
        GlueTask("CoLA", ("sentence", "label"), _BINARY, ("matthews", "accuracy"), (3, 1)),
        GlueTask("SST-2", ("sentence", "label"), _BINARY, ("accuracy",)),
        GlueTask("MRPC", ("#1 string", "#2 string", "quality"), _BINARY, ("f1", "accuracy")),
        GlueTask("STS-B", (*_PAIR, "score"), (), ("spearman", "pearson"), (5, 6, 4)),
        GlueTask("QQP", ("question1", "question2", "is_duplicate"), _BINARY, ("f1", "accuracy")),
        GlueTask(
            "MNLI",
            (*_PAIR, "gold_label"),
            ("contradiction", "neutral", "entailment"),
            ("accuracy",),
            dev=("dev_matched.tsv", "dev_mismatched.tsv"),
            skipped=frozenset({"-"}),
        ),
        GlueTask("QNLI", ("question", "sentence", "label"), _ENTAILMENT, ("accuracy",)),
        GlueTask("RTE", (*_PAIR, "label"), _ENTAILMENT, ("accuracy",)),
        GlueTask("WNLI", (*_PAIR, "label"), _BINARY, ("accuracy",)),
    )
}


@dataclass(frozen=True)
class Examples:
    """Examples of a task: sentences, second sentences if they are pairs, and a class's number or a value each."""

    name: str
    first: list[str]
    second: list[str] | None
    targets: Values  # [N]
    total: int  # in the file
    damaged: int = 0  # rows of the file that were passed over

    def __len__(self) -> int:
        return len(self.first)

    def take(self, rows: NDArray[np.int64]) -> "Examples":
        """Return some of the examples."""
        second = None if self.second is None else [self.second[i] for i in rows]
        return Examples(self.name, [self.first[i] for i in rows], second, self.targets[rows], self.total, self.damaged)


def find_tasks(text: str | None, folder: Path) -> list[GlueTask]:
    """Return the tasks named in `SST-2,RTE` (also `sst2`), or all whose folder is there; missing files are named."""
    if not folder.is_dir():
        raise ZentenceError(f"There is no GLUE folder {folder}: give --data DIR with a folder a task")
    known = {_plain(name): task for name, task in TASKS.items()}
    if text is None:
        tasks = [task for task in TASKS.values() if (folder / task.name).is_dir()]
        if not tasks:
            raise ZentenceError(f"{folder} has no GLUE task: expected folders like {', '.join(list(TASKS)[:3])} in it")
    else:
        for word in text.split(","):
            if _plain(word) not in known:
                raise ZentenceError(f"Unknown GLUE task '{word.strip()}'.{suggestion(word.strip(), TASKS)}")
        tasks = [known[name] for name in dict.fromkeys(_plain(word) for word in text.split(","))]
    names = [f"{task.name}/{file}" for task in tasks for file in task.files]
    if missing := [name for name in names if not (folder / name).is_file()]:
        raise ZentenceError(f"{folder} lacks {', '.join(missing)}: download them, or name other --tasks")
    return tasks


def _plain(name: str) -> str:
    return name.strip().lower().replace("-", "").replace("_", "")


def read_examples(task: GlueTask, path: Path, most: int | None = None, seed: int = 0) -> Examples:
    """Read a file of a task, or at most `most` examples of it, drawn by the seed.

    A mistake raises a ZentenceError that names the file and the line.
    """
    name, damaged = display_name(path), list[int]()
    rows = _rows(task, path, name, damaged)
    kept, count = choose(rows, most, seed) if most is not None else ((found := list(rows)), len(found))
    if len(damaged) > _FEW_DAMAGED * (count + len(damaged)):
        raise ZentenceError(
            f"{name}, line {damaged[0]}: too few columns, as in {len(damaged):,} rows: is it {task.name}'s own file?"
        )
    if not kept:
        raise ZentenceError(f"{name} has no examples")
    targets = np.array([target for _, target in kept], dtype=np.int64 if task.classes else np.float64)
    second = [sentences[1] for sentences, _ in kept] if task.is_pair else None
    return Examples(name, [sentences[0] for sentences, _ in kept], second, targets, count, len(damaged))


def _rows(task: GlueTask, path: Path, name: str, damaged: list[int]) -> Iterator[tuple[list[str], float]]:
    """Yield the sentences and the target of each row; note the lines that are cut short, where the task has such."""
    lines = filled_lines(path, name, ReadStats(), None)
    start = next(lines, None)
    if start is None:
        raise ZentenceError(f"{name} is empty: there is no example in it")
    titles = [cell.strip().lower() for cell in start[1].split("\t")]
    has_header = all(column in titles for column in task.columns)
    if not has_header and not task.places:
        absent = next(column for column in task.columns if column not in titles)
        raise ZentenceError(f"{name} has no column '{absent}': its first line must name the columns of {task.name}")
    places = [titles.index(column) for column in task.columns] if has_header else list(task.places)
    for number, line in lines if has_header else chain([start], lines):
        cells = line.rstrip("\r\n").split("\t")
        if len(cells) <= max(places):
            if task.name != "QQP":
                raise ZentenceError(f"{name}, line {number}: {len(cells)} columns where {max(places) + 1} are needed")
            damaged.append(number)
            continue
        *sentences, label = (" ".join(cells[place].split()) for place in places)
        if label in task.skipped:
            continue
        if not all(sentences):
            raise ZentenceError(f"{name}, line {number}: an empty sentence: remove this row")
        yield sentences, _target(task, label, f"{name}, line {number}")


def _target(task: GlueTask, label: str, where: str) -> float:
    if task.classes:
        if label not in task.classes:
            raise ZentenceError(f"{where}: label '{label}': expected one of {', '.join(task.classes)}")
        return task.classes.index(label)
    try:
        value = float(label)
    except ValueError:
        value = float("nan")
    if not np.isfinite(value):
        raise ZentenceError(f"{where}: score '{label}': expected a number")
    return value
