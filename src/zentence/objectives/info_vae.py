"""InfoVAE: the bound, and a distance between the aggregate posterior and the prior."""

from collections.abc import Callable
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor

from zentence.noise import Noise
from zentence.objectives.base import equal_share, gather_rows
from zentence.objectives.elbo import Elbo
from zentence.schedules import ScheduleSpec, build_schedule
from zentence.types import Batch, LatentDistribution

Kernel = Callable[[Tensor], Tensor]  # of squared distances


def rbf(scale: float) -> Kernel:
    """Return k(d²) = exp(−d² / scale)."""
    return lambda squares: (-squares / scale).exp()


def inverse_multiquadratic(scale: float) -> Kernel:
    """Return k(d²) = C / (C + d²) with C = 2 · scale (Tolstikhin et al., 2018)."""
    return lambda squares: 2.0 * scale / (2.0 * scale + squares)


def squared_distances(a: Tensor, b: Tensor) -> Tensor:
    """Return ‖a_i − b_j‖² as [N, M] for a [N, D] and b [M, D]."""
    squares = a.square().sum(1)[:, None] + b.square().sum(1) - 2.0 * (a @ b.t())
    return squares.clamp(min=0.0)


def mmd_squared(x: Tensor, y: Tensor, kernel: Kernel) -> Tensor:
    """Return the unbiased estimate of MMD² between the sources of x [N, D] and y [M, D]; it may be negative.

    1/(N(N−1)) Σ_{i≠j} k(x_i, x_j) + 1/(M(M−1)) Σ_{i≠j} k(y_i, y_j) − 2/(NM) Σ_{ij} k(x_i, y_j)
    (Gretton et al., 2012, Eq. 3).
    """
    N, M = x.shape[0], y.shape[0]
    within_x, within_y = kernel(squared_distances(x, x)), kernel(squared_distances(y, y))
    between = kernel(squared_distances(x, y)).mean()
    pairs_x = (within_x.sum() - within_x.diagonal().sum()) / (N * (N - 1))
    pairs_y = (within_y.sum() - within_y.diagonal().sum()) / (M * (M - 1))
    return pairs_x + pairs_y - 2.0 * between


class InfoVae(Elbo):
    """D + β R + λ · MMD²(q(z), p(z)): q(z) by one code a sentence of the whole batch, p(z) by as many draws.

    β (or any other charge for the rate) is set in the rate rule.
    """

    paper = "paper 2 (InfoVAE, β 0.7, λ 31.6); Zhao et al. (2018)"

    class Options(Elbo.Options):
        mmd_weight: ScheduleSpec = Field(31.623, description="λ, a number or a schedule.")
        mmd_scale: float = Field(
            1.0, gt=0.0, description="A further factor of MMD²; the released code of paper 2 has 10,000."
        )
        kernel: Literal["rbf", "inverse_multiquadratic"] = Field(
            "rbf", description="k = exp(−d²/s), or k = 2 s / (2 s + d²), s = kernel_scale · D."
        )
        kernel_scale: float = Field(1.0, gt=0.0, description="Scale of the kernel over the dimensions D of the code.")

    def __init__(self, options: Any, epoch_steps: float, total_steps: int) -> None:
        super().__init__(options, epoch_steps, total_steps)
        self.whole_batch = "MMD"
        self.mmd_weight = build_schedule("objective.mmd_weight", options.mmd_weight, epoch_steps, total_steps)

    def further(
        self, codes: Tensor, p: LatentDistribution, batch: Batch, step: int, noise: Noise
    ) -> tuple[Tensor, dict[str, float]]:
        """Return this process's share of λ · MMD², and MMD² without λ for the log; 0 for a batch of one sentence.

        Every process computes the value from all codes, with the gradient of its own codes, which is its part of the
        whole gradient; of the value it returns an equal share.
        """
        if batch.global_size < 2:
            return codes.new_zeros(()), {}
        scale = self.options.kernel_scale * codes.shape[1]
        kernel = rbf(scale) if self.options.kernel == "rbf" else inverse_multiquadratic(scale)
        drawn = p.rsample_and_log_prob(1, noise.fork("draws from the prior"))[0][0]  # [B, D]
        with torch.autocast(codes.device.type, enabled=False):
            dtype = torch.promote_types(codes.dtype, torch.float32)
            x, y = gather_rows(codes.to(dtype), batch), gather_rows(drawn.to(dtype), batch)
            found = mmd_squared(x, y, kernel)
        weight = self.mmd_weight(step) * self.options.mmd_scale
        return weight * equal_share(found, batch), {"mmd": float(found.detach())}
