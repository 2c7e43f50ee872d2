"""Posteriors: features → q(z|x)."""

from torch import nn

from zentence.posteriors.gaussian import GaussianPosterior
from zentence.posteriors.iaf import IafPosterior
from zentence.posteriors.planar import PlanarPosterior

POSTERIORS: dict[str, type[nn.Module]] = {
    "gaussian": GaussianPosterior,
    "iaf": IafPosterior,
    "planar": PlanarPosterior,
}
