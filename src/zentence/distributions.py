"""Densities over codes that several rooms need, and the rate between two of them."""

import math
from abc import ABC, abstractmethod
from typing import NamedTuple, Protocol, cast

import torch
from torch import Tensor
from torch.nn.functional import softplus

from zentence.errors import ZentenceError
from zentence.noise import Noise, derive_key
from zentence.types import LatentDistribution

LOG_2_PI = math.log(2.0 * math.pi)
ACTIVATIONS = 2**21  # numbers in one layer of what is computed at once: memory does not grow with codes or samples


class DiagonalGaussian:
    """N(mean, diag(exp(log_scale)²)), mean and log_scale [B, D]."""

    def __init__(self, mean: Tensor, log_scale: Tensor) -> None:
        self.mean = mean
        self.log_scale = log_scale

    @property
    def count(self) -> int:
        """Number of rows B."""
        return self.mean.shape[0]

    @property
    def center(self) -> Tensor:
        """E[z], [B, D]."""
        return self.mean

    @property
    def scale(self) -> Tensor:
        """Standard deviations, [B, D]."""
        return self.log_scale.exp()

    def rows(self, index: Tensor) -> "DiagonalGaussian":
        """Return the distributions of the rows `index` [N]."""
        return DiagonalGaussian(self.mean[index], self.log_scale[index])

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
    standard: "DiagonalGaussian | None" = None  # q where p is N(0, I): shifted and scaled by p


def gaussian_kl(q: DiagonalGaussian, p: DiagonalGaussian) -> Tensor:
    """Return KL per sentence and dimension [B, D] in closed form."""
    standard = standardised(q, p)
    return 0.5 * ((2.0 * standard.log_scale).exp() + standard.mean.square() - 1.0) - standard.log_scale


def standardised(q: DiagonalGaussian, p: DiagonalGaussian) -> DiagonalGaussian:
    """Return q in the coordinates in which p is N(0, I)."""
    return DiagonalGaussian((q.mean - p.mean) * (-p.log_scale).exp(), q.log_scale - p.log_scale)


def has_closed_form_rate(q: LatentDistribution, p: LatentDistribution) -> bool:
    """Say whether KL(q‖p) is known per dimension."""
    return isinstance(q, DiagonalGaussian) and isinstance(p, DiagonalGaussian)


def rate(q: LatentDistribution, p: LatentDistribution, drawn: tuple[Tensor, Tensor] | None = None) -> Rate:
    """Return KL(q‖p): in closed form for two diagonal Gaussians, else by Monte Carlo from `drawn` = (z, log q(z))."""
    if isinstance(q, DiagonalGaussian) and isinstance(p, DiagonalGaussian):
        per_dimension = gaussian_kl(q, p)
        return Rate(per_dimension.sum(-1), per_dimension, standardised(q, p))
    if drawn is None:
        raise ZentenceError("this pair of posterior and prior has no closed-form rate: draw samples and pass them")
    z, log_q = drawn
    return Rate((log_q - p.log_prob(z)).mean(0), None)


def log_softplus(raw: Tensor) -> Tensor:
    """Return log softplus(raw): for very negative values ≈ raw, where softplus itself would underflow."""
    return torch.where(raw < -20.0, raw, softplus(raw.clamp(min=-20.0)).log())


class Components(LatentDistribution, Protocol):
    """A LatentDistribution whose B rows can stand alone, as the components of a mixture do."""

    @property
    def count(self) -> int:
        """Number of rows B."""

    def rows(self, index: Tensor) -> LatentDistribution:
        """Return the distributions of the rows `index` [N], which may repeat."""


def as_components(q: LatentDistribution) -> Components:
    """Return q itself if a mixture can be made of its rows; else raise."""
    if not hasattr(q, "rows") or not hasattr(q, "count"):
        raise ZentenceError(f"{type(q).__name__} cannot give the components of a mixture: it has no 'rows' and 'count'")
    return cast(Components, q)


def codes_at_once(q: Components) -> int:
    """Return how many codes `pairwise_log_prob` may be given at once, so that memory stays bounded."""
    width = 1 if isinstance(q, DiagonalGaussian) else getattr(q, "width", 256)
    return max(1, ACTIVATIONS // (q.count * width))


def pairwise_log_prob(q: Components, z: Tensor) -> Tensor:
    """Return log q_k(z_n) as [N, K] for codes [N, D] and a distribution with K rows; float64 for Gaussians."""
    if isinstance(q, DiagonalGaussian):
        # expand the square, so that the sum over dimensions is two matrix products
        # (in float64: the terms of the square nearly cancel where scales are small)
        mean, log_scale, z = q.mean.double(), q.log_scale.double(), z.double()
        precision = (-2.0 * log_scale).exp()  # [K, D]
        weighted_mean = mean * precision
        constant = (mean * weighted_mean + 2.0 * log_scale + LOG_2_PI).sum(-1)  # [K]
        return -0.5 * (z.square() @ precision.t() - 2.0 * (z @ weighted_mean.t()) + constant)
    return q.log_prob(z[:, None].expand(-1, q.count, -1))


class Mixture:
    """p(z) = Σ_k w_k q_k(z) over the K rows of a distribution; a density with B = 1 that broadcasts over sentences.

    `log_weights` [K] are normalised; none: uniform (paper 2, §5.2). Gradients reach the components from densities and
    from samples, but a sample's choice of a component has none.
    """

    def __init__(self, components: Components, log_weights: Tensor | None = None) -> None:
        self.components = components
        self.log_weights = log_weights

    def _weights(self, like: Tensor) -> Tensor:
        K = self.components.count
        if self.log_weights is None:
            return torch.full((K,), 1.0 / K, dtype=like.dtype, device=like.device)
        return self.log_weights.to(like).exp()

    @property
    def center(self) -> Tensor:
        """E[z], [1, D]."""
        centers = self.components.center
        return self._weights(centers) @ centers[None]

    @property
    def scale(self) -> Tensor:
        """Standard deviation of each dimension, within and between components, [1, D]."""
        around = self.components.scale.square() + (self.components.center - self.center).square()
        return (self._weights(around) @ around[None]).sqrt()

    def rsample_and_log_prob(self, num_samples: int, noise: Noise | None = None) -> tuple[Tensor, Tensor]:
        """Return codes [S, N, D] and log p at them [S, N], N the noise's number of indices (1 without noise)."""
        if noise is None:
            weights = self._weights(torch.empty(0, dtype=torch.float64))
            chosen, rows, draws = torch.multinomial(weights, num_samples, replacement=True), 1, None
        else:
            rows = noise.index.shape[0]
            samples = torch.arange(noise.first_sample, noise.first_sample + num_samples, device=noise.index.device)
            index = (noise.index.to(torch.int64) << 32) + samples[:, None]  # [S, N]: each draw has its own number
            draws = Noise(derive_key(noise.key, "mixture"), index.flatten())
            uniform = draws.fork("component").uniform(1, torch.float64).squeeze(1)
            edges = self._weights(uniform).cumsum(0)
            chosen = torch.searchsorted(edges, uniform, right=True).clamp(max=self.components.count - 1)
        flat, _ = self.components.rows(chosen).rsample_and_log_prob(1, draws)
        z = flat.view(num_samples, rows, -1)
        return z, self.log_prob(z)

    def log_prob(self, z: Tensor) -> Tensor:
        """Return log-densities [S, B] of codes [S, B, D], in chunks of codes whose memory is bounded."""
        codes, parts = z.reshape(-1, z.shape[-1]), []
        chunk = codes_at_once(self.components)
        for first in range(0, codes.shape[0], chunk):
            scores = pairwise_log_prob(self.components, codes[first : first + chunk])  # [N, K]
            if self.log_weights is None:
                parts.append(scores.logsumexp(1) - math.log(self.components.count))
            else:
                parts.append((scores + self.log_weights).logsumexp(1))
        return torch.cat(parts).view(z.shape[:-1]).to(z.dtype)


class Flow(ABC):
    """z = g_T ∘ … ∘ g_1(z_0), z_0 ~ base [B, D]; log q(z) = log N(z_0) − Σ_t log|det ∂g_t/∂z_{t−1}| (paper 2, Eq. 36).

    `center` and `scale` are those of `center_samples` images of fixed noise, the same for every sentence: they depend
    on the sentence alone, and a dimension that ignores the sentence has the same centre everywhere, exactly (noise
    of their own would make such dimensions look active). The noise comes in pairs ±ε of unit variance, so that both
    are exact for an affine flow. `width` is that of the widest layer: memory while they are computed is bounded.
    """

    def __init__(self, base: DiagonalGaussian, center_samples: int, width: int) -> None:
        self.base, self.center_samples, self.width = base, center_samples, width
        self._moments: dict[bool, tuple[Tensor, Tensor]] = {}  # with and without gradients

    @abstractmethod
    def push(self, start: Tensor) -> tuple[Tensor, Tensor]:
        """Return z [S, B, D] and Σ_t log|det ∂g_t/∂z_{t−1}| [S, B] for z_0 [S, B, D]."""

    @abstractmethod
    def log_prob(self, z: Tensor) -> Tensor:
        """Return log-densities [S, B] of codes [S, B, D], or raise NotInvertibleError."""

    @abstractmethod
    def rows(self, index: Tensor) -> "Flow":
        """Return the flows of the rows `index` [N]."""

    @property
    def count(self) -> int:
        """Number of rows B."""
        return self.base.count

    @property
    def center(self) -> Tensor:
        """E[z] as an average of samples, [B, D]."""
        return self._center_and_scale()[0]

    @property
    def scale(self) -> Tensor:
        """Standard deviation of the same samples, [B, D]."""
        return self._center_and_scale()[1]

    def rsample_and_log_prob(self, num_samples: int, noise: Noise | None = None) -> tuple[Tensor, Tensor]:
        """Return reparameterised codes [S, B, D] and log q at them [S, B]."""
        start, log_base = self.base.rsample_and_log_prob(num_samples, noise)
        z, log_det = self.push(start)
        return z, log_base - log_det

    def _center_and_scale(self) -> tuple[Tensor, Tensor]:
        with_gradient = torch.is_grad_enabled()
        if with_gradient not in self._moments:
            mean = self.base.mean
            noise = Noise(derive_key("center of a flow"), torch.zeros(1, dtype=torch.int64, device=mean.device))
            half = noise.normal(self.center_samples // 2, mean.shape[1], mean.dtype)  # [S/2, 1, D]
            half = half / half.square().mean(0).sqrt()
            start = mean + self.base.scale * torch.cat((half, -half))
            chunk = max(1, ACTIVATIONS // (self.count * self.width))
            firsts = range(0, self.center_samples, chunk)
            z = torch.cat([self.push(start[first : first + chunk])[0] for first in firsts])
            center = z.mean(0)
            self._moments[with_gradient] = center, (z - center).square().mean(0).sqrt()
        return self._moments[with_gradient]
