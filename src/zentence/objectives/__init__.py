"""Objectives: what is minimised."""

from zentence.objectives.autoencoder import AutoEncoder, Likelihood
from zentence.objectives.base import Objective
from zentence.objectives.elbo import Elbo
from zentence.objectives.rate_rules import RATE_RULES

OBJECTIVES: dict[str, type[Objective]] = {"elbo": Elbo, "autoencoder": AutoEncoder, "likelihood": Likelihood}

__all__ = ["OBJECTIVES", "RATE_RULES", "Objective"]
