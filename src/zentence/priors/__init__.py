"""Priors: p(z)."""

from torch import nn

from zentence.priors.mixture import MixturePrior
from zentence.priors.standard_normal import StandardNormalPrior
from zentence.priors.vamp import VampPrior

PRIORS: dict[str, type[nn.Module]] = {
    "standard_normal": StandardNormalPrior,
    "mixture": MixturePrior,
    "vamp": VampPrior,
}
