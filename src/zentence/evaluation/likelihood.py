"""Bounds on log p(x), in nats per sentence."""

import math
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from zentence.distributions import rate
from zentence.model import LatentLM
from zentence.noise import Noise
from zentence.types import Batch, LatentDistribution

TOKEN_SAMPLES = 8192  # token × sample pairs decoded at once: memory does not depend on K


class Weighted(NamedTuple):
    """What importance weights come to, [B] in float64."""

    bound: Tensor  # −log mean w, nats
    effective_samples: Tensor  # (Σ w)² / Σ w²


class Bounds(NamedTuple):
    """Per-sentence figures [B] in float64, nats."""

    distortion: Tensor
    rate: Tensor  # of one code, also where a model averages the hidden states of several
    importance_weighted: Tensor  # −log (1/K Σ_k p(x|z_k) p(z_k) / q(z_k|x)), an upper bound of −log p(x) in expectation
    effective_samples: Tensor  # (Σ w)² / Σ w²
    center: Tensor  # [B, D] float32
    eos: Tensor  # the part of the distortion that `<eos>` costs
    per_dimension: Tensor | None  # [B, D]: the rate's parts, where it has a closed form
    log_weights: Tensor  # [K, B], or [0, B] unless they are asked for
    under_priors: dict[str, "Weighted"]  # with other priors in the place of the model's

    @property
    def elbo(self) -> Tensor:
        """−ELBO = distortion + rate; no bound for a model with averaged codes, as it charges one of them."""
        return self.distortion + self.rate


def eos_of(token_log_prob: Tensor, batch: Batch) -> Tensor:
    """Return log p(`<eos>` | words, z) [S, B] out of [S, B, T]: the last token of each sentence."""
    last = (batch.target.lengths - 1).view(1, -1, 1).expand(token_log_prob.shape[0], -1, 1)
    return token_log_prob.gather(2, last).squeeze(2)


@torch.no_grad()
def exact_nll(model: LatentLM, batch: Batch) -> Tensor:
    """Return −log p(x) [B] of a language model."""
    return -model.token_log_prob(None, batch).squeeze(0).double().sum(-1)


@torch.no_grad()
def bounds(
    model: LatentLM,
    batch: Batch,
    num_samples: int,
    noise: Noise,
    q: LatentDistribution | None = None,
    *,
    keep_weights: bool = False,
    priors: Mapping[str, LatentDistribution] | None = None,
) -> Bounds:
    """Return ELBO and importance-weighted bounds from the same K samples, in chunks whose memory does not grow with K.

    The rate is in closed form where there is one, else the mean over the same samples. `q` may be given if it is known;
    any other density in its place gives an importance-weighted bound too. `priors` are further densities of codes.
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
    distortion, eos = torch.zeros_like(log_sum), torch.zeros_like(log_sum)
    sampled_rate = torch.zeros_like(log_sum)
    kept = torch.empty(num_samples if keep_weights else 0, B, dtype=torch.float64)
    under = {name: (log_sum.clone(), log_sum.clone()) for name in priors or {}}
    for first in range(0, num_samples, chunk):
        count = min(chunk, num_samples - first)
        z, log_q = q.rsample_and_log_prob(count * L, noise.from_sample(first * L))
        log_ratio = (log_q.double() - p.log_prob(z).double()).view(count, L, B).sum(1)  # [S, B]
        tokens = model.token_log_prob(z, batch).double()
        log_likelihood = tokens.sum(-1)
        log_weight = log_likelihood - log_ratio
        log_sum, log_sum_squares = _add((log_sum, log_sum_squares), log_weight)
        distortion -= log_likelihood.sum(0)
        eos -= eos_of(tokens, batch).sum(0)
        sampled_rate += log_ratio.sum(0)
        if keep_weights:
            kept[first : first + count] = log_weight
        for name, density in (priors or {}).items():
            swapped = (log_q.double() - density.log_prob(z).double()).view(count, L, B).sum(1)
            under[name] = _add(under[name], log_likelihood - swapped)
    closed = rate(q, p, (z, log_q))
    true_rate = closed.total.double() if closed.per_dimension is not None else sampled_rate / (num_samples * L)
    return Bounds(
        distortion / num_samples,
        true_rate,
        math.log(num_samples) - log_sum,
        (2.0 * log_sum - log_sum_squares).exp(),
        q.center,
        eos / num_samples,
        closed.per_dimension,
        kept,
        {name: Weighted(math.log(num_samples) - w, (2.0 * w - squares).exp()) for name, (w, squares) in under.items()},
    )


def _add(sums: tuple[Tensor, Tensor], log_weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return log Σ w and log Σ w² [B] with further weights [S, B]."""
    return torch.logaddexp(sums[0], log_weight.logsumexp(0)), torch.logaddexp(sums[1], (2.0 * log_weight).logsumexp(0))
