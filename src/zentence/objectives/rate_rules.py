"""Rate rules: what a model is charged for its rate.

A rule receives the rate in nats and returns this process's share of the charge. The true rate is always reported
apart. Rules that follow the rate remember the mean over the whole batch from `forward`, where it is known with the
batch, and move once an update, in `after_update`.
"""

import math
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from zentence.distributions import DiagonalGaussian, Rate
from zentence.errors import ZentenceError
from zentence.objectives.base import equal_share, gather_rows, holders, share, whole
from zentence.parts import Options as PartOptions
from zentence.schedules import ScheduleSpec, build_schedule
from zentence.types import Batch


class RateRule(nn.Module):
    """Base of all rules; `targets_rate` selects by IW-NLL, as the bound then favours small targets.

    `needs_closed_form` says what needs a KL in closed form, `whole_batch` what looks at the batch as a whole; "" for
    nothing. State is in buffers.
    """

    paper: ClassVar[str] = ""
    targets_rate: ClassVar[bool] = False
    needs_closed_form: str = ""
    whole_batch: str = ""
    Options: ClassVar[type[PartOptions]]

    def __init__(self, options: Any, epoch_steps: float, total_steps: int) -> None:  # noqa: ARG002
        super().__init__()
        self.options = options

    def forward(self, rate: Rate, batch: Batch, step: int) -> Tensor:
        """Return this process's share of the charge, in nats per sentence."""
        raise NotImplementedError

    def scalars(self, step: int) -> dict[str, float]:
        """Return what the log should show of this rule's state; `beta` is the weight of the rate's gradient."""
        raise NotImplementedError

    def after_update(self) -> None:
        """Move the rule's state, from the rate of the last batch; called once per update."""


class Weighted(RateRule):
    """Base of the rules whose charge is multiplied by a schedule β."""

    def __init__(self, options: Any, epoch_steps: float, total_steps: int) -> None:
        super().__init__(options, epoch_steps, total_steps)
        self.weight = build_schedule("rate_rule.weight", options.weight, epoch_steps, total_steps)

    def scalars(self, step: int) -> dict[str, float]:
        """Return β."""
        return {"beta": self.weight(step)}


class Plain(Weighted):
    """β · R."""

    paper = "all; β ≠ 1: β-VAE (paper 2, Eq. 19); a schedule: KL annealing"

    class Options(PartOptions):
        weight: ScheduleSpec = Field(1.0, description="β, a number or a schedule.")

    def forward(self, rate: Rate, batch: Batch, step: int) -> Tensor:
        """Return this process's share of β · R."""
        return self.weight(step) * share(rate.total, batch)


class FreeBits(Weighted):
    """β · max(target, R), the hinge on the total, on each dimension, or on both; per sentence or on the batch mean.

    On both: β · max(total target, Σ_d max(target per dimension, R_d)). Small targets per dimension keep each of them
    alive, and the rest of the total goes where it is worth most; large equal ones make dimensions repeat each other.

    The rate is information and mismatch: R = I + KL(q(z)‖p(z)), q(z) the aggregate of the batch. A model may fill its
    target with a shape of q(z) that the prior does not have, which tells no sentence from another. `mismatch_weight` w
    charges that from the first nat on: β · (w M + max(target, R − w M)), M as in `batch_mismatch`. With w = 1 only
    information is free.
    """

    paper = "paper 2 (Eq. 20, total); paper 4 (per dimension, λ divided by D); paper 5 (per dimension, λ undivided)"
    targets_rate = True

    class Options(PartOptions):
        on: Literal["total", "per_dimension", "both"] = Field(
            "per_dimension", description="What the hinge is put on; both takes both targets."
        )
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
        mismatch_weight: ScheduleSpec = Field(
            0.0,
            description="Share (a number or a schedule) that is charged below the target too of the mismatch of the "
            "batch's codes, taken as one Gaussian, and the prior; 1: only information is free.",
        )

        @model_validator(mode="after")
        def _fitting_targets(self) -> "FreeBits.Options":
            total, each = self.total_target is not None, self.target_per_dimension is not None
            if self.on == "both" and not (total and each):
                raise ValueError("free bits on both need total_target and target_per_dimension")
            if self.on == "total" and not total:
                raise ValueError("free bits on the total need total_target")
            if self.on != "both" and total == each:
                raise ValueError("give exactly one of total_target and target_per_dimension")
            if self.mismatch_weight != 0.0 and (self.mean != "batch" or self.on == "per_dimension"):
                raise ValueError("the mismatch is that of a batch: use mean = 'batch' and on = 'total' or 'both'")
            return self

    def __init__(self, options: Options, epoch_steps: float, total_steps: int) -> None:
        super().__init__(options, epoch_steps, total_steps)
        self.whole_batch = "free bits on the batch mean" if options.mean == "batch" else ""
        self.mismatch_weight = None
        if options.mismatch_weight != 0.0:
            self.mismatch_weight = build_schedule(
                "rate_rule.mismatch_weight", options.mismatch_weight, epoch_steps, total_steps
            )
            self.needs_closed_form = "charging the mismatch"
        elif options.on != "total":
            self.needs_closed_form = "free bits per dimension"
        elif options.mean == "sentence":  # E max(target, estimate) > max(target, E estimate)
            self.needs_closed_form = "free bits per sentence"

    def forward(self, rate: Rate, batch: Batch, step: int) -> Tensor:
        """Return this process's share of β · hinge."""
        options = self.options
        if self.mismatch_weight is not None:
            return self.weight(step) * self._with_mismatch(rate, batch, self.mismatch_weight(step))
        if options.on == "total":
            charged = self._hinge(self._mean(rate.total, batch), options.total_target, batch)
        elif rate.per_dimension is None:
            raise ZentenceError("free bits per dimension need a closed-form rate: use on = 'total', mean = 'batch'")
        else:
            values = self._mean(rate.per_dimension, batch)  # [B, D], or [D] for the batch mean
            each = options.target_per_dimension
            each = options.total_target / values.shape[-1] if each is None else each
            charged = self._hinge(values, each, batch).sum(-1)
            if options.on == "both":
                charged = self._hinge(charged, options.total_target, batch)
        return self.weight(step) * (share(charged, batch) if options.mean == "sentence" else charged)

    def _with_mismatch(self, rate: Rate, batch: Batch, weight: float) -> Tensor:
        """Return this process's share of w M + max(total target, Σ_d max(each, R_d) − w M)."""
        if rate.per_dimension is None or rate.standard is None:
            raise ZentenceError("charging the mismatch needs a closed-form rate: use mismatch_weight = 0")
        each = self.options.target_per_dimension or 0.0
        charged = self._hinge(self._mean(rate.per_dimension, batch), each, batch).sum()
        mismatch = weight * equal_share(batch_mismatch(rate.standard, each, batch), batch)
        return mismatch + self._hinge(charged - mismatch, self.options.total_target, batch)

    def _mean(self, values: Tensor, batch: Batch) -> Tensor:
        """Return values [B, …] as they are, or this process's share of their mean over the batch."""
        return values if self.options.mean == "sentence" else values.sum(0) / batch.global_size

    def _hinge(self, values: Tensor, target: float, batch: Batch) -> Tensor:
        """Return max(target, values) of each sentence; of a batch mean, this process's share of it."""
        if self.options.mean == "sentence":
            return values.clamp(min=target)
        return torch.where(whole(values, batch) > target, values, torch.full_like(values, target / holders(batch)))


def batch_mismatch(q: DiagonalGaussian, each: float, batch: Batch) -> Tensor:
    """Return max(0, T − D each) + Σ_d max(0, KL_d − each) in nats, p being N(0, I) and q(z) taken as N(m, C).

    KL(N(m, C)‖N(0, I)) is the sum of T, the correlation of dimensions, and of KL_d = KL(N(m_d, C_dd)‖N(0, 1)). It is
    the least that KL(q(z)‖p(z)) can be for these moments: the rest is how far q(z) is from a Gaussian. A batch is a
    small sample of sentences, and means that scatter by chance look like mismatch: what that adds on average is taken
    off, to first order, so that small batches are not charged for their information. `each` is what a dimension may
    differ from the prior, and again what it may repeat of others, so that those with little to say stay alive.
    """
    with torch.autocast(q.mean.device.type, enabled=False):
        mean, variance = (gather_rows(rows, batch) for rows in (q.mean.double(), (2.0 * q.log_scale.double()).exp()))
        N, center = len(mean), mean.mean(0)
        around = mean - center
        between = around.t() @ around / max(1, N - 1)  # [D, D], the covariance of means
        covariance = between + variance.mean(0).diag()
        spread, scatter, factor = covariance.diagonal(), between.diagonal(), torch.linalg.cholesky_ex(covariance).L
        correlation = 0.5 * spread.log().sum() - factor.diagonal().log().sum()
        single = 0.5 * (spread + center.square() - scatter / N - 1.0 - spread.log())
        # E[−½ log det C] exceeds the true one by ¼ E tr (C⁻¹ΔC)², ΔC the mean of N independent terms; of C_dd likewise
        precision = torch.cholesky_inverse(factor)
        distance, shared = (around @ precision * around).sum(1), precision @ between
        excess = 0.25 * (distance.square().mean() - (shared * shared.t()).sum()) / N
        single_excess = 0.25 * (around.pow(4).mean(0) - scatter.square()) / (N * spread.square())
        correlation, single = correlation - (excess - single_excess.sum()), single - single_excess
        found: Tensor = (correlation - each * len(single)).relu() + (single - each).relu().sum()
        return found.to(q.mean.dtype)


class SoftFreeBits(RateRule):
    """β · R; after each update β rises by α if the batch's mean rate is above γ r, and falls by α if below ε r."""

    paper = "paper 2 (Eq. 26; multiplicative: its released code); Chen et al. (2017)"
    targets_rate = True
    whole_batch = "soft free bits"

    class Options(PartOptions):
        target: float = Field(gt=0.0, description="Target r of the rate in nats.")
        form: Literal["additive", "multiplicative"] = Field(
            "additive", description="β ± α as in Eq. 26, or β · (1 ± α) as in the released code."
        )
        step: float = Field(0.01, gt=0.0, lt=1.0, description="α, by which β moves.")
        lower: float = Field(1.0, gt=0.0, description="ε: below this share of the target β falls.")
        upper: float = Field(1.05, gt=0.0, description="γ: above this share of the target β rises.")
        initial: float = Field(0.1, ge=0.0, le=1.0, description="β at the start; it stays between 0 and 1.")

        @model_validator(mode="after")
        def _sensible(self) -> "SoftFreeBits.Options":
            if self.lower > self.upper:
                raise ValueError("lower must not exceed upper")
            if self.form == "multiplicative" and self.initial == 0.0:
                raise ValueError("a factor does not move an initial β of 0")
            return self

    beta: Tensor

    def __init__(self, options: Options, epoch_steps: float, total_steps: int) -> None:
        super().__init__(options, epoch_steps, total_steps)
        self.register_buffer("beta", torch.tensor(options.initial, dtype=torch.float64))
        self._rate: float | None = None  # mean over the last batch

    def forward(self, rate: Rate, batch: Batch, step: int) -> Tensor:  # noqa: ARG002
        """Return this process's share of β · R."""
        mean = share(rate.total, batch)
        self._rate = float(whole(mean, batch))
        return float(self.beta) * mean

    def scalars(self, step: int) -> dict[str, float]:  # noqa: ARG002
        """Return β."""
        return {"beta": float(self.beta)}

    def after_update(self) -> None:
        """Move β by one step if the rate left its corridor."""
        options = self.options
        if self._rate is None or options.lower * options.target <= self._rate <= options.upper * options.target:
            return
        step = options.step if self._rate > options.target * options.upper else -options.step
        moved = self.beta + step if options.form == "additive" else self.beta * (1.0 + step)
        self.beta.copy_(moved.clamp(0.0, 1.0))


class MinimumRate(RateRule):
    """R + u (r − R), a Lagrangian for R ≥ r: the multiplier moves as u ← max(0, u + ρ (r − R)), it rises while R < r.

    The weight of the rate's gradient is 1 − u, which may be negative. Eq. 22 and 27 are printed with the opposite sign,
    which would move the rate away from its target. R is the mean over the batch; the step is weighted by the batch's
    sentences over those of an average batch, so that in the long run every sentence counts alike. The multiplier has an
    optimiser of its own: it is no parameter of the model, and the model's clipping does not see it. RMSprop divides
    the step by √v, v ← 0.99 v + 0.01 (r − R)².
    """

    paper = "paper 2 (minimum desired rate, Eq. 21; Eq. 22 and 27 with the sign corrected)"
    targets_rate = True
    whole_batch = "a minimum rate"

    class Options(PartOptions):
        target: float = Field(gt=0.0, description="Rate r in nats that the model is held above.")
        optimizer: Literal["sgd", "rmsprop"] = Field(
            "rmsprop", description="How the multiplier moves: sgd is the plain rule, rmsprop that of the released code."
        )
        learning_rate: float = Field(1e-3, gt=0.0, description="ρ, the multiplier's own learning rate.")
        initial: float = Field(
            1.01, ge=0.0, description="Multiplier u at the start (the released code's: the rate is nearly free)."
        )
        cap: float | None = Field(None, gt=0.0, description="Largest multiplier; none: no limit.")
        largest_slack: float | None = Field(
            None,
            gt=0.0,
            description="Largest |r − R| that moves the multiplier: against single batches of a huge rate, which throw "
            "it back or stall RMSprop for hundreds of steps; none: no limit, as in the paper.",
        )

        @model_validator(mode="after")
        def _below_cap(self) -> "MinimumRate.Options":
            if self.cap is not None and self.initial > self.cap:
                raise ValueError("the initial multiplier must not exceed the cap")
            return self

    AVERAGING, TINY = 0.99, 1e-8  # RMSprop's usual constants
    multiplier: Tensor
    mean_square: Tensor

    def __init__(self, options: Options, epoch_steps: float, total_steps: int) -> None:
        super().__init__(options, epoch_steps, total_steps)
        self.register_buffer("multiplier", torch.tensor(options.initial, dtype=torch.float64))
        self.register_buffer("mean_square", torch.tensor(0.0, dtype=torch.float64))
        self._slack: float | None = None  # r − R of the last batch
        self._weight = 1.0  # of the last batch

    def forward(self, rate: Rate, batch: Batch, step: int) -> Tensor:  # noqa: ARG002
        """Return this process's share of R + u (r − R)."""
        mean, u, target = share(rate.total, batch), float(self.multiplier), float(self.options.target)
        self._slack, self._weight = target - float(whole(mean, batch)), batch.weight
        return (1.0 - u) * mean + u * target / holders(batch)

    def scalars(self, step: int) -> dict[str, float]:  # noqa: ARG002
        """Return the effective weight 1 − u, the multiplier u and the slack r − R (positive: the rate is too small)."""
        u = float(self.multiplier)
        return {"beta": 1.0 - u, "multiplier": u, "slack": 0.0 if self._slack is None else self._slack}

    def after_update(self) -> None:
        """Move the multiplier by one step of its own optimiser."""
        if self._slack is None:
            return
        limit = self.options.largest_slack or math.inf
        ascent = self._weight * min(max(self._slack, -limit), limit)
        if self.options.optimizer == "rmsprop":
            self.mean_square.mul_(self.AVERAGING).add_((1.0 - self.AVERAGING) * ascent**2)
            ascent /= float(self.mean_square.sqrt()) + self.TINY
        self.multiplier.add_(self.options.learning_rate * ascent).clamp_(0.0, self.options.cap)


RATE_RULES: dict[str, type[RateRule]] = {
    "plain": Plain,
    "free_bits": FreeBits,
    "soft_free_bits": SoftFreeBits,
    "minimum_rate": MinimumRate,
}
