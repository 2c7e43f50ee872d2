"""Priors: p(z)."""

from torch import nn

from zentence.priors.standard_normal import StandardNormalPrior

PRIORS: dict[str, type[nn.Module]] = {"standard_normal": StandardNormalPrior}
