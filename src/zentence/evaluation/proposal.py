"""Where fresh codes for an importance-weighted bound are drawn, and how many: both are found by a pilot.

−log (1/K Σ_k p(x|z_k) p(z_k) / r(z_k)) bounds −log p(x) in expectation for codes z_k from *any* density r. The
posterior q of an encoder is seldom the best r: gradients of the log-weight at a few codes tell where p(z|x) lies beside
q, and how wide it is. The pilot's codes are thrown away: the bound comes from fresh ones, so that it holds.
"""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor

from zentence.distributions import DiagonalGaussian, as_components, rate
from zentence.evaluation.likelihood import Bounds, bounds, eos_of
from zentence.evaluation.policy import SamplePolicy
from zentence.model import LatentLM
from zentence.noise import Noise
from zentence.types import Batch, LatentDistribution, Tokens

PAIRS = 4  # of codes ± ε at which gradients are taken
FIRST = 16  # codes of the proposal by which the weights' spread is first judged
MISSED = 4.0  # a pilot of n codes misses the largest weights: its variance is taken as 1 + 4/n times what it finds
WORSE = 1.0  # nats by which an adapted posterior's −ELBO may exceed the posterior's; their noise is less
OTHER_PRIORS = (
    2.0  # tolerances that a sentence's bound under another prior may be off: codes are adapted to the model's
)
HOPELESS, FEW = 8.0, 32  # variance of log-weights beyond which a sentence gets few codes: e^8 / tolerance² would do
JUDGED = 8  # a pilot goes on until it has at least this part of the codes that it asks for
_TOKENS = 2048  # decoded at once with gradients
_MOST_CURVATURE = 0.5  # of log-weights in units of q's scale: p(z|x) is taken as at most √2 times as wide as q


class Pilot(NamedTuple):
    """What a pilot found about B sentences."""

    bounds: Bounds  # distortion, rate and −ELBO under q itself, from the pilot's codes
    density: LatentDistribution  # [B]: where fresh codes are drawn
    samples: Tensor  # [B] int64: how many
    adapted: Tensor  # [B] booleans: whether the density is not q
    drawn: int  # codes a sentence behind `bounds`

    def proposal(self, rows: Tensor) -> LatentDistribution:
        """Return the proposals of some sentences."""
        return as_components(self.density).rows(rows.to(self.density.center.device))


@torch.no_grad()
def explore(
    model: LatentLM,
    batch: Batch,
    q: LatentDistribution,
    noise: Noise,
    policy: SamplePolicy | None,
    priors: Mapping[str, LatentDistribution] | None = None,
) -> Pilot:
    """Choose proposals and numbers of codes for a batch; without a policy only q's own figures are wanted.

    Gaussian posteriors are adapted; flows, and models that average the states of several codes, are taken as they are.
    The numbers of codes are enough for bounds under `priors` too, at twice the tolerance.
    """
    if not isinstance(q, DiagonalGaussian) or model.averaged_codes > 1:
        found = bounds(model, batch, FIRST, noise.fork("plain"), q, keep_weights=True, priors=priors)
        samples = _needed(policy, found, FIRST)
        none = torch.zeros_like(samples, dtype=torch.bool)
        return Pilot(found, q, _judge(model, batch, q, noise, policy, samples, priors), none, FIRST)
    found, adapted = adapt(model, batch, q, noise)
    if policy is None:
        return Pilot(found, q, _needed(None, found, FIRST), torch.zeros_like(found.rate, dtype=torch.bool), 2 * PAIRS)
    first = bounds(model, batch, FIRST, noise.fork("adapted"), adapted, keep_weights=True, priors=priors)
    better = first.elbo <= found.elbo + WORSE  # else p(z|x) is far from Gaussian
    mean = torch.where(better[:, None], adapted.mean, q.mean)
    density = DiagonalGaussian(mean, torch.where(better[:, None], adapted.log_scale, q.log_scale))
    samples = _needed(policy, first, FIRST)
    samples[~better.cpu()] = policy.most  # to be judged
    return Pilot(found, density, _judge(model, batch, density, noise, policy, samples, priors), better, 2 * PAIRS)


def _judge(
    model: LatentLM,
    batch: Batch,
    density: LatentDistribution,
    noise: Noise,
    policy: SamplePolicy | None,
    samples: Tensor,
    priors: Mapping[str, LatentDistribution] | None,
) -> Tensor:
    """Return how many codes are needed, judged anew by larger pilots where the last was small beside its answer."""
    drawn = FIRST
    while policy is not None and 2 * drawn <= policy.most:
        rows = (samples > JUDGED * drawn).nonzero().squeeze(1)
        if not len(rows):
            break
        drawn *= 2
        where = rows.to(batch.index.device)
        draws = noise._replace(index=noise.index[where]).fork("pilot", drawn)
        proposal = as_components(density).rows(where)
        found = bounds(model, rows_of(batch, where), drawn, draws, proposal, keep_weights=True, priors=priors)
        samples[rows] = _needed(policy, found, drawn)
    return samples


def _needed(policy: SamplePolicy | None, found: Bounds, drawn: int) -> Tensor:
    """Return how many codes [B] the spread of a pilot's weights asks for; none without a policy.

    Log-normal weights need about e^s² codes, s² the variance of their logarithms, and a pilot far smaller than that
    does not see it in the weights themselves. Where no number that can be afforded would do, as for the narrow
    posteriors of an auto-encoder, the sentence gets few: its bound holds, and is loose either way.
    """
    if policy is None:
        return torch.zeros(len(found.rate), dtype=torch.int64)
    variance = _relative_variance(found.effective_samples, drawn)
    for other in found.under_priors.values():
        variance = torch.maximum(variance, _relative_variance(other.effective_samples, drawn) / OTHER_PRIORS**2)
    needed = policy.needed(variance)
    needed[found.log_weights.var(0) > HOPELESS] = FEW
    return needed


def _relative_variance(effective: Tensor, drawn: int) -> Tensor:
    """Return the variance of weights over their squared mean, from the effective number of so many."""
    return (drawn / effective - 1.0) * (drawn / (drawn - 1.0)) * (1.0 + MISSED / drawn)


def rows_of(batch: Batch, rows: Tensor) -> Batch:
    """Return some sentences of a batch."""
    source = Tokens(batch.source.ids[rows], batch.source.lengths[rows])
    target = Tokens(batch.target.ids[rows], batch.target.lengths[rows])
    return batch._replace(source=source, target=target, inputs=batch.inputs[rows], index=batch.index[rows], labels=None)


def adapt(model: LatentLM, batch: Batch, q: DiagonalGaussian, noise: Noise) -> tuple[Bounds, DiagonalGaussian]:
    """Return the figures of q from a few codes, and a Gaussian nearer to p(z|x).

    With z = mean + scale · ε the log-weight is log w = a + b·ε + ½ c ‖ε‖² where p(z|x) is Gaussian, and its gradient
    g = b + c ε. The mean of g over pairs ±ε is b; the slope of its odd part is c. The proposal then has mean
    b / (1 − c) and variance 1 / (1 − c) in units of q's.
    """
    B, T = batch.target.ids.shape
    step = max(1, _TOKENS // (2 * T))
    parts = []
    with _frozen(model):
        for first in range(0, B, step):
            rows = torch.arange(first, min(first + step, B), device=batch.index.device)
            parts.append(
                _adapt_rows(model, rows_of(batch, rows), q.rows(rows), noise._replace(index=noise.index[rows]))
            )
    log_weights, distortion, eos, shift, curvature = (torch.cat(column, dim=-1) for column in zip(*parts, strict=True))
    log_sum, log_squares = log_weights.logsumexp(0), (2.0 * log_weights).logsumexp(0)
    kl = rate(q, model.prior_density(), (q.mean[None], q.log_prob(q.mean[None])))
    total = kl.total.double() if kl.per_dimension is not None else -log_weights.mean(0) - distortion
    found = Bounds(
        distortion,
        total,
        math.log(2 * PAIRS) - log_sum,
        (2.0 * log_sum - log_squares).exp(),
        q.center,
        eos,
        kl.per_dimension,
        log_weights,
        {},
    )
    precision = (1.0 - curvature.clamp(-4.0, _MOST_CURVATURE)).to(q.mean)[:, None]
    mean = q.mean + q.scale * shift.t().to(q.mean) / precision
    return found, DiagonalGaussian(mean, q.log_scale - 0.5 * precision.log())


def _adapt_rows(
    model: LatentLM, batch: Batch, q: DiagonalGaussian, noise: Noise
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return log-weights [2P, B], distortion [B], that of `<eos>` [B], b as [D, B] and c as [B]."""
    half = noise.fork("adapt").normal(PAIRS, q.mean.shape[1], q.mean.dtype)
    prior = model.prior_density()
    log_weights, distortion, eos = [], [], []
    shift = torch.zeros_like(q.mean)
    along, squares = torch.zeros_like(q.mean[:, 0]), half.square().sum((0, 2))
    for pair in half:
        with torch.enable_grad():
            epsilon = torch.stack((pair, -pair)).requires_grad_()
            z = q.mean + q.scale * epsilon
            tokens = model.token_log_prob(z, batch).double()
            log_q = -0.5 * epsilon.square().sum(-1) + q.log_prob(q.mean[None])
            log_weight = tokens.sum(-1) + (prior.log_prob(z) - log_q).double()
            (gradient,) = torch.autograd.grad(log_weight.sum(), epsilon)
        shift += gradient.mean(0) / PAIRS
        along += (0.5 * (gradient[0] - gradient[1]) * pair).sum(-1)
        log_weights.append(log_weight.detach())
        distortion.append(-tokens.detach().sum(-1).mean(0))
        eos.append(-eos_of(tokens.detach(), batch).mean(0))
    means = torch.stack(distortion).mean(0), torch.stack(eos).mean(0)
    return torch.cat(log_weights), *means, shift.t(), along / squares


@contextmanager
def _frozen(model: LatentLM) -> Iterator[None]:
    """Let gradients reach codes but no weights, and recurrences run without cuDNN, which has none in evaluation."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    try:
        for parameter in trained:
            parameter.requires_grad_(False)
        with torch.backends.cudnn.flags(enabled=False):
            yield
    finally:
        for parameter in trained:
            parameter.requires_grad_(True)
