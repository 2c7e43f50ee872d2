"""What the loop can train: anything with a forward pass that returns Terms, and the model it is about."""

from typing import Protocol

import torch
from torch import nn

from zentence.corpora.corruption import corrupt
from zentence.model import LatentLM
from zentence.noise import Noise
from zentence.objectives import Objective
from zentence.schedules import Schedule
from zentence.types import Batch, Terms


class Trainable(Protocol):
    """The loop's view of what it trains; all state that must survive a restart is in parameters and buffers."""

    @property
    def model(self) -> nn.Module:
        """What is being trained and selected."""

    @property
    def selection(self) -> str:
        """Name of the validation figure that selects the best weights."""

    def __call__(self, batch: Batch, step: int, noise: Noise) -> Terms:
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
    ) -> None:
        super().__init__()
        self.model = model
        self.objective = objective
        self.word_dropout = word_dropout
        self.unknown_inputs = unknown_inputs
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
            batch = corrupt(batch, self.word_dropout(step), self.unknown_inputs, noise.fork("corruption"))
        with torch.autocast(batch.index.device.type, self.autocast, enabled=self.autocast is not None):
            terms: Terms = self.objective(self.model, batch, step, noise)
        return terms

    def after_update(self, terms: Terms) -> None:
        """Let the objective move its multipliers."""
        self.objective.after_update(terms)
