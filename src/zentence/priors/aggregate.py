"""Priors that are made after training: the aggregate posterior, and a mixture fitted to codes.

They need sentences, so no name in a table makes them from options. One is put in the place of a model's prior by
`model.prior = FixedPrior(density)`, for evaluation or sampling. Both must come from *training* sentences: a prior made
of the sentences that it is tested on measures memory.
"""

import math

import torch
from torch import Tensor, nn

from zentence.distributions import DiagonalGaussian, Mixture, as_components, codes_at_once, pairwise_log_prob
from zentence.errors import ZentenceError
from zentence.types import InferEmbedded, LatentDistribution

MIN_VARIANCE = 1e-3  # smallest variance of a fitted component, over that of all codes in the same dimension


class FixedPrior(nn.Module):
    """A given density as a prior, [1, D].

    A mixture of Gaussians is held in buffers: it follows the model to a device or a precision, and can be saved. Any
    other density stays as it is.
    """

    means: Tensor
    log_scales: Tensor
    log_weights: Tensor | None

    def __init__(self, density: LatentDistribution) -> None:
        super().__init__()
        self.density: LatentDistribution | None = density
        if isinstance(density, Mixture) and isinstance(density.components, DiagonalGaussian):
            self.density = None
            self.register_buffer("means", density.components.mean.detach().clone())
            self.register_buffer("log_scales", density.components.log_scale.detach().clone())
            weights = density.log_weights
            self.register_buffer("log_weights", None if weights is None else weights.detach().clone())

    def reset_parameters(self) -> None:
        """Nothing to draw."""

    def forward(self, infer_embedded: InferEmbedded | None = None) -> LatentDistribution:  # noqa: ARG002
        """Return the density; it broadcasts over sentences."""
        if self.density is not None:
            return self.density
        return Mixture(DiagonalGaussian(self.means, self.log_scales), self.log_weights)


def aggregate_posterior(q: LatentDistribution) -> Mixture:
    """Return q(z) = 1/N Σ_n q(z|x_n) for the posterior of N sentences, e.g. `model.posterior(features [N, H])`.

    For a fixed posterior it is the prior with the best ELBO on those sentences (paper 2, §5). Densities cost N
    evaluations a code; with a planar flow they raise NotInvertibleError.
    """
    return Mixture(as_components(q))


@torch.no_grad()
def fit_mixture(
    codes: Tensor, components: int, seed: int = 0, *, iterations: int = 200, tolerance: float = 1e-5
) -> Mixture:
    """Fit K weighted diagonal Gaussians to codes [N, D] by expectation-maximisation, in float64.

    It starts from k-means++ centres, which depend on the seed, and ends when the mean log-likelihood rises by less
    than `tolerance` nats a code. Variances stay above a thousandth of the codes' own.
    """
    if codes.dim() != 2 or not 1 <= components <= codes.shape[0]:
        raise ZentenceError(f"Cannot fit {components} components to codes of shape {list(codes.shape)}")
    if not bool(torch.isfinite(codes).all()):
        raise ZentenceError("Cannot fit a mixture: codes must be finite numbers")
    offset = codes.double().mean(0)
    x = codes.double() - offset
    floor = MIN_VARIANCE * x.square().mean(0).clamp(min=1e-12)
    nearest = torch.cdist(x, _scattered_centers(x, components, seed)).argmin(1)
    moments = _moments_of(x, nn.functional.one_hot(nearest, components).double())
    gaussians, log_weights = _maximise(moments, floor)
    before = -math.inf
    for _ in range(iterations):
        moments, log_likelihood = _expect(x, gaussians, log_weights)
        if log_likelihood - before < tolerance:
            break
        before = log_likelihood
        gaussians, log_weights = _maximise(moments, floor)
    mean, log_scale = (gaussians.mean + offset).to(codes.dtype), gaussians.log_scale.to(codes.dtype)
    return Mixture(DiagonalGaussian(mean, log_scale), log_weights.to(codes.dtype))


def _scattered_centers(x: Tensor, count: int, seed: int) -> Tensor:
    """Return k-means++ centres [K, D]: each a code drawn in proportion to its squared distance from those before."""
    generator = torch.Generator(x.device).manual_seed(seed)
    chosen = [int(torch.randint(x.shape[0], (1,), generator=generator, device=x.device))]
    distance = (x - x[chosen[0]]).square().sum(1)
    for _ in range(count - 1):
        chances = distance if bool(distance.sum() > 0.0) else torch.ones_like(distance)
        chosen.append(int(torch.multinomial(chances, 1, generator=generator)))
        distance = torch.minimum(distance, (x - x[chosen[-1]]).square().sum(1))
    return x[chosen]


def _moments_of(x: Tensor, shares: Tensor) -> Tensor:
    """Return Σ_n r_nk (1, x_n, x_n²) as [K, 1 + 2 D] for the components' shares r [N, K] of codes [N, D]."""
    return shares.t() @ torch.cat((torch.ones_like(x[:, :1]), x, x.square()), dim=1)


def _expect(x: Tensor, gaussians: DiagonalGaussian, log_weights: Tensor) -> tuple[Tensor, float]:
    """Return the moments under the components' shares of codes [N, D], and the mean log-likelihood in nats."""
    D = x.shape[1]
    moments = torch.zeros(gaussians.count, 1 + 2 * D, dtype=x.dtype, device=x.device)
    log_likelihood = 0.0
    chunk = codes_at_once(gaussians)
    for first in range(0, x.shape[0], chunk):
        part = x[first : first + chunk]
        scores = pairwise_log_prob(gaussians, part) + log_weights  # [n, K]
        evidence = scores.logsumexp(1)
        moments += _moments_of(part, (scores - evidence[:, None]).exp())
        log_likelihood += float(evidence.sum())
    return moments, log_likelihood / x.shape[0]


def _maximise(moments: Tensor, floor: Tensor) -> tuple[DiagonalGaussian, Tensor]:
    """Return the most likely Gaussians and log-weights [K] for these moments."""
    D = floor.shape[0]
    counts = moments[:, :1].clamp(min=1e-10)  # a component without codes keeps a finite log-weight
    mean = moments[:, 1 : 1 + D] / counts
    variance = torch.maximum(moments[:, 1 + D :] / counts - mean.square(), floor)
    return DiagonalGaussian(mean, 0.5 * variance.log()), (counts / counts.sum()).log().squeeze(1)
