"""Inverse autoregressive flow posterior (paper 2, Eq. 16-17).

The masked networks are written by hand: Eq. 17b adds the context after the first tanh, where zuko's (and other
libraries') masked networks concatenate it with the input of the first layer, and the inverse below needs the layers'
degrees.
"""

from collections.abc import Sequence
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import linear, logsigmoid

from zentence.distributions import DiagonalGaussian, Flow
from zentence.initialise import initialise
from zentence.posteriors.gaussian import GaussianPosterior


class MaskedLinear(nn.Linear):
    """An affine map that uses only the weights where `mask` [out, in] is true."""

    mask: Tensor

    def __init__(self, mask: Tensor) -> None:
        super().__init__(mask.shape[1], mask.shape[0])
        self.register_buffer("mask", mask.to(self.weight.dtype), persistent=False)

    def masked(self) -> Tensor:
        """Return the weights [out, in] in use."""
        return self.weight * self.mask

    def forward(self, inputs: Tensor) -> Tensor:
        """Return [..., out] for inputs [..., in]."""
        return linear(inputs, self.masked(), self.bias)


def hidden_degrees(size: int, width: int) -> Tensor:
    """Return the degrees [width] of hidden units, ascending, spread evenly over 1 … D−1 (0 for D = 1).

    A unit of degree m sees the dimensions 1 … m of z and feeds the outputs m+1 … D (Germain et al., 2015).
    """
    if size == 1:
        return torch.zeros(width, dtype=torch.int64)
    return 1 + torch.arange(width) * (size - 1) // width


def log_gate(raw: Tensor) -> Tensor:
    """Return log s = log sigmoid(raw); s below e^-15 means a diverged network, and would have no inverse."""
    return logsigmoid(raw.clamp(min=-15.0))


class Made(nn.Module):
    """One step z_t = (1 − s_t) ⊙ u_t + s_t ⊙ z_{t−1}; u_t, s_t of dimension d depend on x and on dimensions before d.

    Eq. 17: h_0 = tanh(T¹z_{t−1} + b¹), h_1 = h_0 + c, h_2 = tanh(T²h_1 + b²), u = T³h_2 + b³, s = sigmoid(T⁴h_2 + b⁴);
    T¹ and T² are (block) lower triangular with their diagonal, T³ and T⁴ strictly. Nothing comes before the first
    dimension, so its u and s are b³ and b⁴, for every sentence alike.
    """

    def __init__(self, size: int, width: int) -> None:
        super().__init__()
        outer, inner = torch.arange(1, size + 1), hidden_degrees(size, width)
        self.first = MaskedLinear(inner[:, None] >= outer)
        self.second = MaskedLinear(inner[:, None] >= inner)
        self.shift = MaskedLinear(outer[:, None] > inner)
        self.gate = MaskedLinear(outer[:, None] > inner)
        self.ends = [int((inner <= degree).sum()) for degree in range(size)]  # units of at most this degree

    def forward(self, z: Tensor, context: Tensor) -> tuple[Tensor, Tensor]:
        """Return z_t [S, B, D] and log|det ∂z_t/∂z_{t−1}| = Σ_d log s_d [S, B], for z_{t−1} and the context [B, C]."""
        hidden = torch.tanh(self.first(z)) + context
        hidden = torch.tanh(self.second(hidden))
        shift, log_s = self.shift(hidden), log_gate(self.gate(hidden))
        return shift + log_s.exp() * (z - shift), log_s.sum(-1)

    def invert(self, z: Tensor, context: Tensor) -> tuple[Tensor, Tensor]:
        """Return z_{t−1} [S, B, D] and the same log-determinant [S, B] for z_t: exactly, dimension by dimension.

        Once dimension d is known, the units of degree d are complete; what they add to all that follows is added at
        once. So D sequential steps compute every unit once: together they do the work of one pass, not of D.
        """
        codes = z.reshape(-1, z.shape[-1])  # [N, D]
        first, second = self.first.masked(), self.second.masked()
        outputs = torch.stack((self.shift.masked(), self.gate.masked()), dim=1)  # [D, 2, H]
        upper = (
            self.second(context).expand(*z.shape[:-1], -1).reshape(codes.shape[0], -1)
        )  # layer 2 before tanh, [N, H]
        raw = torch.stack((self.shift.bias, self.gate.bias), dim=1).flatten().expand(codes.shape[0], -1)  # [N, 2 D]
        found: list[Tensor] = []
        log_det = torch.zeros_like(codes[:, 0])
        begin = 0
        for d, end in enumerate(self.ends):
            if end > begin:
                units = slice(begin, end)
                known = torch.stack(found, dim=1) if found else codes[:, :0]
                lower = torch.addmm(self.first.bias[units], known, first[units, :d].t())
                upper = torch.addmm(upper, torch.tanh(lower), second[begin:, units].t())
                top = torch.tanh(upper[:, : end - begin])
                raw = torch.addmm(raw, top, outputs[d:, :, units].flatten(0, 1).t())
                upper, begin = upper[:, end - begin :], end  # what is complete is dropped
            shift, log_s = raw[:, 0], log_gate(raw[:, 1])
            found.append(shift + (-log_s).exp() * (codes[:, d] - shift))
            log_det = log_det + log_s
            raw = raw[:, 2:]
        return torch.stack(found, dim=1).view(z.shape), log_det.view(z.shape[:-1])


class InverseAutoregressiveFlow(Flow):
    """q(z|x) for B sentences: z_0 ~ N(u_0, diag(s_0²)), then T steps with the context [B, C]."""

    def __init__(self, base: DiagonalGaussian, steps: Sequence[Made], context: Tensor, center_samples: int) -> None:
        super().__init__(base, center_samples, context.shape[1])
        self.steps, self.context = steps, context

    def push(self, start: Tensor) -> tuple[Tensor, Tensor]:
        """Return z = z_T [S, B, D] and Σ_t Σ_d log s_{t,d} [S, B] for z_0 [S, B, D]."""
        with torch.autocast(start.device.type, enabled=False):
            z, total = start, torch.zeros_like(start[..., 0])
            for step in self.steps:
                z, log_det = step(z, self.context)
                total = total + log_det
        return z, total

    def pull(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Return z_0 and Σ_t Σ_d log s_{t,d} [S, B] for z [S, B, D]: the inverse of `push`."""
        with torch.autocast(z.device.type, enabled=False):
            total = torch.zeros_like(z[..., 0])
            for step in reversed(self.steps):
                z, log_det = step.invert(z, self.context)
                total = total + log_det
        return z, total

    def log_prob(self, z: Tensor) -> Tensor:
        """Return log-densities [S, B] of any codes [S, B, D], by the sequential inverse."""
        start, total = self.pull(z)
        return self.base.log_prob(start) - total

    def rows(self, index: Tensor) -> "InverseAutoregressiveFlow":
        """Return the flows of the rows `index` [N]."""
        return InverseAutoregressiveFlow(self.base.rows(index), self.steps, self.context[index], self.center_samples)


class IafPosterior(nn.Module):
    """Inverse autoregressive flow: z_t = (1 − s_t) ⊙ u_t + s_t ⊙ z_{t−1} from a Gaussian z_0; s_t, u_t from MADEs."""

    paper = "paper 2 (Eq. 16-17)"

    class Options(GaussianPosterior.Options):
        scale: Literal["log_variance", "softplus"] = Field(
            "softplus", description="What the network puts out for z_0: log σ², or σ through a softplus (paper 2)."
        )
        steps: int = Field(4, ge=1, description="Steps T of the flow.")
        context_size: int = Field(
            512, ge=1, description="Width of the context, and of the masked layers it is added to."
        )
        gate_bias: float = Field(
            2.0,
            description="Added to the gates' initial biases: 2 starts near z_T = z_0 (Kingma et al., 2016); "
            "with 0 four steps start 16 times narrower.",
        )
        center_samples: int = Field(
            64, ge=2, multiple_of=2, description="Samples that are averaged where the mean of q(z|x) is asked for."
        )

    def __init__(self, options: Options, feature_size: int) -> None:
        super().__init__()
        self.options = options
        self.base = GaussianPosterior(options, feature_size)
        self.context = nn.Linear(feature_size, options.context_size, bias=options.bias)
        self.steps = nn.ModuleList(Made(options.size, options.context_size) for _ in range(options.steps))
        self.reset_parameters()

    @property
    def size(self) -> int:
        """Dimensions of the code."""
        return self.options.size

    def reset_parameters(self) -> None:
        """Draw new initial values."""
        initialise(self, self.options.initial)
        with torch.no_grad():
            for step in self.steps:
                step.gate.bias.add_(self.options.gate_bias)  # type: ignore[union-attr, operator]

    def forward(self, features: Tensor) -> InverseAutoregressiveFlow:
        """Return q(z|x) for features [B, H]."""
        with torch.autocast(features.device.type, enabled=False):  # bfloat16 would blur the density
            features = features.to(self.context.weight.dtype)
            base, context = self.base(features), self.context(features)
        steps = [step for step in self.steps if isinstance(step, Made)]
        return InverseAutoregressiveFlow(base, steps, context, self.options.center_samples)
