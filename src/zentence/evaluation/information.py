"""What the code knows, and whether the decoder uses it: information, units, entropy, shuffled codes."""

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from zentence.distributions import DiagonalGaussian, as_components, codes_at_once, pairwise_log_prob
from zentence.errors import NotInvertibleError
from zentence.model import LatentLM
from zentence.noise import Noise, derive_key
from zentence.types import LatentDistribution

ACTIVE_VARIANCE = 0.01
FLOW_SENTENCES = 500  # for the information of flows, whose densities at all pairs of codes and sentences cost much
NEIGHBOUR = 5  # k of the nearest-neighbour entropy
PAIRS = 2**18  # of codes whose densities or distances are held at once: memory does not grow with their number
ENTROPY_SENTENCES = 10_000  # most codes for the entropy: its cost is quadratic


class Information(NamedTuple):
    """Mutual information of sentence and code under the aggregate posterior of M sentences, nats."""

    value: float
    standard_error: float | None
    ceiling: float  # log M: no estimate from M sentences can exceed it
    saturated: bool  # within 5 % of the ceiling: the true value may be larger
    upper: float | None  # an upper bound in expectation of the information under the sentences' source
    values: Tensor  # [M] float64, whose mean is the value


@torch.no_grad()
def mutual_information(q: LatentDistribution, z: Tensor, log_q: Tensor, chunk: int = 512) -> Information:
    """Return E[log q(z|x) − log q(z)], q(z) the aggregate of the same M sentences; z [M, D], log_q [M], one each.

    Read as a statement about the *source* of the sentences, of which they are a sample, that figure is a lower bound in
    expectation, never above log M: the contrastive bound of van den Oord et al. (2018) with the critic log q(z|x).
    Leaving the sentence itself out of q(z) gives an upper bound in expectation (Poole et al., 2019).
    """
    M, rows = z.shape[0], as_components(q)
    chunk = max(1, min(chunk, codes_at_once(rows), PAIRS // M))
    # filled in place: small results kept between large blocks would hinder the allocator from using those again
    inside, outside = torch.empty(2, M, dtype=torch.float64, device=z.device)
    for first in range(0, M, chunk):
        part = slice(first, min(first + chunk, M))
        densities = pairwise_log_prob(rows, z[part])  # [n, M]
        # a sentence's own density is one of those summed: log M is the most, and only rounding passes it
        inside[part] = (log_q[part] - (densities.logsumexp(1) - math.log(M))).clamp(max=math.log(M))
        own = torch.arange(part.start, part.stop, device=z.device)
        densities[own - part.start, own] = -math.inf
        outside[part] = log_q[part] - (densities.logsumexp(1) - math.log(max(1, M - 1)))
    ceiling, value, upper = math.log(M), float(inside.mean()), float(outside.mean())
    error = float(inside.std() / math.sqrt(M)) if M > 1 else None
    return Information(value, error, ceiling, value > 0.95 * ceiling, upper if math.isfinite(upper) else None, inside)


@torch.no_grad()
def estimate_information(model: LatentLM, features: Tensor, seed: int) -> tuple[Information, int] | None:
    """Return the mutual information under the aggregate posterior of sentences with features [M, H], and M.

    None if there are fewer than two, or if the posterior does not know its density at other sentences' codes. Of flows
    the first 500 sentences are taken.
    """
    q = model.posterior(features)
    if not isinstance(q, DiagonalGaussian):
        features = features[:FLOW_SENTENCES]
        q = model.posterior(features)
    M = features.shape[0]
    if M < 2:
        return None
    z, log_q = draw_codes(q, M, seed)
    try:
        return mutual_information(q, z[0], log_q[0]), M
    except NotInvertibleError:
        return None


def draw_codes(q: LatentDistribution, count: int, seed: int, each: int = 1) -> tuple[Tensor, Tensor]:
    """Return codes [S, M, D] of the first M sentences, and log q at them [S, M]."""
    index = torch.arange(count, device=q.center.device)
    return q.rsample_and_log_prob(each, Noise(derive_key(seed, "information"), index))


def active_units(centers: Tensor, threshold: float = ACTIVE_VARIANCE) -> tuple[int, Tensor]:
    """Return how many dimensions have Var_x(E_q[z]) > threshold, and those variances [D], for centers [M, D]."""
    if centers.shape[0] < 2:
        return 0, torch.zeros(centers.shape[1])
    variances = centers.double().var(0)
    return int((variances > threshold).sum()), variances


def derangement(count: int, seed: int) -> np.ndarray:
    """Return a permutation of `count` ≥ 2 sentences that leaves none in its place: one cycle, drawn evenly."""
    order = np.random.default_rng(derive_key(seed, "shuffled codes")).permutation(count)
    result = np.empty(count, dtype=np.int64)
    result[order] = np.roll(order, 1)
    return result


def neighbour_entropy(codes: Tensor, k: int = NEIGHBOUR, chunk: int = 512) -> tuple[float, float | None]:
    """Return the entropy of the density of codes [N, D] in nats, and its standard error; −∞ where codes coincide.

    Kozachenko & Leonenko's estimator (as in Kraskov et al., 2004, Eq. 20): ψ(N) − ψ(k) + log V_D + D ⟨log ε⟩, ε the
    distance of a code to its k-th neighbour and V_D the volume of the unit ball. In many dimensions it is biased
    (the ball is wider than the density is even): compare figures of the same N, D and k only.
    """
    N, D = codes.shape
    if k >= N:
        raise ValueError(f"{N} codes have no {k}-th neighbours")
    codes = codes.double() - codes.double().mean(0)
    found = torch.empty(N, dtype=torch.float64, device=codes.device)
    chunk = max(1, min(chunk, PAIRS // N))
    for first in range(0, N, chunk):
        among = torch.cdist(codes[first : first + chunk], codes, compute_mode="use_mm_for_euclid_dist")
        found[first : first + chunk] = among.kthvalue(k + 1, dim=1).values  # the nearest is the code itself
    precise = 1e-6 * codes.square().sum(1).mean().sqrt()  # products of float64 do not tell smaller distances from none
    if bool((found <= precise).any()):
        return -math.inf, None
    logs = found.log()
    ball = 0.5 * D * math.log(math.pi) - math.lgamma(0.5 * D + 1.0)
    numbers = torch.digamma(torch.tensor([float(N), float(k)], dtype=torch.float64))
    value = float(numbers[0] - numbers[1]) + ball + D * float(logs.mean())
    return value, D * float(logs.std()) / math.sqrt(N)
