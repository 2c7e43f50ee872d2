"""The mutual information machine for sentences."""

from zentence.model import LatentLM
from zentence.noise import Noise
from zentence.objectives.base import Objective, center_for_log, rate_for_log, share
from zentence.parts import Options as PartOptions
from zentence.types import Batch, Terms


class Mim(Objective):
    """A-MIM: −log p(x|z) − ½ (log q(z|x) + log P(z)), one z ~ q(z|x) a sentence, reparameterised; no weights.

    P(z) is the model's prior (the paper's: N(0, I)). Only log q at its own samples is asked for. The model is selected
    by this loss. With averaged hidden states the second term is the mean over the L codes, as in the ELBO.
    """

    paper = "paper 1 (Algorithm 1)"
    selection = "loss"

    class Options(PartOptions):
        pass

    def forward(self, model: LatentLM, batch: Batch, step: int, noise: Noise) -> Terms:  # noqa: ARG002
        """Return this process's share of Algorithm 1's loss, in nats per sentence."""
        q, p = model.infer(batch.source), model.prior_density()
        z, log_q = q.rsample_and_log_prob(model.averaged_codes, noise)
        distortion = -model.log_likelihood(z, batch).squeeze(0)
        log_p = p.log_prob(z)
        loss = distortion - 0.5 * (log_q + log_p).mean(0)
        values = {"distortion": distortion.detach(), "rate": rate_for_log(q, p, log_q - log_p)}
        return Terms(share(loss, batch), values, center_for_log(q))
