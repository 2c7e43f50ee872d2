"""What the code knows: mutual information and active units."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from zentence.distributions import LOG_2_PI, DiagonalGaussian
from zentence.types import LatentDistribution

ACTIVE_VARIANCE = 0.01


class Information(NamedTuple):
    """Mutual information of sentence and code under the aggregate posterior of M sentences, nats."""

    value: float
    standard_error: float | None
    ceiling: float  # log M: no estimate from M sentences can exceed it
    saturated: bool  # within 5 % of the ceiling: the true value may be larger


def pairwise_log_prob(q: LatentDistribution, z: Tensor) -> Tensor:
    """Return log q(z_i | x_j) as [I, J] for codes [I, D] and a posterior over J sentences."""
    if isinstance(q, DiagonalGaussian):
        # expand the square, so that the sum over dimensions is two matrix products
        # (in float64: the terms of the square nearly cancel where scales are small)
        mean, log_scale, z = q.mean.double(), q.log_scale.double(), z.double()
        precision = (-2.0 * log_scale).exp()  # [J, D]
        weighted_mean = mean * precision
        constant = (mean * weighted_mean + 2.0 * log_scale + LOG_2_PI).sum(-1)  # [J]
        return -0.5 * (z.square() @ precision.t() - 2.0 * (z @ weighted_mean.t()) + constant)
    J = q.center.shape[0]
    return torch.stack([q.log_prob(row.expand(1, J, -1)).squeeze(0) for row in z])


@torch.no_grad()
def mutual_information(q: LatentDistribution, z: Tensor, log_q: Tensor, chunk: int = 512) -> Information:
    """Return E[log q(z|x) − log q(z)], q(z) the aggregate of the same M sentences; z [M, D], log_q [M], one each."""
    M = z.shape[0]
    parts = [
        log_q[first : first + chunk] - (pairwise_log_prob(q, z[first : first + chunk]).logsumexp(1) - math.log(M))
        for first in range(0, M, chunk)
    ]
    values = torch.cat(parts).double()
    ceiling = math.log(M)
    error = float(values.std() / math.sqrt(M)) if M > 1 else None
    value = float(values.mean())
    return Information(value, error, ceiling, value > 0.95 * ceiling)


def active_units(centers: Tensor, threshold: float = ACTIVE_VARIANCE) -> tuple[int, Tensor]:
    """Return how many dimensions have Var_x(E_q[z]) > threshold, and those variances [D], for centers [M, D]."""
    if centers.shape[0] < 2:
        return 0, torch.zeros(centers.shape[1])
    variances = centers.double().var(0)
    return int((variances > threshold).sum()), variances
