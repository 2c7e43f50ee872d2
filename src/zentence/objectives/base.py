"""What every objective is."""

from typing import Any, ClassVar

from torch import Tensor, nn

from zentence.model import LatentLM
from zentence.noise import Noise
from zentence.parts import Options as PartOptions
from zentence.types import Batch, Terms


class Objective(nn.Module):
    """A loss in nats per sentence, and how a model trained with it is selected.

    `selection` names the validation figure that chooses the best model: `elbo_nll` (the bound at weight 1),
    `distortion`, `nll`, `iw_nll`, or `loss` (this objective itself, its noise held fixed); never an annealed loss.
    State that must survive a restart is in buffers.
    """

    Options: ClassVar[type[PartOptions]]
    selection: str = "elbo_nll"
    needs_code: ClassVar[bool] = True
    paper: ClassVar[str] = ""

    def __init__(self, options: Any, epoch_steps: float, total_steps: int) -> None:
        super().__init__()
        self.options, self.epoch_steps, self.total_steps = options, epoch_steps, total_steps

    def forward(self, model: LatentLM, batch: Batch, step: int, noise: Noise) -> Terms:
        """Return this process's share of the loss; `step` is the stage-local count of updates."""
        raise NotImplementedError

    def after_update(self, terms: Terms) -> None:
        """Move multipliers, from values averaged over processes; called once per update."""


def share(values: Tensor, batch: Batch) -> Tensor:
    """Return this process's share of the mean over the whole batch of values [B]."""
    return values.sum() / batch.global_size
