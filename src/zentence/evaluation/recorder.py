"""Collects the measurements of one split."""

from typing import Any

import numpy as np

from zentence.evaluation.measurement import Kind, Measurement, mean_and_error
from zentence.evaluation.metrics import METRICS


class Recorder:
    """Collects measurements of one split, with what they have in common."""

    def __init__(self, split: str, seed: int, provenance: dict[str, Any]) -> None:
        self.split, self.seed, self.provenance = split, seed, provenance
        self.measurements: list[Measurement] = []
        self.unavailable: dict[str, str] = {}  # metric → why it cannot be had of this model or text

    def add(
        self,
        name: str,
        value: float,
        kind: Kind,
        count: int,
        error: float | None = None,
        samples: int | None = None,
        **details: Any,
    ) -> None:
        """Add one figure; unit, direction and version are those of its name in METRICS."""
        metric = METRICS[name]
        self.measurements.append(
            Measurement(
                name=name,
                value=value,
                unit=metric.unit,
                kind=kind,
                standard_error=error,
                count=count,
                samples=samples,
                split=self.split,
                seed=self.seed,
                direction=metric.direction,
                version=metric.version,
                provenance=self.provenance,
                details=details,
            )
        )

    def add_mean(self, name: str, values: np.ndarray, kind: Kind, samples: int | None = None, **details: Any) -> None:
        """Add the mean of a per-sentence figure, with its standard error."""
        mean, error = mean_and_error(values)
        self.add(name, mean, kind, len(values), error, samples, **details)

    def refuse(self, name: str, reason: str) -> None:
        """Say why a metric is not available."""
        self.unavailable[name] = reason
