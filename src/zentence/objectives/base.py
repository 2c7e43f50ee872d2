"""What every objective is, and what several of them share."""

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from zentence import distributed
from zentence.distributions import DiagonalGaussian, has_closed_form_rate, rate
from zentence.model import LatentLM
from zentence.noise import Noise
from zentence.parts import Options as PartOptions
from zentence.parts import plain
from zentence.types import Batch, LatentDistribution, Terms


class Objective(nn.Module):
    """A loss in nats per sentence, and how a model trained with it is selected.

    `selection` names the validation figure that chooses the best model: `elbo_nll` (the bound at weight 1),
    `distortion`, `nll`, `iw_nll`, or `loss` (this objective itself, its noise held fixed); never an annealed loss.
    `needs_closed_form` says what in it needs a KL in closed form ("" for nothing): with a posterior and a prior that
    have none, training is refused before it begins. `whole_batch` says what in it is no mean over sentences, but looks
    at the batch as a whole ("" for nothing): batches can then not be worked through in parts. With
    `needs_density_elsewhere` q(z|x) is asked for at codes that are not its own samples. State that must survive a
    restart is in buffers.
    """

    Options: ClassVar[type[PartOptions]]
    selection: str = "elbo_nll"
    needs_code: ClassVar[bool] = True
    needs_closed_form: str = ""
    whole_batch: str = ""
    needs_density_elsewhere: ClassVar[bool] = False
    paper: ClassVar[str] = ""

    def __init__(self, options: Any, epoch_steps: float, total_steps: int) -> None:
        super().__init__()
        self.options, self.epoch_steps, self.total_steps = options, epoch_steps, total_steps

    def written_out(self) -> dict[str, Any]:
        """Return every option as plain values, defaults included."""
        return plain(self.options)

    def forward(self, model: LatentLM, batch: Batch, step: int, noise: Noise) -> Terms:
        """Return this process's share of the loss; `step` is the stage-local count of updates."""
        raise NotImplementedError

    def after_update(self, terms: Terms) -> None:
        """Move multipliers, from values averaged over processes; called once per update."""


def share(values: Tensor, batch: Batch) -> Tensor:
    """Return this process's share of the mean over the whole batch of values [B]."""
    return values.sum() / batch.global_size


def holders(batch: Batch) -> int:
    """Return the number of processes that hold a part of this batch; 1 if it is not spread over them."""
    return distributed.world() if batch.total else 1


def whole(part: Tensor, batch: Batch) -> Tensor:
    """Return the sum of all processes' shares, without gradient; a batch that is not spread is its own sum."""
    return distributed.total(part) if batch.total else part.detach()


def gather_rows(own: Tensor, batch: Batch) -> Tensor:
    """Return the rows of the whole batch [N, D] from this process's [B, D]; only its own carry a gradient.

    Process r of w holds rows r, r + w, … of every batch. Each writes its rows into zeros, and the sum is all of them.
    """
    if holders(batch) == 1:
        return own
    places = torch.arange(distributed.rank(), batch.total, distributed.world(), device=own.device)
    alone = own.new_zeros(batch.total, own.shape[1]).index_copy(0, places, own.detach())
    return distributed.total(alone).index_copy(0, places, own)


def equal_share(value: Tensor, batch: Batch) -> Tensor:
    """Return an equal share of a value that every process computed from the rows of the whole batch, all its gradient.

    With `gather_rows` the gradient is that of the process's own rows, its part of the whole one.
    """
    return value - (1.0 - 1.0 / holders(batch)) * value.detach()


@torch.no_grad()
def rate_for_log(q: LatentDistribution, p: LatentDistribution, log_ratio: Tensor) -> Tensor:
    """Return KL(q‖p) [B] without gradient: in closed form, else the mean of log q(z|x) − log p(z) [S, B]."""
    return rate(q, p).total if has_closed_form_rate(q, p) else log_ratio.mean(0)


def center_for_log(q: LatentDistribution) -> Tensor | None:
    """Return the posterior means [B, D] for the log if they cost nothing: a Gaussian's.

    The mean of a flow is an average over many samples, too dear for each step, and cheaper stand-ins mislead: with one
    sample a piece every unit looks active. So the log of a flow's steps shows no active units; validation does.
    """
    return q.mean.detach() if isinstance(q, DiagonalGaussian) else None
