"""What the code knows: mutual information and active units."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from zentence.distributions import as_components, codes_at_once, pairwise_log_prob
from zentence.types import LatentDistribution

ACTIVE_VARIANCE = 0.01


class Information(NamedTuple):
    """Mutual information of sentence and code under the aggregate posterior of M sentences, nats."""

    value: float
    standard_error: float | None
    ceiling: float  # log M: no estimate from M sentences can exceed it
    saturated: bool  # within 5 % of the ceiling: the true value may be larger


@torch.no_grad()
def mutual_information(q: LatentDistribution, z: Tensor, log_q: Tensor, chunk: int = 512) -> Information:
    """Return E[log q(z|x) − log q(z)], q(z) the aggregate of the same M sentences; z [M, D], log_q [M], one each."""
    M, rows = z.shape[0], as_components(q)
    chunk = min(chunk, codes_at_once(rows))
    parts = [
        log_q[first : first + chunk] - (pairwise_log_prob(rows, z[first : first + chunk]).logsumexp(1) - math.log(M))
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
