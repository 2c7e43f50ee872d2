"""The standard normal prior."""

import torch
from torch import Tensor, nn

from zentence.distributions import DiagonalGaussian
from zentence.parts import Options as PartOptions
from zentence.types import InferEmbedded


class StandardNormalPrior(nn.Module):
    """p(z) = N(0, I)."""

    paper = "papers 1-5"
    is_gaussian = True  # the KL of a Gaussian posterior to it is known, in each dimension

    class Options(PartOptions):
        pass

    zero: Tensor

    def __init__(self, options: Options, size: int) -> None:
        super().__init__()
        self.options = options
        self.register_buffer("zero", torch.zeros(1, size), persistent=False)

    def reset_parameters(self) -> None:
        """Nothing to draw."""

    def forward(self, infer_embedded: InferEmbedded | None = None) -> DiagonalGaussian:  # noqa: ARG002
        """Return the density, [1, D]: it broadcasts over sentences."""
        return DiagonalGaussian(self.zero, self.zero)
