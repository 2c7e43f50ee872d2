"""What is evaluated: a model on a split."""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from zentence.corpora import TokenStore, Vocabulary
from zentence.model import LatentLM
from zentence.settings import Settings

Progress = Callable[[str, int, int], None]  # what is computed, items done, items in all


def _silent(what: str, done: int, total: int) -> None: ...


@dataclass
class Subject:
    """A model on a split, and what metrics may need beside them.

    `training` is the text that the model was trained on, where it is at hand: priors made after training, and the
    nearest training sentence of a sample, need it. Nothing is ever fitted to the split itself.
    """

    model: LatentLM
    store: TokenStore
    vocabulary: Vocabulary
    settings: Settings
    split: str
    seed: int = 0
    limit: int | None = None  # only the first N sentences
    training: TokenStore | None = None
    progress: Progress = field(default=_silent)

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return next(self.model.parameters()).device

    @property
    def count(self) -> int:
        """Sentences evaluated."""
        return len(self.store) if self.limit is None else min(self.limit, len(self.store))
