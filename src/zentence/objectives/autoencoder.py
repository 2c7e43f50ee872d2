"""Auto-encoder and language-model objectives: distortion alone."""

from typing import Literal

from pydantic import Field

from zentence.distributions import rate
from zentence.model import LatentLM
from zentence.noise import Noise
from zentence.objectives.base import Objective, share
from zentence.parts import Options as PartOptions
from zentence.types import Batch, Terms


class AutoEncoder(Objective):
    """Distortion alone: with z sampled (paper 4), or z = the posterior mean (paper 1)."""

    paper = "papers 1, 4 and 5"
    selection = "distortion"

    class Options(PartOptions):
        code: Literal["sample", "mean"] = Field("sample", description="Where z comes from.")

    def forward(self, model: LatentLM, batch: Batch, step: int, noise: Noise) -> Terms:  # noqa: ARG002
        """Return this process's share of D."""
        q = model.infer(batch.source)
        z, log_q = q.rsample_and_log_prob(1, noise)
        used = z if self.options.code == "sample" else q.center[None]
        distortion = -model.log_likelihood(used, batch).mean(0)
        true_rate = rate(q, model.prior_density(), (z.detach(), log_q.detach()))
        values = {"distortion": distortion.detach(), "rate": true_rate.total.detach()}
        return Terms(share(distortion, batch), values, q.center.detach())


class Likelihood(Objective):
    """−log p(x) of a language model: exact."""

    paper = "the language models of papers 2-5"
    selection = "nll"
    needs_code = False

    class Options(PartOptions):
        pass

    def forward(self, model: LatentLM, batch: Batch, step: int, noise: Noise) -> Terms:  # noqa: ARG002
        """Return this process's share of −log p(x)."""
        nll = -model.log_likelihood(None, batch).squeeze(0)
        return Terms(share(nll, batch), {"distortion": nll.detach()})
