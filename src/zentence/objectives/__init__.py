"""Objectives: what is minimised."""

from zentence.objectives.autoencoder import AutoEncoder, Likelihood
from zentence.objectives.base import Objective
from zentence.objectives.elbo import Elbo
from zentence.objectives.foresight import Foresight
from zentence.objectives.info_vae import InfoVae
from zentence.objectives.iwae import Iwae
from zentence.objectives.mim import Mim
from zentence.objectives.rate_rules import RATE_RULES

OBJECTIVES: dict[str, type[Objective]] = {
    "elbo": Elbo,
    "iwae": Iwae,
    "info_vae": InfoVae,
    "mim": Mim,
    "autoencoder": AutoEncoder,
    "foresight": Foresight,
    "likelihood": Likelihood,
}

__all__ = ["OBJECTIVES", "RATE_RULES", "Objective"]
