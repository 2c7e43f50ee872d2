"""Densities over codes that several rooms need, and the rate between two of them."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from zentence.errors import ZentenceError
from zentence.noise import Noise
from zentence.types import LatentDistribution

LOG_2_PI = math.log(2.0 * math.pi)


class DiagonalGaussian:
    """N(mean, diag(exp(log_scale)²)), mean and log_scale [B, D]."""

    def __init__(self, mean: Tensor, log_scale: Tensor) -> None:
        self.mean = mean
        self.log_scale = log_scale

    @property
    def center(self) -> Tensor:
        """E[z], [B, D]."""
        return self.mean

    @property
    def scale(self) -> Tensor:
        """Standard deviations, [B, D]."""
        return self.log_scale.exp()

    def rsample_and_log_prob(self, num_samples: int, noise: Noise | None = None) -> tuple[Tensor, Tensor]:
        """Return reparameterised codes [S, B, D] and log q at them [S, B]."""
        B, D = self.mean.shape
        if noise is None:
            epsilon = torch.randn(num_samples, B, D, dtype=self.mean.dtype, device=self.mean.device)
        else:
            epsilon = noise.normal(num_samples, D, self.mean.dtype)
        z = self.mean + self.scale * epsilon
        log_q = -0.5 * (epsilon.square() + LOG_2_PI).sum(-1) - self.log_scale.sum(-1)
        return z, log_q

    def log_prob(self, z: Tensor) -> Tensor:
        """Return log-densities [S, B] of codes [S, B, D]."""
        standard = (z - self.mean) * (-self.log_scale).exp()
        return -0.5 * (standard.square() + LOG_2_PI).sum(-1) - self.log_scale.sum(-1)


class Rate(NamedTuple):
    """KL(q‖p) in nats: per sentence, and per dimension where a closed form exists."""

    total: Tensor  # [B]
    per_dimension: Tensor | None  # [B, D]


def gaussian_kl(q: DiagonalGaussian, p: DiagonalGaussian) -> Tensor:
    """Return KL per sentence and dimension [B, D] in closed form."""
    log_ratio = q.log_scale - p.log_scale
    shift = (q.mean - p.mean) * (-p.log_scale).exp()
    return 0.5 * ((2.0 * log_ratio).exp() + shift.square() - 1.0) - log_ratio


def has_closed_form_rate(q: LatentDistribution, p: LatentDistribution) -> bool:
    """Say whether KL(q‖p) is known per dimension."""
    return isinstance(q, DiagonalGaussian) and isinstance(p, DiagonalGaussian)


def rate(q: LatentDistribution, p: LatentDistribution, drawn: tuple[Tensor, Tensor] | None = None) -> Rate:
    """Return KL(q‖p): in closed form for two diagonal Gaussians, else by Monte Carlo from `drawn` = (z, log q(z))."""
    if isinstance(q, DiagonalGaussian) and isinstance(p, DiagonalGaussian):
        per_dimension = gaussian_kl(q, p)
        return Rate(per_dimension.sum(-1), per_dimension)
    if drawn is None:
        raise ZentenceError("this pair of posterior and prior has no closed-form rate: draw samples and pass them")
    z, log_q = drawn
    return Rate((log_q - p.log_prob(z)).mean(0), None)
