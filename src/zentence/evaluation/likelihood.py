"""Bounds on log p(x), in nats per sentence."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from zentence.distributions import rate
from zentence.model import LatentLM
from zentence.noise import Noise
from zentence.types import Batch, LatentDistribution

TOKEN_SAMPLES = 8192  # token × sample pairs decoded at once: memory does not depend on K


class Bounds(NamedTuple):
    """Per-sentence figures [B] in float64, nats."""

    distortion: Tensor
    rate: Tensor  # of one code, also where a model averages the hidden states of several
    importance_weighted: Tensor  # −log (1/K Σ_k p(x|z_k) p(z_k) / q(z_k|x)), an upper bound of −log p(x) in expectation
    effective_samples: Tensor  # (Σ w)² / Σ w²
    center: Tensor  # [B, D] float32

    @property
    def elbo(self) -> Tensor:
        """−ELBO = distortion + rate; no bound for a model with averaged codes, as it charges one of them."""
        return self.distortion + self.rate


@torch.no_grad()
def exact_nll(model: LatentLM, batch: Batch) -> Tensor:
    """Return −log p(x) [B] of a language model."""
    return -model.token_log_prob(None, batch).squeeze(0).double().sum(-1)


@torch.no_grad()
def bounds(
    model: LatentLM, batch: Batch, num_samples: int, noise: Noise, q: LatentDistribution | None = None
) -> Bounds:
    """Return ELBO and importance-weighted bounds from the same K samples, in chunks whose memory does not grow with K.

    The rate is in closed form where there is one, else the mean over the same samples. `q` may be given if it is known.
    A model that averages the hidden states of L codes gets K groups of L; the weights charge all L codes:
    w = p(x|z_1 … z_L) Π_l p(z_l) / q(z_l|x), while the rate, as published (paper 3), is that of one.
    """
    q = q or model.infer(batch.source)
    p = model.prior_density()
    B, T = batch.target.ids.shape
    L = model.averaged_codes
    chunk = max(1, min(num_samples, TOKEN_SAMPLES // max(1, B * T * L)))
    log_sum = torch.full((B,), -math.inf, dtype=torch.float64, device=batch.index.device)
    log_sum_squares = log_sum.clone()
    distortion = torch.zeros_like(log_sum)
    sampled_rate = torch.zeros_like(log_sum)
    for first in range(0, num_samples, chunk):
        count = min(chunk, num_samples - first)
        z, log_q = q.rsample_and_log_prob(count * L, noise.from_sample(first * L))
        log_ratio = (log_q.double() - p.log_prob(z).double()).view(count, L, B).sum(1)  # [S, B]
        log_likelihood = model.token_log_prob(z, batch).double().sum(-1)
        log_weight = log_likelihood - log_ratio
        log_sum = torch.logaddexp(log_sum, log_weight.logsumexp(0))
        log_sum_squares = torch.logaddexp(log_sum_squares, (2.0 * log_weight).logsumexp(0))
        distortion -= log_likelihood.sum(0)
        sampled_rate += log_ratio.sum(0)
    closed = rate(q, p, (z, log_q))
    true_rate = closed.total.double() if closed.per_dimension is not None else sampled_rate / (num_samples * L)
    return Bounds(
        distortion / num_samples,
        true_rate,
        math.log(num_samples) - log_sum,
        (2.0 * log_sum - log_sum_squares).exp(),
        q.center,
    )
