"""The evidence lower bound, with any rate rule."""

from pydantic import Field

from zentence.distributions import rate
from zentence.model import LatentLM
from zentence.noise import Noise
from zentence.objectives.base import Objective, share
from zentence.objectives.rate_rules import RATE_RULES
from zentence.parts import Options as PartOptions
from zentence.parts import Part, find_part, parse_options
from zentence.types import Batch, Terms


class Elbo(Objective):
    """Distortion + a charge for the rate."""

    paper = "papers 1-5"

    class Options(PartOptions):
        rate_rule: Part = Field(Part(name="plain"), description="What is charged for the rate: see the rate rules.")

    def __init__(self, options: Options, epoch_steps: float, total_steps: int) -> None:
        super().__init__(options, epoch_steps, total_steps)
        rule = find_part("rate rule", RATE_RULES, options.rate_rule.name)
        rule_options = parse_options("objective.rate_rule", rule.Options, options.rate_rule.options)
        self.rule = rule(rule_options, epoch_steps, total_steps)
        self.selection = "iw_nll" if self.rule.targets_rate else "elbo_nll"

    def forward(self, model: LatentLM, batch: Batch, step: int, noise: Noise) -> Terms:
        """Return this process's share of D + charge(R)."""
        q, p = model.infer(batch.source), model.prior_density()
        z, log_q = q.rsample_and_log_prob(1, noise)
        distortion = -model.log_likelihood(z, batch).mean(0)
        true_rate = rate(q, p, (z, log_q))
        loss = share(distortion, batch) + self.rule(true_rate, batch, step)
        values = {"distortion": distortion.detach(), "rate": true_rate.total.detach()}
        return Terms(loss, values, q.center.detach(), self.rule.scalars(step))
