"""What dialog training minimises: SpaceFusion's terms on the codes of contexts and responses, and StyleFusion's.

x is a response, z_S2S the code of its context, z_AE its own code (both posterior means), D the size of a code,
d(a, b) = ‖a − b‖/√D. Formulas: Optimus (paper 5), appendix C.2, after Gao et al. (2019a, 2019b).
"""

import math
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from zentence.corpora.pairs import PairBatch
from zentence.guided.dialog_model import DialogModel
from zentence.noise import Noise
from zentence.parts import Options
from zentence.types import Batch, Terms, Tokens


class DialogOptions(Options):
    """What a dialog model learns, and from what."""

    objective: Literal["fusion", "s2s"] = Field(
        "fusion", description="SpaceFusion; or sequence to sequence alone, −log p(x|z_S2S): the baseline of equal size."
    )
    fusion_weight: float = Field(10.0, ge=0.0, description="w: what pull and push weigh against nats per response.")
    push_cap: float = Field(
        1.0,
        gt=0.0,
        description="Distance d beyond which codes are not pushed further apart; without it push has no end.",
    )
    noise: float = Field(0.1, ge=0.0, description="Standard deviation of the noise on codes while training.")
    noise_on: Literal["between", "all"] = Field(
        "between",
        description="Noise on z_τ alone (Optimus' code), or on z_S2S and z_AE, and so on z_τ (SpaceFusion's).",
    )
    style_weight: float = Field(1.0, ge=0.0, description="What the style's term weighs, where a style is given.")
    turns: int = Field(10, ge=1, le=100, description="Turns of context.")
    context_tokens: int = Field(150, ge=1, description="Tokens of context: the last ones are read.")
    batch_sentences: int = Field(64, ge=2, description="Pairs a batch; push looks for neighbours among them.")
    held_apart: float = Field(
        0.1, gt=0.0, lt=0.9, description="With a style: share of both texts kept for its classifiers."
    )


def distance(a: Tensor, b: Tensor) -> Tensor:
    """Return d(a, b) = ‖a − b‖/√D for codes [..., D]; its gradient at a = b is zero."""
    norm: Tensor = torch.linalg.vector_norm(a - b, dim=-1)
    return norm / math.sqrt(a.shape[-1])


def same_text(tokens: Tokens) -> Tensor:
    """Return [B, B] booleans: True where two rows read the same, so that no code could tell them apart."""
    return (tokens.ids[:, None] == tokens.ids[None]).all(-1)


def nearest_distance(z: Tensor, cap: float, same: Tensor | None = None) -> Tensor:
    """Return min over j ≠ i of d(z_i, z_j), at most `cap`, as [B]; a code is never its own neighbour.

    Nor is one of the same text, by `same` [B, B]: their distance is 0 whatever is learnt, and short responses that
    many give would switch the term off. A code without neighbours counts as `cap`: there is nothing to push.
    """
    itself = torch.eye(z.shape[0], dtype=torch.bool, device=z.device)
    barred = itself if same is None else itself | same
    return distance(z[:, None], z[None]).masked_fill(barred, cap).amin(1).clamp(max=cap)


def push_distance(
    context: Tensor, response: Tensor, cap: float, same: tuple[Tensor | None, Tensor | None] = (None, None)
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the smaller of the mean nearest distances within the two spaces, and both of them, each a scalar."""
    within_context = nearest_distance(context, cap, same[0]).mean()
    within_response = nearest_distance(response, cap, same[1]).mean()
    return torch.minimum(within_context, within_response), within_context, within_response


class DialogTrainable(nn.Module):
    """A dialog model with its loss, in nats per response.

    fusion: −[log p(x|z_S2S) + log p(x|z_AE) + log p(x|z_τ)] + w · {mean d(z_S2S, z_AE) − 2 · push}, z_τ = τ z_S2S +
    (1 − τ) z_AE with τ ~ U(0, 1); push is the smaller, of the two spaces, of the mean distance to the nearest other
    code of the batch (of another text), each distance capped. A style adds, for a sentence b of it, −[τ' log p(b|z') +
    (1 − τ') log p(x|z')] with z' = τ' z_b + (1 − τ') z_AE (as StyleFusion has it; Optimus prints the codes of b and x
    instead of z').
    """

    selection = "distortion"  # of the response given its context: the same for every objective

    def __init__(self, model: DialogModel, options: DialogOptions) -> None:
        super().__init__()
        self.model, self.options = model, options

    def module(self) -> nn.Module:
        """Return the module that holds all state."""
        return self

    def after_update(self, terms: Terms) -> None:
        """Nothing follows an update."""

    def forward(self, batch: PairBatch, step: int, noise: Noise) -> Terms:  # noqa: ARG002 - nothing is annealed
        """Return the loss of a batch, every term of it apart."""
        pairs = batch.pairs
        assert pairs.context is not None
        context = self.model.infer_context(pairs.context).center
        if self.options.objective == "s2s":
            distortion = -self._log_prob([self._noisy(context, noise, "context")], pairs)[0]
            return Terms(distortion.mean(), {"distortion": distortion.detach()}, context.detach())
        response = self.model.model.infer(pairs.source).center
        ends = self._noisy(context, noise, "context"), self._noisy(response, noise, "response")
        share = noise.fork("between").uniform(1, context.dtype)  # τ, [B, 1]
        between = share * ends[0] + (1.0 - share) * ends[1]
        if self.options.noise_on == "between":
            between = self._perturbed(between, noise, "between")
        pull = distance(context, response)
        push, within_context, within_response = push_distance(
            context, response, self.options.push_cap, (same_text(pairs.context), same_text(pairs.source))
        )
        codes = [*ends, between]
        styled = None if batch.style is None else self._towards_style(batch.style, ends[1], noise)
        if styled is not None:
            codes.append(styled[0])
        nll = -self._log_prob(codes, pairs)  # [S, B]
        loss = nll[:3].sum(0).mean() + self.options.fusion_weight * (pull.mean() - 2.0 * push)
        values = {"distortion": nll[0], "autoencoding": nll[1], "between": nll[2], "pull": pull}
        if styled is not None and batch.style is not None:
            code, share = styled
            towards = share * -self._log_prob([code], batch.style)[0] + (1.0 - share) * nll[3]
            loss = loss + self.options.style_weight * towards.mean()
            values["style"] = towards
        scalars = {
            "push": float(push.detach()),
            "within_context": float(within_context.detach()),
            "within_response": float(within_response.detach()),
        }
        kept = {name: value.detach() for name, value in values.items()}
        return Terms(loss, kept, context.detach(), scalars)

    def _towards_style(self, style: Batch, response: Tensor, noise: Noise) -> tuple[Tensor, Tensor]:
        """Return z' = τ' z_b + (1 − τ') z_AE, [B, D], and τ', [B]."""
        code = self.model.model.infer(style.source).center
        share = noise.fork("style").uniform(1, code.dtype)
        return self._perturbed(share * code + (1.0 - share) * response, noise, "style"), share[:, 0]

    def _noisy(self, z: Tensor, noise: Noise, name: str) -> Tensor:
        return self._perturbed(z, noise, name) if self.options.noise_on == "all" else z

    def _perturbed(self, z: Tensor, noise: Noise, name: str) -> Tensor:
        """Add noise to codes [B, D], while training only."""
        if not self.training or self.options.noise == 0.0:
            return z
        return z + self.options.noise * noise.fork("code", name).normal(1, z.shape[1], z.dtype)[0]

    def _log_prob(self, codes: list[Tensor], sentences: Batch) -> Tensor:
        """Return log p(x|z) as [S, B] for S codes [B, D] a sentence."""
        return self.model.model.log_likelihood(torch.stack(codes), sentences)
