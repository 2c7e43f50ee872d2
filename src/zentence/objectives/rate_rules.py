"""Rate rules: what a model is charged for its rate.

A rule receives the rate in nats and returns this process's share of the charge. The true rate is always reported apart.
"""

from typing import Any, ClassVar, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from zentence import distributed
from zentence.distributions import Rate
from zentence.errors import ZentenceError
from zentence.objectives.base import share
from zentence.parts import Options as PartOptions
from zentence.schedules import ScheduleSpec, build_schedule
from zentence.types import Batch


class RateRule(nn.Module):
    """Base of all rules; `targets_rate` selects by IW-NLL, as the bound then favours small targets."""

    paper: ClassVar[str] = ""
    targets_rate: ClassVar[bool] = False
    needs_closed_form: bool = False
    Options: ClassVar[type[PartOptions]]

    def __init__(self, options: Any, epoch_steps: float, total_steps: int) -> None:
        super().__init__()
        self.options = options
        self.weight = build_schedule("rate_rule.weight", options.weight, epoch_steps, total_steps)

    def forward(self, rate: Rate, batch: Batch, step: int) -> Tensor:
        """Return this process's share of the charge, in nats per sentence."""
        raise NotImplementedError

    def scalars(self, step: int) -> dict[str, float]:
        """Return what the log should show of this rule's state."""
        return {"beta": self.weight(step)}


class Plain(RateRule):
    """β · R."""

    paper = "all; β ≠ 1: β-VAE (paper 2); a schedule: KL annealing"

    class Options(PartOptions):
        weight: ScheduleSpec = Field(1.0, description="β, a number or a schedule.")

    def forward(self, rate: Rate, batch: Batch, step: int) -> Tensor:
        """Return this process's share of β · R."""
        return self.weight(step) * share(rate.total, batch)


class FreeBits(RateRule):
    """β · max(target, R), the hinge on the total or on each dimension, per sentence or on the batch mean."""

    paper = "paper 2 (Eq. 20, total); paper 4 (per dimension, λ divided by D); paper 5 (per dimension, λ undivided)"
    targets_rate = True

    class Options(PartOptions):
        on: Literal["total", "per_dimension"] = Field("per_dimension", description="What the hinge is put on.")
        mean: Literal["sentence", "batch"] = Field(
            "sentence", description="Hinge for each sentence, or on the mean over the batch."
        )
        total_target: float | None = Field(
            None, ge=0.0, description="Target of the whole rate in nats; per dimension it is divided by D (paper 4)."
        )
        target_per_dimension: float | None = Field(
            None, ge=0.0, description="Target of each dimension in nats, undivided (paper 5)."
        )
        weight: ScheduleSpec = Field(1.0, description="β, a number or a schedule; it multiplies the whole hinge.")

        @model_validator(mode="after")
        def _one_target(self) -> "FreeBits.Options":
            if (self.total_target is None) == (self.target_per_dimension is None):
                raise ValueError("give exactly one of total_target and target_per_dimension")
            if self.on == "total" and self.total_target is None:
                raise ValueError("free bits on the total need total_target")
            return self

    def __init__(self, options: Options, epoch_steps: float, total_steps: int) -> None:
        super().__init__(options, epoch_steps, total_steps)
        self.needs_closed_form = options.on == "per_dimension"

    def _target(self, dimensions: int) -> float:
        if self.options.target_per_dimension is not None:
            return float(self.options.target_per_dimension)
        return float(self.options.total_target) / (1 if self.options.on == "total" else dimensions)

    def forward(self, rate: Rate, batch: Batch, step: int) -> Tensor:
        """Return this process's share of β · hinge."""
        if self.options.on == "total":
            values = rate.total[:, None]  # [B, 1]
        elif rate.per_dimension is None:
            raise ZentenceError("free bits per dimension need a closed-form rate: use on = 'total', mean = 'batch'")
        else:
            values = rate.per_dimension  # [B, D]
        target = self._target(values.shape[1])
        if self.options.mean == "sentence":
            return self.weight(step) * share(values.clamp(min=target).sum(1), batch)
        local = values.sum(0) / batch.global_size  # [D]: this process's share of the batch mean
        floor = torch.full_like(local, target / distributed.world())
        return self.weight(step) * torch.where(distributed.total(local) > target, local, floor).sum()


RATE_RULES: dict[str, type[RateRule]] = {"plain": Plain, "free_bits": FreeBits}
