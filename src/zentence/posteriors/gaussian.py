"""The diagonal Gaussian posterior."""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from zentence.distributions import DiagonalGaussian
from zentence.initialise import InitialRanges, initialise
from zentence.parts import Options as PartOptions


class GaussianPosterior(nn.Module):
    """q(z|x) = N(mean(x), diag(scale(x)²)); mean and scale are linear in the features."""

    paper = "papers 1-5"
    is_gaussian = True  # its KL to a Gaussian prior is known, in each dimension

    class Options(PartOptions):
        size: int = Field(32, ge=1, description="Dimensions of the code.")
        scale: Literal["log_variance", "softplus"] = Field(
            "log_variance", description="What the network puts out: log σ², or σ through a softplus (paper 2)."
        )
        min_log_variance: float | None = Field(None, description="Lower clamp of log σ² (paper 1: -10).")
        bias: bool = Field(True, description="Biases on the maps from the features.")
        initial: InitialRanges = Field(InitialRanges(), description="Initial values.")

    def __init__(self, options: Options, feature_size: int) -> None:
        super().__init__()
        self.options = options
        self.to_mean = nn.Linear(feature_size, options.size, bias=options.bias)
        self.to_scale = nn.Linear(feature_size, options.size, bias=options.bias)
        self.reset_parameters()

    @property
    def size(self) -> int:
        """Dimensions of the code."""
        return self.options.size

    def reset_parameters(self) -> None:
        """Draw new initial values."""
        initialise(self, self.options.initial)

    def forward(self, features: Tensor) -> DiagonalGaussian:
        """Return q(z|x) for features [B, H]."""
        with torch.autocast(features.device.type, enabled=False):  # bfloat16 would blur the density
            return self._density(features.to(self.to_mean.weight.dtype))

    def _density(self, features: Tensor) -> DiagonalGaussian:
        raw = self.to_scale(features)
        if self.options.scale == "log_variance":
            log_scale = 0.5 * raw
        else:
            # log softplus(x) ≈ x for very negative x, where softplus itself would underflow
            log_scale = torch.where(raw < -20.0, raw, nn.functional.softplus(raw.clamp(min=-20.0)).log())
        if self.options.min_log_variance is not None:
            log_scale = log_scale.clamp(min=0.5 * self.options.min_log_variance)
        # σ beyond e^±15 means a diverged network; the clamp keeps its KL finite so that the loop can say so
        return DiagonalGaussian(self.to_mean(features), log_scale.clamp(-15.0, 15.0))
