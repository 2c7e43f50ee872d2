"""What the loop can train: anything with a forward pass that returns Terms, and the model it is about."""

from typing import Any, Protocol

import torch
from torch import Tensor, nn

from zentence.corpora.corruption import corrupt
from zentence.model import LatentLM
from zentence.noise import Noise
from zentence.objectives import Objective
from zentence.schedules import Schedule
from zentence.settings import Hidden
from zentence.types import Batch, Terms


class Rows(Protocol):
    """The loop's view of a batch: numbered rows; a `Batch` of sentences is one."""

    @property
    def index(self) -> Tensor:
        """The rows' numbers [B] in their split: they key the noise."""

    @property
    def size(self) -> int:
        """Number of rows."""

    @property
    def weight(self) -> float:
        """Its rows over those of an average batch."""

    def to(self, device: torch.device) -> "Rows":
        """Return the same rows on a device."""


class BatchSource(Protocol):
    """Makes any batch of any pass over the training rows directly, so that a restart needs no replay."""

    def __len__(self) -> int:
        """Return the number of batches in a pass."""

    def batch(self, epoch: int, position: int) -> Rows:
        """Return the batch at a position of a pass."""


class Trainable(Protocol):
    """The loop's view of what it trains; all state that must survive a restart is in parameters and buffers."""

    @property
    def model(self) -> nn.Module:
        """What is being trained and selected."""

    @property
    def selection(self) -> str:
        """Name of the validation figure that selects the best weights."""

    def __call__(self, batch: Any, step: int, noise: Noise) -> Terms:
        """Return the loss of a batch."""

    def after_update(self, terms: Terms) -> None:
        """Called once after each update."""

    def module(self) -> nn.Module:
        """Return the module that holds all state."""


class LatentTrainable(nn.Module):
    """A LatentLM with an objective and a corruption of its inputs."""

    def __init__(
        self,
        model: LatentLM,
        objective: Objective,
        word_dropout: Schedule,
        unknown_inputs: float = 0.0,
        autocast: torch.dtype | None = None,
        *,
        hidden: Hidden = "anywhere",
    ) -> None:
        super().__init__()
        self.model = model
        self.objective = objective
        self.word_dropout = word_dropout
        self.unknown_inputs, self.hidden = unknown_inputs, hidden
        self.autocast = autocast

    @property
    def selection(self) -> str:
        """Name of the validation figure that selects the best model."""
        return self.objective.selection

    def module(self) -> nn.Module:
        """Return the module that holds all state."""
        return self

    def forward(self, batch: Batch, step: int, noise: Noise) -> Terms:
        """Return the objective's terms; inputs are corrupted while training only."""
        if self.training:
            hiding = noise.fork("corruption")
            batch = corrupt(batch, self.word_dropout(step), self.unknown_inputs, hiding, self.hidden)
        with torch.autocast(batch.index.device.type, self.autocast, enabled=self.autocast is not None):
            terms: Terms = self.objective(self.model, batch, step, noise)
        return terms

    def after_update(self, terms: Terms) -> None:
        """Let the objective move its multipliers."""
        self.objective.after_update(terms)
