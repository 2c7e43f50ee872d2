"""Amortised planar flow posterior (paper 2, Eq. 18)."""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from zentence.distributions import DiagonalGaussian, Flow
from zentence.errors import NotInvertibleError
from zentence.initialise import initialise
from zentence.posteriors.gaussian import GaussianPosterior

MIN_SLOPE = 1e-3  # smallest derivative of a step along its direction


def invertible_direction(direction: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return û [..., D] and wᵀû [...] > −1 for free u and w [..., D]: û = u + (m(wᵀu) − wᵀu) w / ‖w‖².

    Rezende and Mohamed (2015, appendix) take m(a) = softplus(a) − 1, whose m(0) ≠ 0 sends û to infinity as w goes to 0.
    Here m(a) = a for a ≥ 0 and k (e^{a/k} − 1) below, k = 1 − MIN_SLOPE: smooth, above −k, m(0) = 0, so ‖û‖ ≤ 2 ‖u‖.
    """
    inner = (weight * direction).sum(-1)
    least = 1.0 - MIN_SLOPE
    bounded = torch.where(inner >= 0.0, inner, least * torch.expm1(inner.clamp(max=0.0) / least))
    square = weight.square().sum(-1)
    factor = (bounded - inner) / square.clamp(min=torch.finfo(square.dtype).tiny)
    return direction + factor[..., None] * weight, bounded


class PlanarFlow(Flow):
    """q(z|x) for B sentences: z_0 ~ N(u_0, diag(s_0²)), then T steps z_t = z_{t−1} + û_t tanh(w_tᵀ z_{t−1} + b_t).

    directions u and weights w are [B, T, D], biases b [B, T]. log|det| = log(1 + û_tᵀ ψ_t(z_{t−1})),
    ψ_t(z) = w_t tanh'(w_tᵀ z + b_t).
    """

    def __init__(
        self, base: DiagonalGaussian, directions: Tensor, weights: Tensor, biases: Tensor, center_samples: int
    ) -> None:
        super().__init__(base, center_samples, base.mean.shape[1])
        self.directions, self.weights, self.biases = directions, weights, biases
        self.bent, self.slopes = invertible_direction(directions, weights)  # û [B, T, D], wᵀû [B, T]

    def push(self, start: Tensor) -> tuple[Tensor, Tensor]:
        """Return z = z_T [S, B, D] and Σ_t log|det| [S, B] for z_0 [S, B, D]."""
        z, total = start, torch.zeros_like(start[..., 0])
        for t in range(self.biases.shape[1]):
            height = torch.tanh((z * self.weights[:, t]).sum(-1) + self.biases[:, t])  # [S, B]
            total = total + torch.log1p(self.slopes[:, t] * (1.0 - height.square()))
            z = z + height[..., None] * self.bent[:, t]
        return z, total

    def log_prob(self, z: Tensor) -> Tensor:  # noqa: ARG002
        """Raise NotInvertibleError: a planar step has no inverse in closed form."""
        raise NotInvertibleError(
            "Posterior 'planar' knows its density only at its own samples: take 'gaussian' or 'iaf' where it is needed"
        )

    def rows(self, index: Tensor) -> "PlanarFlow":
        """Return the flows of the rows `index` [N]."""
        return PlanarFlow(
            self.base.rows(index),
            self.directions[index],
            self.weights[index],
            self.biases[index],
            self.center_samples,
        )


class PlanarPosterior(nn.Module):
    """Planar flow: z_t = z_{t−1} + û_t tanh(w_tᵀ z_{t−1} + b_t) from a Gaussian z_0; û, w and b from the features."""

    paper = "paper 2 (Eq. 18); invertibility enforced as Rezende and Mohamed (2015) ask"
    density_elsewhere = False  # log_prob is refused

    class Options(GaussianPosterior.Options):
        scale: Literal["log_variance", "softplus"] = Field(
            "softplus", description="What the network puts out for z_0: log σ², or σ through a softplus (paper 2)."
        )
        steps: int = Field(4, ge=1, description="Steps T of the flow.")
        center_samples: int = Field(
            64, ge=2, multiple_of=2, description="Samples that are averaged where the mean of q(z|x) is asked for."
        )

    def __init__(self, options: Options, feature_size: int) -> None:
        super().__init__()
        self.options = options
        self.base = GaussianPosterior(options, feature_size)
        self.direction = nn.Linear(feature_size, options.steps * options.size, bias=options.bias)
        self.weight = nn.Linear(feature_size, options.steps * options.size, bias=options.bias)
        self.offset = nn.Linear(feature_size, options.steps, bias=options.bias)
        self.reset_parameters()

    @property
    def size(self) -> int:
        """Dimensions of the code."""
        return self.options.size

    def reset_parameters(self) -> None:
        """Draw new initial values."""
        initialise(self, self.options.initial)

    def forward(self, features: Tensor) -> PlanarFlow:
        """Return q(z|x) for features [B, H]."""
        with torch.autocast(features.device.type, enabled=False):  # bfloat16 would blur the density
            features = features.to(self.offset.weight.dtype)
            shape = (features.shape[0], self.options.steps, self.options.size)
            directions, weights = self.direction(features).view(shape), self.weight(features).view(shape)
            base, biases = self.base(features), self.offset(features)
        return PlanarFlow(base, directions, weights, biases, self.options.center_samples)
