"""What `zentence tune` may change: settings with ranges or choices.

optimizer.learning_rate=5e-4:8e-3:log     a range, on a logarithmic scale
decoder.input_dropout=0.0:0.6             a range
posterior.size=16:64                      whole numbers
encoder.direction=forward,both            choices
"""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from zentence.errors import ZentenceError
from zentence.settings import Settings


@dataclass(frozen=True)
class Range:
    """Numbers from low to high; whole ones if both ends are."""

    key: str
    low: float
    high: float
    log: bool = False

    @property
    def whole(self) -> bool:
        """Whether only whole numbers are meant."""
        return isinstance(self.low, int) and isinstance(self.high, int)


@dataclass(frozen=True)
class Choices:
    """One of several values."""

    key: str
    values: tuple[Any, ...]


Dimension = Range | Choices


def parse_dimension(text: str) -> Dimension:
    """Read `key=low:high[:log]` or `key=a,b,c`."""
    key, equals, raw = text.partition("=")
    key, raw = key.strip(), raw.strip()
    if not equals or not key or not raw:
        raise ZentenceError(f"--space {text}: write it as key=low:high[:log] or key=a,b,c")
    if ":" not in raw:
        values = tuple(_value(entry) for entry in raw.split(","))
        if len(set(values)) < 2:
            raise ZentenceError(f"--space {text}: give at least two different values")
        return Choices(key, values)
    ends = raw.split(":")
    low, high = (_value(entry) for entry in (ends[0], ends[1]))
    if len(ends) > 3 or (len(ends) == 3 and ends[2] != "log") or not _numbers(low, high) or not low < high:
        raise ZentenceError(f"--space {text}: a range is low:high or low:high:log, with low < high")
    log = len(ends) == 3
    if log and low <= 0:
        raise ZentenceError(f"--space {text}: a logarithmic range begins above 0")
    return Range(key, low, high, log)


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text.strip()}")["value"]
    except tomllib.TOMLDecodeError:
        return text.strip()


def _numbers(*values: Any) -> bool:
    return all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values)


def default_space(settings: Settings) -> list[Dimension]:
    """Return a space for a recipe: learning rate and dropout, and the target of its rate where it has one."""
    rate = settings.optimizer_of(settings.stages[-1]).learning_rate
    space: list[Dimension] = [
        Range(_learning_rate(settings), rate / 4.0, rate * 4.0, log=True),
        Range("decoder.input_dropout", 0.0, 0.6),
        Range("decoder.output_dropout", 0.0, 0.6),
    ]
    rule = settings.stages[-1].objective.options.get("rate_rule")
    for name in ("total_target", "target"):
        target: Any = rule.get(name) if isinstance(rule, dict) else None
        if _numbers(target):
            key = f"stages.-1.objective.rate_rule.{name}"
            space.append(Range(key, float(target) / 2.0, float(target) * 2.0, log=True))
    return space


def _learning_rate(settings: Settings) -> str:
    return f"{'optimizer' if settings.stages[-1].optimizer is None else 'stages.-1.optimizer'}.learning_rate"


def parse_space(texts: Sequence[str], settings: Settings) -> list[Dimension]:
    """Return the space that is given, or the recipe's default."""
    space = [parse_dimension(text) for text in texts] or default_space(settings)
    keys = [dimension.key for dimension in space]
    for key in keys:
        if keys.count(key) > 1:
            raise ZentenceError(f"--space {key}: it is given twice")
    return space


def written(value: Any) -> str:
    """Return a value as `--set` reads it."""
    return str(value).lower() if isinstance(value, bool) else repr(value) if _numbers(value) else str(value)
