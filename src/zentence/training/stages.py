"""The plan of a run: how many updates each stage takes."""

import math
from typing import NamedTuple

from zentence.settings import Settings


class StagePlan(NamedTuple):
    """The length of a stage."""

    steps: int
    epoch_steps: float  # updates that schedules count as one epoch: fewer than a real epoch in a shortened run


def plan_stages(settings: Settings, batches_per_epoch: int, tokens_per_epoch: int) -> list[StagePlan]:
    """Return each stage's length; with `max_steps`, all stages and their schedules shrink in proportion."""
    full = []
    for stage in settings.stages:
        most = math.inf if stage.max_tokens is None else stage.max_tokens / tokens_per_epoch
        full.append(max(1, round(min(stage.epochs, most) * batches_per_epoch)))
    limit = settings.training.max_steps
    factor = 1.0 if limit is None else min(1.0, limit / sum(full))
    lengths = [max(1, round(steps * factor)) for steps in full]
    if factor < 1.0 and limit is not None and limit >= len(full):
        lengths[-1] = max(1, limit - sum(lengths[:-1]))
    return [StagePlan(steps, factor * batches_per_epoch) for steps in lengths]
