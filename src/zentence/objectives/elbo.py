"""The evidence lower bound, with any rate rule."""

from typing import Any

from pydantic import Field
from torch import Tensor

from zentence.distributions import has_closed_form_rate, rate
from zentence.model import LatentLM
from zentence.noise import Noise
from zentence.objectives.base import Objective, center_for_log, share, whole
from zentence.objectives.rate_rules import RATE_RULES
from zentence.parts import Options as PartOptions
from zentence.parts import Part, find_part, parse_options, plain
from zentence.types import Batch, LatentDistribution, Terms


class Elbo(Objective):
    """Distortion + a charge for the rate; the distortion is the mean over `num_codes` codes (paper 3, Eq. 3).

    The rate R = KL(q(z|x)‖p(z)) is in closed form where there is one, else the mean of log q − log p over samples.
    A model with averaged hidden states reads L codes for each of these, and is charged one R for them (paper 3):
    the sum is then no bound.
    """

    paper = "papers 1-5; several codes: paper 3 (Eq. 3)"

    class Options(PartOptions):
        num_codes: int = Field(1, ge=1, description="Codes a sentence and step, over which the bound is averaged.")
        rate_samples: int | None = Field(
            None, ge=1, description="Samples of the rate where it has no closed form; none: the codes of the bound."
        )
        rate_rule: Part = Field(Part(name="plain"), description="What is charged for the rate: see the rate rules.")

    def __init__(self, options: Any, epoch_steps: float, total_steps: int) -> None:
        super().__init__(options, epoch_steps, total_steps)
        rule = find_part("rate rule", RATE_RULES, options.rate_rule.name)
        rule_options = parse_options("objective.rate_rule", rule.Options, options.rate_rule.options)
        self.rule = rule(rule_options, epoch_steps, total_steps)
        self.selection = "iw_nll" if self.rule.targets_rate else "elbo_nll"
        self.needs_closed_form = self.rule.needs_closed_form
        self.whole_batch = self.rule.whole_batch

    def written_out(self) -> dict[str, Any]:
        """Return every option as plain values, those of the rate rule included."""
        rule = {"name": self.options.rate_rule.name, **plain(self.rule.options)}
        return {**super().written_out(), "rate_rule": rule}

    def forward(self, model: LatentLM, batch: Batch, step: int, noise: Noise) -> Terms:
        """Return this process's share of D + charge(R) + further terms."""
        q, p = model.infer(batch.source), model.prior_density()
        decoded = rated = self.options.num_codes * model.averaged_codes
        if self.options.rate_samples is not None and not has_closed_form_rate(q, p):
            rated = self.options.rate_samples
        z, log_q = q.rsample_and_log_prob(max(decoded, rated), noise)
        distortion = -model.log_likelihood(z[:decoded], batch).mean(0)
        true_rate = rate(q, p, (z[:rated], log_q[:rated]))
        charge = self.rule(true_rate, batch, step)
        further, scalars = self.further(z[0], p, batch, step, noise)
        loss = share(distortion, batch) + charge + further
        values = {"distortion": distortion.detach(), "rate": true_rate.total.detach()}
        scalars = {**self.rule.scalars(step), **scalars, "charge": float(whole(charge, batch))}
        return Terms(loss, values, center_for_log(q), scalars)

    def further(
        self,
        codes: Tensor,
        p: LatentDistribution,  # noqa: ARG002
        batch: Batch,  # noqa: ARG002
        step: int,  # noqa: ARG002
        noise: Noise,  # noqa: ARG002
    ) -> tuple[Tensor, dict[str, float]]:
        """Return this process's share of what is added to the bound, and scalars; codes [B, D] are one a sentence."""
        return codes.new_zeros(()), {}

    def after_update(self, terms: Terms) -> None:  # noqa: ARG002 - the rule remembers the batch's mean rate
        """Let the rate rule move its weight or multiplier."""
        self.rule.after_update()
