"""Everything that must survive a restart, and nothing else.

There is no random state: each step's randomness is derived from (seed, step, process), so a restart at any step
draws what an uninterrupted run would have drawn.
"""

from dataclasses import asdict, dataclass, fields
from typing import Any

from zentence.errors import ZentenceError


@dataclass
class TrainState:
    """Where a run stands."""

    stage: int = 0
    tick: int = 0  # updates since the run began; keys the noise
    update: int = 0  # updates since the stage began; schedules are functions of it
    epoch: int = 0  # passes over the training split completed in the stage
    position: int = 0  # batches of the present pass already used
    learning_rate_factor: float = 1.0  # product of the decays on plateaus
    decays: int = 0
    without_improvement: int = 0  # validations since the best one, or since the last decay
    best: dict[str, str] | None = None  # the file with the stage's best weights
    best_value: float | None = None
    stage_over: bool = False  # ended before its length was reached
    seconds: float = 0.0  # training time so far, for people only

    def as_json(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)

    @staticmethod
    def from_json(data: dict[str, Any]) -> "TrainState":
        """Restore from plain values."""
        if set(data) != {f.name for f in fields(TrainState)}:
            raise ZentenceError("the checkpoint's state is of another version")
        return TrainState(**data)

    def begin_stage(self, stage: int) -> None:
        """Start the counters of a new stage."""
        tick, seconds = self.tick, self.seconds
        self.__init__(stage=stage, tick=tick, seconds=seconds)  # type: ignore[misc]

    def advance(self, batches_per_epoch: int) -> None:
        """Count one update."""
        self.tick += 1
        self.update += 1
        self.position += 1
        if self.position == batches_per_epoch:
            self.position, self.epoch = 0, self.epoch + 1
