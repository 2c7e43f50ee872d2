"""Posteriors: features → q(z|x)."""

from torch import nn

from zentence.posteriors.gaussian import GaussianPosterior

POSTERIORS: dict[str, type[nn.Module]] = {"gaussian": GaussianPosterior}
