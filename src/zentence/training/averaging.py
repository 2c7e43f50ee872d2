"""An exponential average of weights over updates, and training that validates and keeps it instead of the last ones."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from zentence.errors import ZentenceError
from zentence.training.optimizers import trained_parameters


class WeightAverage:
    """ā ← d ā + (1 − d) θ after each update, over the trained parameters of a model.

    Early on d is (1 + n) / (10 + n) after n updates where that is smaller, so that the initial values are soon
    forgotten. Parameters that are not trained, and buffers, are the model's own.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.parameters = trained_parameters(model)
        self.values = [p.detach().clone() for p in self.parameters]

    @torch.no_grad()
    def update(self, updates: int) -> None:
        """Take in the present weights, after so many updates of the stage."""
        decay = min(self.decay, (1.0 + updates) / (10.0 + updates))
        torch._foreach_lerp_(self.values, [p.detach() for p in self.parameters], 1.0 - decay)

    @torch.no_grad()
    def restart(self) -> None:
        """Begin again with the present weights."""
        torch._foreach_copy_(self.values, [p.detach() for p in self.parameters])

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Give the model the average for a while."""
        kept = [p.detach().clone() for p in self.parameters]
        self._set(self.values)
        try:
            yield
        finally:
            self._set(kept)

    @torch.no_grad()
    def _set(self, values: list[Tensor]) -> None:
        torch._foreach_copy_([p.detach() for p in self.parameters], values)

    def tensors(self) -> dict[str, Tensor]:
        """Return the average as tensors named by the parameter's number."""
        return {str(number): value.cpu().contiguous() for number, value in enumerate(self.values)}

    def load(self, tensors: dict[str, Tensor]) -> None:
        """Restore what `tensors` returned."""
        if {name: value.shape for name, value in tensors.items()} != {
            str(number): value.shape for number, value in enumerate(self.values)
        }:
            raise ZentenceError("the checkpoint's average of weights does not fit these settings")
        for number, value in enumerate(self.values):
            value.copy_(tensors[str(number)])
