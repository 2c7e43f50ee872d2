"""Tiny models and contract checks, public so that other people's parts can be tested with them."""

from zentence.testing.tiny import random_batch, tiny_model, tiny_settings

__all__ = ["random_batch", "tiny_model", "tiny_settings"]
