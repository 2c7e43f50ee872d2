"""A number with what is needed to trust it."""

import json
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import numpy as np

from zentence.errors import ZentenceError
from zentence.evaluation.metrics import Direction
from zentence.files import write_atomically

Kind = Literal["exact", "upper_bound", "estimate", "not_a_bound"]


@dataclass(frozen=True)
class Measurement:
    """One figure: what it is, how it was made, and from what."""

    name: str
    value: float
    unit: str
    kind: Kind
    standard_error: float | None
    count: int
    samples: int | None
    split: str
    seed: int
    direction: Direction = "none"
    version: int = 1
    provenance: dict[str, Any] = field(default_factory=dict)
    details: dict[str, Any] = field(default_factory=dict)


def mean_and_error(values: np.ndarray) -> tuple[float, float | None]:
    """Return mean and standard error of per-sentence values."""
    values = values.astype(np.float64)
    error = float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else None
    return float(values.mean()), error


def ratio_and_error(parts: np.ndarray, wholes: np.ndarray) -> tuple[float, float | None]:
    """Return Σ parts / Σ wholes over sentences, and its standard error by the delta method."""
    parts, wholes = parts.astype(np.float64), wholes.astype(np.float64)
    ratio = float(parts.sum() / wholes.sum())
    residual = parts - ratio * wholes
    error = float(residual.std(ddof=1) / np.sqrt(len(parts)) / wholes.mean()) if len(parts) > 1 else None
    return ratio, error


def describe_machine() -> dict[str, str]:
    """Return what the figures' speed and last digits may depend on; no host name, no path."""
    return {
        "zentence": version("zentence"),
        "python": platform.python_version(),
        "torch": version("torch"),
        "machine": platform.machine(),
    }


def write_results(path: Path, measurements: Sequence[Measurement]) -> None:
    """Write a list of measurements; figures already there for other (name, split) pairs are kept."""
    fresh = {(m.name, m.split): asdict(m) for m in measurements}
    kept = {(m.name, m.split): asdict(m) for m in read_results(path)} if path.exists() else {}
    merged = [*({**kept, **fresh}.values())]
    write_atomically(path, json.dumps(merged, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def read_results(path: Path) -> list[Measurement]:
    """Read a list of measurements."""
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(rows, list):
            raise TypeError("a list is expected")
        return [Measurement(**row) for row in rows]
    except (OSError, ValueError, TypeError) as error:
        raise ZentenceError(f"{path} is not a list of results: {error}") from error
