"""Schedules: pure functions of the stage-local count of updates, stretched to the length of the stage.

In settings a schedule is a number (constant) or a table such as `{name = "linear", start = 0, end = 1, epochs = 10}`.
Lengths are in epochs or in shares of the stage, so that a shortened run keeps its shape; in updates only for what takes
as many of them on any text.
"""

import math
from collections.abc import Callable
from typing import Any

from pydantic import Field, model_validator

from zentence.parts import Options as PartOptions
from zentence.parts import Part, find_part, parse_options

Schedule = Callable[[int], float]
ScheduleSpec = float | Part  # what stands in settings


class Span(PartOptions):
    """A length: in epochs, as a share of the stage (default: all of it), or in updates."""

    epochs: float | None = Field(None, gt=0.0, description="Length in epochs.")
    share: float | None = Field(None, gt=0.0, le=1.0, description="Length as a share of the stage.")
    updates: int | None = Field(None, ge=1, description="Length in updates, whatever the length of the stage.")

    @model_validator(mode="after")
    def _one_unit(self) -> "Span":
        if sum(length is not None for length in (self.epochs, self.share, self.updates)) > 1:
            raise ValueError("give the length in epochs, as a share or in updates, not in two of them")
        return self

    def steps(self, epoch_steps: float, total_steps: int) -> float:
        """Return the length in updates, at least one."""
        if self.updates is not None:
            return float(self.updates)
        length = self.epochs * epoch_steps if self.epochs is not None else (self.share or 1.0) * total_steps
        return max(1.0, length)


class Constant:
    """Always `value`; a plain number in settings means the same."""

    paper = "any"

    class Options(PartOptions):
        value: float = Field(1.0, description="The value.")

    def __init__(self, options: Options, epoch_steps: float, total_steps: int) -> None:  # noqa: ARG002
        self.options = options

    def __call__(self, step: int) -> float:  # noqa: ARG002
        return self.options.value


class Linear:
    """From `start` to `end` along a straight line, then constant."""

    paper = "KL annealing (papers 1-4); word dropout annealed 1 to 0 (paper 2)"

    class Options(Span):
        start: float = Field(0.0, description="Value at the first update.")
        end: float = Field(1.0, description="Value from the end of the span on.")

    def __init__(self, options: Options, epoch_steps: float, total_steps: int) -> None:
        self.options = options
        self.span = options.steps(epoch_steps, total_steps)

    def __call__(self, step: int) -> float:
        progress = min(1.0, step / self.span)
        return self.options.start + progress * (self.options.end - self.options.start)


class Logistic:
    """An S-shaped rise from about `start` to about `end`, half-way at `middle` of the span."""

    paper = "KL annealing, logistic form"

    class Options(Span):
        start: float = Field(0.0, description="Value far before the middle.")
        end: float = Field(1.0, description="Value far after the middle.")
        middle: float = Field(0.5, ge=0.0, le=1.0, description="Where the half-way value is reached, in the span.")
        steepness: float = Field(10.0, gt=0.0, description="Slope: the span covers this many logistic units.")

    def __init__(self, options: Options, epoch_steps: float, total_steps: int) -> None:
        self.options = options
        self.span = options.steps(epoch_steps, total_steps)

    def __call__(self, step: int) -> float:
        position = self.options.steepness * (step / self.span - self.options.middle)
        share = 0.5 * (1.0 + math.tanh(0.5 * position))
        return self.options.start + share * (self.options.end - self.options.start)


class Cyclical:
    """Cycles: `start` for a share of each, then a linear rise, then `end` for the rest."""

    paper = "cyclical annealing (papers 4 and 5; 10 periods, half at 0, a quarter rising, a quarter at 1)"

    class Options(Span):
        start: float = Field(0.0, description="Value in the first part of a cycle.")
        end: float = Field(1.0, description="Value in the last part of a cycle.")
        cycles: int = Field(10, ge=1, description="Number of cycles in the span.")
        share_at_start: float = Field(0.5, ge=0.0, lt=1.0, description="Share of a cycle spent at the start value.")
        share_rising: float = Field(0.25, ge=0.0, le=1.0, description="Share of a cycle spent rising.")

        @model_validator(mode="after")
        def _one_cycle(self) -> "Cyclical.Options":
            if self.share_at_start + self.share_rising > 1.0:
                raise ValueError("share_at_start + share_rising must not exceed 1")
            return self

    def __init__(self, options: Options, epoch_steps: float, total_steps: int) -> None:
        self.options = options
        self.cycle = options.steps(epoch_steps, total_steps) / options.cycles

    def __call__(self, step: int) -> float:
        options = self.options
        if step >= self.cycle * options.cycles:
            return options.end
        position = math.fmod(step, self.cycle) / self.cycle - options.share_at_start
        if position < 0.0:
            return options.start
        progress = 1.0 if options.share_rising == 0.0 else min(1.0, position / options.share_rising)
        return options.start + progress * (options.end - options.start)


class Warmup:
    """A linear warm-up from 0 to `start`, then a straight line to `end`."""

    paper = "learning rates (paper 5: linear decay)"

    class Options(Span):
        start: float = Field(1.0, description="Value after the warm-up.")
        end: float = Field(0.0, description="Value at the end.")
        warmup_share: float = Field(0.0, ge=0.0, lt=1.0, description="Share of the span spent rising from 0.")

    def __init__(self, options: Options, epoch_steps: float, total_steps: int) -> None:
        self.options = options
        self.span = options.steps(epoch_steps, total_steps)

    def __call__(self, step: int) -> float:
        options = self.options
        warmup = options.warmup_share * self.span
        if step < warmup:
            return options.start * (step + 1) / (warmup + 1)
        progress = min(1.0, (step - warmup) / max(1.0, self.span - warmup))
        return options.end + self._left(progress) * (options.start - options.end)

    def _left(self, progress: float) -> float:
        """Return the share of the way down that is left."""
        return 1.0 - progress


class Cosine(Warmup):
    """A linear warm-up from 0 to `start`, then half a cosine down to `end`."""

    paper = "learning rates"

    def _left(self, progress: float) -> float:
        return 0.5 * (1.0 + math.cos(math.pi * progress))


class Staged:
    """Constant pieces: `values[i]` from `from_share[i]` of the span on."""

    paper = "any"

    class Options(Span):
        values: tuple[float, ...] = Field((0.0, 1.0), min_length=1, description="The values, in order.")
        from_share: tuple[float, ...] = Field((0.0, 0.5), description="Where each begins, as a share; the first at 0.")

        @model_validator(mode="after")
        def _aligned(self) -> "Staged.Options":
            if len(self.values) != len(self.from_share) or self.from_share[0] != 0.0:
                raise ValueError("values and from_share must have the same length, and from_share must begin with 0")
            if list(self.from_share) != sorted(self.from_share):
                raise ValueError("from_share must rise")
            return self

    def __init__(self, options: Options, epoch_steps: float, total_steps: int) -> None:
        self.options = options
        self.span = options.steps(epoch_steps, total_steps)

    def __call__(self, step: int) -> float:
        reached = [i for i, share in enumerate(self.options.from_share) if step >= share * self.span]
        return self.options.values[reached[-1]]


SCHEDULES: dict[str, type[Any]] = {
    "constant": Constant,
    "linear": Linear,
    "logistic": Logistic,
    "cyclical": Cyclical,
    "cosine": Cosine,
    "warmup": Warmup,
    "staged": Staged,
}


def check_schedule(where: str, spec: ScheduleSpec) -> None:
    """Raise for an unknown schedule or option."""
    build_schedule(where, spec, 1.0, 1)


def build_schedule(where: str, spec: ScheduleSpec, epoch_steps: float, total_steps: int) -> Schedule:
    """Return the function that a setting describes, for a stage of `total_steps` updates."""
    if not isinstance(spec, Part):
        value = float(spec)
        return lambda _step: value
    chosen = find_part("schedule", SCHEDULES, spec.name)
    options = parse_options(where, chosen.Options, spec.options)
    schedule: Schedule = chosen(options, epoch_steps, total_steps)
    return schedule
