"""The uniform mixture of Gaussians as a prior."""

import math

import torch
from pydantic import Field
from torch import Tensor, nn

from zentence.distributions import DiagonalGaussian, Mixture, log_softplus
from zentence.parts import Options as PartOptions
from zentence.types import InferEmbedded


class MixturePrior(nn.Module):
    """p(z) = 1/K Σ_k N(μ_k, diag(σ_k²)), μ_k learned and σ_k = softplus of what is learned."""

    paper = "paper 2 (§5.2 and appendix A.1, MoG prior)"

    class Options(PartOptions):
        components: int = Field(100, ge=1, description="Number of Gaussians K.")
        initial_spread: float = Field(
            1.0, ge=0.0, description="Standard deviation that the initial means are drawn with."
        )
        initial_scale: float = Field(1.0, gt=0.0, description="Initial σ of every Gaussian.")

    def __init__(self, options: Options, size: int) -> None:
        super().__init__()
        self.options = options
        self.means = nn.Parameter(torch.empty(options.components, size))
        self.raw_scales = nn.Parameter(torch.empty(options.components, size))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new means; set all scales to the initial one."""
        with torch.no_grad():
            self.means.copy_(torch.randn_like(self.means) * self.options.initial_spread)
            scale = self.options.initial_scale
            self.raw_scales.fill_(scale + math.log(-math.expm1(-scale)))  # the inverse of softplus

    def forward(self, infer_embedded: InferEmbedded | None = None) -> Mixture:  # noqa: ARG002
        """Return the density; it broadcasts over sentences."""
        log_scales: Tensor = log_softplus(self.raw_scales)
        return Mixture(DiagonalGaussian(self.means, log_scales))
