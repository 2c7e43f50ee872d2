"""The importance-weighted bound as an objective."""

import math

from pydantic import Field

from zentence.model import LatentLM
from zentence.noise import Noise
from zentence.objectives.base import Objective, center_for_log, rate_for_log, share
from zentence.parts import Options as PartOptions
from zentence.types import Batch, Terms


class Iwae(Objective):
    """−log 1/K Σ_k w_k, w_k = p(x|z_k) p(z_k) / q(z_k|x), z_k ~ q(z|x) reparameterised; the gradient is through all.

    K = 1 is the ELBO with a Monte-Carlo rate. A model with averaged hidden states draws K groups of L codes, and all
    L are charged, so it is a bound there too. Distortion and rate are for the log: their sum is the looser ELBO.
    """

    paper = "paper 4 (baseline, K = 10); Burda et al. (2016)"
    selection = "iw_nll"

    class Options(PartOptions):
        num_codes: int = Field(10, ge=1, description="Importance samples K a sentence and step.")

    def forward(self, model: LatentLM, batch: Batch, step: int, noise: Noise) -> Terms:  # noqa: ARG002
        """Return this process's share of the K-sample bound, in nats per sentence."""
        q, p = model.infer(batch.source), model.prior_density()
        K, L = self.options.num_codes, model.averaged_codes
        z, log_q = q.rsample_and_log_prob(K * L, noise)
        log_likelihood = model.log_likelihood(z, batch)  # [K, B]
        log_ratio = log_q - p.log_prob(z)  # [K · L, B]
        log_weight = log_likelihood - log_ratio.view(K, L, -1).sum(1)
        bound = math.log(K) - log_weight.logsumexp(0)
        values = {"distortion": -log_likelihood.detach().mean(0), "rate": rate_for_log(q, p, log_ratio)}
        return Terms(share(bound, batch), values, center_for_log(q))
