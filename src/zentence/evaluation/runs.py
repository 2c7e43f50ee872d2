"""Runs to be compared: their recorded figures, their per-sentence figures, and which differ only in the seed."""

import hashlib
import io
import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from pathlib import Path
from typing import Any, get_args
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from zentence.checkpoint import load_settings_of
from zentence.errors import ZentenceError
from zentence.evaluation.measurement import Kind, Measurement, read_results
from zentence.evaluation.sentences import sentences_file

BOOKKEEPING = ("seed", "threads", "device", "checkpoint_seconds", "log_every", "tensorboard")  # no model depends on it
_SEED_ENDING = re.compile(r"[-_.=/\s]*(seed|s)?[-_.=/\s]*$", re.IGNORECASE)


@dataclass(frozen=True)
class SentenceFigures:
    """Figures of each sentence of a split, in its order: `RUN/sentences/<split>.npz`."""

    values: dict[str, NDArray[np.float64]]  # each [N]
    content: str | None  # content name of the split


@dataclass(frozen=True)
class Run:
    """A model directory with results. `identity` names its settings without the seed; None if they are not there."""

    folder: Path
    name: str
    measurements: tuple[Measurement, ...]
    identity: str | None
    seed: int | None

    @cached_property
    def splits(self) -> tuple[str, ...]:
        """Names of the splits with figures, in their order."""
        return tuple(dict.fromkeys(m.split for m in self.measurements))

    def of_split(self, split: str) -> list[Measurement]:
        """Return the figures of a split."""
        return [m for m in self.measurements if m.split == split]

    def content(self, split: str) -> str | None:
        """Return the content name of a split as recorded with its figures, or beside them; None if it was not."""
        names = {m.provenance.get("store") for m in self.of_split(split)}
        if names == {None}:
            figures = self.sentence_figures(split)
            return None if figures is None else figures.content
        return str(names.pop()) if len(names) == 1 else None

    def sentence_figures(self, split: str) -> SentenceFigures | None:
        """Read the per-sentence figures of a split; None if there are none."""
        return read_sentence_figures(sentences_file(self.folder, split))


def read_sentence_figures(path: Path) -> SentenceFigures | None:
    """Read a file of per-sentence figures; None if there is no such file."""
    if not path.is_file():
        return None
    try:
        with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as found:
            arrays = {name: found[name] for name in found.files}
    except (OSError, ValueError, EOFError, KeyError, BadZipFile) as error:
        raise ZentenceError(f"{path} is not a file of per-sentence figures: {' '.join(str(error).split())}") from error
    values = {
        name: array.astype(np.float64)
        for name, array in arrays.items()
        if array.ndim == 1 and array.dtype.kind in "fiu"
    }
    return SentenceFigures(values, str(arrays["store"]) if "store" in arrays else None)


def load_runs(folders: Sequence[Path]) -> list[Run]:
    """Read runs; a folder given twice counts once. Names are the folders', with as many parents as tell them apart."""
    unique = {folder.resolve(): folder for folder in folders}
    names = _short_names(list(unique))
    return [_load(folder, name) for folder, name in zip(unique.values(), names, strict=True)]


def _load(folder: Path, name: str) -> Run:
    if not folder.is_dir():
        raise ZentenceError(f"No such model directory: {folder}")
    path = folder / "results.json"
    if not path.is_file():
        raise ZentenceError(f"{folder} has no results: measure it with zentence evaluate {folder}")
    measurements = tuple(read_results(path))
    for m in measurements:
        _check(path, m)
    if not measurements:
        raise ZentenceError(f"{path} is empty: measure the model with zentence evaluate {folder}")
    if (folder / "settings.toml").is_file():
        settings = load_settings_of(folder)
        return Run(folder, name, measurements, seedless(settings.model_dump(mode="json")), settings.training.seed)
    seed = measurements[0].provenance.get("trained_seed")
    return Run(folder, name, measurements, None, seed if isinstance(seed, int) else None)


def _check(path: Path, m: Measurement) -> None:
    """Refuse what no evaluation writes: a table of it would be wrong or would not print."""
    numbers = isinstance(m.value, (int, float)) and not isinstance(m.value, bool) and math.isfinite(m.value)
    texts = all(isinstance(text, str) for text in (m.name, m.split, m.unit))
    tables = isinstance(m.details, dict) and isinstance(m.provenance, dict)
    if not (numbers and texts and tables and isinstance(m.count, int) and m.kind in get_args(Kind)):
        raise ZentenceError(f"{path}: the figure {m.name!r} is damaged: measure the model again with zentence evaluate")


def seedless(settings: dict[str, Any]) -> str:
    """Return the name of plain settings without the seed, the output folder, and what only concerns the machine."""
    training = {name: value for name, value in settings["training"].items() if name not in BOOKKEEPING}
    kept = {name: value for name, value in settings.items() if name != "out"} | {"training": training}
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()[:16]


def group_seeds(runs: Sequence[Run]) -> list[tuple[Run, ...]]:
    """Put runs that differ only in their training seed together, in order of their first; a group has a seed once."""
    groups: list[list[Run]] = []
    for run in runs:
        for group in groups:
            alike = run.identity is not None and run.identity == group[0].identity
            if alike and run.seed not in {other.seed for other in group}:
                group.append(run)
                break
        else:
            groups.append([run])
    return [tuple(group) for group in groups]


def group_names(groups: Sequence[Sequence[Run]]) -> list[str]:
    """Return a name for each group: what its runs' names have in common, or the first's."""
    names = [_common_name([run.name for run in group]) for group in groups]
    return [name if names.count(name) == 1 else group[0].name for name, group in zip(names, groups, strict=True)]


def _common_name(names: Sequence[str]) -> str:
    if len(names) == 1:
        return names[0]
    start = _SEED_ENDING.sub("", _common_start(names))
    end = _common_start([name[::-1] for name in names])[::-1].lstrip("-_.=/ ")
    return start or end or names[0]


def _common_start(names: Sequence[str]) -> str:
    alike = takewhile(lambda letters: len(set(letters)) == 1, zip(*names, strict=False))
    return "".join(letters[0] for letters in alike)


def _short_names(folders: Sequence[Path]) -> list[str]:
    depths = [1] * len(folders)
    while True:
        names = ["/".join(folder.parts[-depth:]) for folder, depth in zip(folders, depths, strict=True)]
        alike = [number for number, name in enumerate(names) if names.count(name) > 1]
        if not alike:
            return names
        for number in alike:  # the folders differ, so in the end their names do
            depths[number] += 1
