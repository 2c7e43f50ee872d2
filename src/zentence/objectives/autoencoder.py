"""Auto-encoder and language-model objectives: distortion alone."""

from typing import Literal

import torch
from pydantic import Field

from zentence.distributions import rate
from zentence.model import LatentLM
from zentence.noise import Noise
from zentence.objectives.base import Objective, center_for_log, share
from zentence.parts import Options as PartOptions
from zentence.types import Batch, Terms


class AutoEncoder(Objective):
    """Distortion alone: with z sampled (paper 4), or z = the posterior mean (paper 1)."""

    paper = "papers 1, 4 and 5"
    selection = "distortion"

    class Options(PartOptions):
        code: Literal["sample", "mean"] = Field("sample", description="Where z comes from.")

    def forward(self, model: LatentLM, batch: Batch, step: int, noise: Noise) -> Terms:  # noqa: ARG002
        """Return this process's share of D; the rate is for the log only."""
        q, codes = model.infer(batch.source), model.averaged_codes
        z, log_q = q.rsample_and_log_prob(codes, noise)
        used = z if self.options.code == "sample" else q.center.expand(codes, -1, -1)
        distortion = -model.log_likelihood(used, batch).mean(0)
        with torch.no_grad():
            true_rate = rate(q, model.prior_density(), (z, log_q))
        values = {"distortion": distortion.detach(), "rate": true_rate.total}
        return Terms(share(distortion, batch), values, center_for_log(q))


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
