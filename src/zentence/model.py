"""LatentLM: encoder + posterior + prior + decoder, whatever they are; without the first three, a language model."""

from typing import Any

from torch import Tensor, nn

from zentence.errors import ZentenceError
from zentence.types import Batch, LatentDistribution, Tokens


class LatentLM(nn.Module):
    """A model of sentences x with one code z each: p(z) p(x|z), and q(z|x) to find it.

    With `averaged_codes` L > 1 a sentence has L codes: L recurrences run apart, and their hidden states are averaged at
    each word before dropout and softmax (paper 3, Eq. 7-8). Wherever a plain model takes codes [S, B, D], such a model
    takes S groups of L codes, one group after the other: [S·L, B, D].
    """

    # Parts are any module that keeps its family's contract (see `zentence.testing`), so their types stay open.
    encoder: Any
    posterior: Any
    prior: Any
    decoder: Any

    def __init__(
        self,
        decoder: nn.Module,
        encoder: nn.Module | None = None,
        posterior: nn.Module | None = None,
        prior: nn.Module | None = None,
        averaged_codes: int = 1,
    ) -> None:
        super().__init__()
        self.averaged_codes = averaged_codes  # L
        self.encoder = encoder
        self.posterior = posterior
        self.prior = prior
        self.decoder = decoder

    @property
    def has_code(self) -> bool:
        """False for a language model."""
        return self.posterior is not None

    @property
    def code_size(self) -> int:
        """Dimensions of the code; 0 for a language model."""
        return self.posterior.size if self.has_code else 0

    def infer(self, source: Tokens) -> LatentDistribution:
        """Return q(z|x)."""
        if not self.has_code:
            raise ZentenceError("this model is a language model: it has no code")
        posterior: LatentDistribution = self.posterior(self.encoder(source))
        return posterior

    def prior_density(self) -> LatentDistribution:
        """Return p(z), [1, D]."""
        if not self.has_code:
            raise ZentenceError("this model is a language model: it has no prior over codes")
        prior: LatentDistribution = self.prior(self._infer_embedded)
        return prior

    def _infer_embedded(self, embedded: Tensor, lengths: Tensor) -> LatentDistribution:
        posterior: LatentDistribution = self.posterior(self.encoder.forward_embedded(embedded, lengths))
        return posterior

    def token_log_prob(self, z: Tensor | None, batch: Batch) -> Tensor:
        """Return log p(token | tokens before, z) as [S, B, T] for codes [S·L, B, D], zero at padding."""
        hidden: Tensor = self.decoder.hidden_states(z, batch.inputs)
        if self.averaged_codes > 1 and z is not None:
            groups, left = divmod(z.shape[0], self.averaged_codes)
            if left:
                raise ZentenceError(f"{z.shape[0]} codes a sentence are not groups of {self.averaged_codes}")
            hidden = hidden.view(groups, self.averaged_codes, *hidden.shape[1:]).mean(1)
        result: Tensor = self.decoder.token_log_prob(hidden, batch.target)
        return result

    def log_likelihood(self, z: Tensor | None, batch: Batch) -> Tensor:
        """Return log p(x|z) in nats as [S, B] for codes [S·L, B, D]; without a code, log p(x) as [1, B]."""
        return self.token_log_prob(z, batch).sum(-1)

    def part(self, name: str) -> nn.Module:
        """Return a part by its name."""
        part = getattr(self, name, None) if name in ("encoder", "posterior", "prior", "decoder") else None
        if not isinstance(part, nn.Module):
            raise ZentenceError(f"This model has no part '{name}'.")
        return part

    def reset_part(self, name: str) -> None:
        """Draw new initial values for a part, except for parameters that it shares with another part."""
        part = self.part(name)
        others = [getattr(self, other) for other in ("encoder", "posterior", "prior", "decoder") if other != name]
        shared = {id(p) for other in others if isinstance(other, nn.Module) for p in other.parameters()}
        kept = [(p, p.detach().clone()) for p in part.parameters() if id(p) in shared]
        part.reset_parameters()  # type: ignore[operator]
        for parameter, value in kept:
            parameter.data.copy_(value)
