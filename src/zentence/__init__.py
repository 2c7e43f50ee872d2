"""zentence: latent-variable language models you can train on any text, trust, and use."""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zentence.latent.space import LatentSpace as LatentSpace
    from zentence.settings import load_settings as load_settings
    from zentence.training.run import train as train

__version__ = version("zentence")

_HOMES = {"LatentSpace": "latent.space", "load_settings": "settings", "train": "training.run"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)  # late, so that `zentence --help` is quick
