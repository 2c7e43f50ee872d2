"""VampPrior for sentences: the posteriors of learned pseudo-inputs, mixed."""

import math

import torch
from pydantic import Field
from torch import Tensor, nn

from zentence.distributions import Mixture, as_components
from zentence.parts import Options as PartOptions
from zentence.types import InferEmbedded

LENGTH_MEAN, LENGTH_SPREAD = 20.0, 10.0  # where there is no text to take them from


class VampPrior(nn.Module):
    """p(z) = 1/K Σ_k q(z|v_k); each pseudo-input v_k is a learned sequence of word embeddings of a fixed length.

    Lengths are drawn once from N(mean, spread²) of the training sentences', rounded, and kept between 1 and
    mean + 3 spreads (where paper 2 cuts its training sentences); they are part of the saved state.
    Gradients reach the pseudo-inputs, the encoder and the posterior.
    """

    paper = "paper 2 (§5.2 and appendix A.1, VampPrior); Tomczak and Welling (2017)"
    needs_embedding = True  # asks for the width of the encoder's embeddings
    needs_density_elsewhere = True  # asks the posterior for log q(z|v_k) at other sentences' codes

    class Options(PartOptions):
        components: int = Field(100, ge=1, description="Number of pseudo-inputs K.")
        length_mean: float | None = Field(
            None, ge=1.0, description="Mean length of pseudo-inputs in words; none: that of the training sentences."
        )
        length_spread: float | None = Field(
            None, ge=0.0, description="Standard deviation of their lengths; none: that of the training sentences."
        )
        initial_range: float = Field(
            0.1, gt=0.0, description="Pseudo-inputs start uniform between this and its negative, as embeddings do."
        )

    lengths: Tensor

    def __init__(self, options: Options, size: int, embedding_size: int) -> None:  # noqa: ARG002 - a code's size
        super().__init__()
        self.options = options
        mean = LENGTH_MEAN if options.length_mean is None else options.length_mean
        spread = LENGTH_SPREAD if options.length_spread is None else options.length_spread
        longest = math.ceil(mean + 3.0 * spread)  # the shape follows from the options alone
        drawn = (mean + spread * torch.randn(options.components)).round().clamp(1, longest)
        self.register_buffer("lengths", drawn.to(torch.int64))
        self.pseudo_inputs = nn.Parameter(torch.empty(options.components, longest, embedding_size))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new pseudo-inputs, of the same lengths."""
        nn.init.uniform_(self.pseudo_inputs, -self.options.initial_range, self.options.initial_range)

    def forward(self, infer_embedded: InferEmbedded) -> Mixture:
        """Return the density, from the model's q(z|embeddings [K, T, E], lengths [K]); it broadcasts over sentences."""
        read = self.pseudo_inputs[:, : int(self.lengths.max())]
        return Mixture(as_components(infer_embedded(read, self.lengths)))
