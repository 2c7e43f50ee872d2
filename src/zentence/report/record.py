"""What a model directory says about its run: settings, figures, log. Whatever is missing is left out, not made up."""

import json
import math
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zentence.checkpoint import load_settings_of
from zentence.evaluation.measurement import Measurement
from zentence.evaluation.runs import Run, load_runs
from zentence.settings import Settings

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Record:
    """One run as a report sees it."""

    run: Run
    settings: Settings
    events: list[dict[str, Any]]

    @property
    def folder(self) -> Path:
        """The model directory."""
        return self.run.folder

    @property
    def name(self) -> str:
        """A name that no other run of the report has."""
        return self.run.name or self.folder.resolve().name

    @property
    def measurements(self) -> tuple[Measurement, ...]:
        """All figures of all splits."""
        return self.run.measurements

    @property
    def split(self) -> str:
        """The split that pictures and verdict are about: the one with most figures, the first of equals."""
        return Counter(m.split for m in self.measurements).most_common(1)[0][0]

    def sentences(self, split: str) -> int:
        """Return on how many sentences of a split its likelihood was measured, or whatever else was."""
        found = self.run.of_split(split)
        likelihood = [m.count for m in found if m.name in ("nll", "iw_nll", "elbo_nll", "distortion", "rate")]
        return max(likelihood or [m.count for m in found])

    def text(self, split: str) -> tuple[str, str | None, int]:
        """Return what tells texts apart: a split's name, its content's where that was recorded, and its size."""
        return split, self.run.content(split), self.sentences(split)

    def figure(self, name: str) -> Measurement | None:
        """Return a measurement on the main split."""
        return next((m for m in self.measurements if m.name == name and m.split == self.split), None)

    def detail(self, name: str, key: str) -> Any:
        """Return a detail of a measurement on the main split, or None."""
        found = self.figure(name)
        return None if found is None else found.details.get(key)

    def curve(self, event: str, name: str) -> tuple[Numbers, Numbers] | None:
        """Return steps and values of a number in the log's events of a kind; None with fewer than two."""
        points = [
            (row["tick"], row[name])
            for row in self.events
            if row.get("event") == event and is_number(row.get("tick")) and is_number(row.get(name))
        ]
        if len(points) < 2:
            return None
        array = np.array(points, dtype=np.float64)
        return array[:, 0], array[:, 1]

    def sentence_figures(self) -> dict[str, Numbers]:
        """Return what `evaluate` kept for each sentence of the main split; nothing if it kept nothing."""
        found = self.run.sentence_figures(self.split)
        values = {} if found is None else found.values
        return {name: array for name, array in values.items() if len(array) and np.isfinite(array).all()}

    def command(self, *words: str) -> str:
        """Return the command that would fill a gap: `zentence evaluate RUN …`."""
        return " ".join(["zentence", words[0], shlex.quote(str(self.folder)), *words[1:]])


def read_records(folders: Sequence[Path]) -> list[Record]:
    """Read model directories; without settings or figures there is nothing to report on."""
    for folder in folders:
        if folder.is_dir():
            load_settings_of(folder)  # says first of all whether it is a model directory
    return [
        Record(run, load_settings_of(run.folder), list(_events(run.folder / "log.jsonl"))) for run in load_runs(folders)
    ]


def _events(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the log's events; lines that a crash cut short are passed over."""
    if not path.is_file():
        return
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            try:
                event = json.loads(line)
            except ValueError:
                continue
            if isinstance(event, dict):
                yield event


def is_number(value: Any) -> bool:
    """Tell whether a JSON value is a finite number."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def vector(value: Any) -> Numbers | None:
    """Return a JSON list of finite numbers as an array [N], N ≥ 1, or None if it is anything else."""
    if not isinstance(value, list) or not value or not all(map(is_number, value)):
        return None
    return np.array(value, dtype=np.float64)


def table(value: Any, columns: int) -> Numbers | None:
    """Return a JSON list of rows of finite numbers as an array [N, columns], N ≥ 1, or None."""
    if not isinstance(value, list) or not value:
        return None
    rows = [vector(row) for row in value]
    if any(row is None or len(row) != columns for row in rows):
        return None
    return np.array(value, dtype=np.float64)


@dataclass(frozen=True)
class Histogram:
    """Counts [N] between edges [N + 1]."""

    edges: Numbers
    counts: Numbers

    @classmethod
    def parse(cls, value: Any) -> "Histogram | None":
        """Return the histogram in a JSON value, or None if there is none."""
        if not isinstance(value, dict):
            return None
        edges, counts = vector(value.get("edges")), vector(value.get("counts"))
        if edges is None or counts is None or len(edges) != len(counts) + 1 or counts.sum() <= 0:
            return None
        if (np.diff(edges) <= 0).any() or (counts < 0).any():
            return None
        return cls(edges, counts)

    @classmethod
    def of(cls, values: Numbers, bins: int = 40) -> "Histogram":
        """Return the histogram of values."""
        counts, edges = np.histogram(values, bins=bins)
        return cls(edges.astype(np.float64), counts.astype(np.float64))

    @property
    def shares(self) -> Numbers:
        """Counts as shares of all, in per cent."""
        return np.asarray(self.counts / self.counts.sum() * 100.0, dtype=np.float64)
