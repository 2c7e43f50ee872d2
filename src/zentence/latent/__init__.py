"""Using a trained model's space."""

from zentence.latent.space import LatentSpace

__all__ = ["LatentSpace"]
