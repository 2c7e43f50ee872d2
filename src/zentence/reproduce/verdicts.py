"""What to say of a figure beside the paper's.

Only figures of one kind on one text are compared by number. Against a figure of another text or kind nothing is said
but whether ours is lower or higher: its digits mean something else.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from zentence.evaluation.measurement import Kind
from zentence.evaluation.metrics import METRICS, Direction
from zentence.evaluation.papers import TASK_FIGURES

State = Literal["reproduced", "better", "worse", "off", "no tolerance", "direction only"]


@dataclass(frozen=True)
class Figure:
    """Ours: over seeds, the mean and the standard deviation (n − 1 in the denominator)."""

    value: float
    kind: Kind
    text: str  # the split, for example `PTB validation`
    std: float | None = None
    seeds: int = 1


@dataclass(frozen=True)
class Verdict:
    """A state, the difference ours − theirs, and why it is no more than a direction."""

    state: State
    difference: float
    reason: str = ""

    @property
    def words(self) -> str:
        """The verdict for a table."""
        if self.state != "direction only":
            return self.state
        return f"{_side(self.difference)} (direction only: {self.reason})"


def _side(difference: float) -> str:
    return "equal" if difference == 0.0 else "lower" if difference < 0.0 else "higher"


def direction_of(metric: str) -> Direction:
    """Return which is better."""
    return "higher" if metric in TASK_FIGURES else METRICS[metric].direction


def figure_over_seeds(values: Sequence[float], kind: Kind, text: str) -> Figure:
    """Join the figures of runs that differ in the seed."""
    std = float(np.std(values, ddof=1)) if len(values) > 1 else None
    return Figure(float(np.mean(values)), kind, text, std, len(values))


def judge(metric: str, ours: Figure, theirs: float, kind: Kind, text: str, tolerance: float | None) -> Verdict:
    """Judge one of our figures against a published one of this kind, on this text.

    Within the tolerance it is reproduced; beyond it, better or worse where the metric has a direction, else off.
    """
    difference = ours.value - theirs
    if ours.text != text:
        return Verdict("direction only", difference, f"theirs is on {text}")
    if ours.kind != kind:
        words = [name.replace("_", " ") for name in (kind, ours.kind)]
        return Verdict("direction only", difference, f"theirs is of kind {words[0]}, ours {words[1]}")
    if tolerance is None:
        return Verdict("no tolerance", difference)
    if abs(difference) <= tolerance + 1e-9:
        return Verdict("reproduced", difference)
    direction = direction_of(metric)
    if direction == "none":
        return Verdict("off", difference)
    return Verdict("better" if (difference < 0.0) == (direction == "lower") else "worse", difference)
