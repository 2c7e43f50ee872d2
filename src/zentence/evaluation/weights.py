"""What importance weights tell about their own estimate: tail index, and the bound that fewer of them would give."""

import math

import numpy as np
import torch
from torch import Tensor

UNRELIABLE = 0.7  # Pareto k̂ above which the mean of weights converges too slowly to be trusted
_MIN_TAIL = 5  # largest weights without which no tail is fitted


def pareto_tail(log_weights: Tensor) -> Tensor:
    """Return k̂ [B] of generalised Pareto tails of weights [K, B], as in Pareto smoothed importance sampling.

    The min(K/5, 3√K) largest weights of each sentence are fitted by Zhang & Stephens' (2009) estimator, shrunk towards
    ½ by ten pseudo-observations (Vehtari et al., 2024, §3.1, appendix C). NaN where K < 25: no tail to fit. A sentence
    whose largest weights are equal has k̂ = −∞ in the limit and gets the shrunk estimate of a bounded tail.
    """
    K, B = log_weights.shape
    count = int(min(K / 5.0, 3.0 * math.sqrt(K)))
    if count < _MIN_TAIL:
        return torch.full((B,), math.nan, dtype=torch.float64)
    largest = log_weights.double().topk(count + 1, dim=0).values  # [M + 1, B], from the largest down
    scaled = (largest - largest[:1]).exp()
    excess = (scaled[:-1] - scaled[-1:]).flip(0)  # [M, B], from the smallest up
    return torch.from_numpy(_generalised_pareto(excess.cpu().numpy()))


def _generalised_pareto(excess: np.ndarray) -> np.ndarray:
    """Return the shape k [B] of excesses [M, B], sorted upwards: a posterior mean over a grid of profile likelihoods.

    Zhang & Stephens (2009), Technometrics 51(3), with k = −(their κ).
    """
    M = excess.shape[0]
    excess = np.maximum(excess, 1e-300)
    grid = np.arange(1, 30 + int(math.sqrt(M)) + 1)
    quarter = excess[max(0, int(M / 4 + 0.5) - 1)]  # [B] the first quartile
    spread = 1.0 - np.sqrt(len(grid) / (grid - 0.5))  # [G]
    theta = 1.0 / excess[-1] + spread[:, None] / (3.0 * quarter)  # [G, B]
    shape = np.stack([np.log1p(-row * excess).mean(0) for row in theta])  # [G, B]
    with np.errstate(divide="ignore", invalid="ignore"):
        profile = M * (np.log(-theta / shape) - shape - 1.0)
    profile = np.where(np.isfinite(profile), profile, -np.inf)
    weight = np.exp(profile - profile.max(0))
    best = (theta * weight).sum(0) / weight.sum(0)
    found = np.log1p(-best * excess).mean(0)
    result: np.ndarray = (found * M + 0.5 * 10.0) / (M + 10.0)
    return result


def curve_points(largest: int) -> list[int]:
    """Return 1, 2, 5, 10, 20, 50 … below `largest`, and `largest`."""
    points = [step * 10**power for power in range(len(str(largest))) for step in (1, 2, 5)]
    return [point for point in points if point < largest] + [largest]


def expected_bounds(log_weights: Tensor, points: list[int]) -> Tensor:
    """Return the importance-weighted bound −log mean w expected of k codes [len(points), B], from weights [K, B].

    For each k the draws are cut into ⌊K/k⌋ blocks of k that share no draw; the mean of the blocks' bounds has the
    expectation of one, without bias. Where k > K the bound of all K draws stands.
    """
    K = log_weights.shape[0]
    rows = []
    for point in points:
        size = min(point, K)
        blocks = log_weights[: K // size * size].view(K // size, size, -1)
        rows.append((math.log(size) - blocks.logsumexp(1)).mean(0))
    return torch.stack(rows)
