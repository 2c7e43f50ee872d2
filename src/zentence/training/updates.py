"""Update rules: how one step moves the parameters."""

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from zentence import distributed
from zentence.noise import Noise
from zentence.parts import Options as PartOptions
from zentence.settings import OptimizerSettings
from zentence.training.optimizers import add_l2, trained_parameters
from zentence.training.trainable import Trainable
from zentence.types import Batch, Terms


class NonFiniteLossError(Exception):
    """The loss or its gradient is not a number."""


class Joint:
    """All parameters at once."""

    paper: ClassVar[str] = "all"

    class Options(PartOptions):
        pass

    def __init__(
        self, options: Any, trainable: Trainable, optimizer: torch.optim.Optimizer, settings: OptimizerSettings
    ) -> None:
        self.options = options
        self.trainable, self.optimizer, self.settings = trainable, optimizer, settings
        self.parameters: list[nn.Parameter] = trained_parameters(trainable.model)

    def __call__(self, batch: Batch, step: int, noise: Noise) -> tuple[Terms, Tensor]:
        """Update once; return the terms and the loss of the whole batch."""
        self.optimizer.zero_grad(set_to_none=True)
        terms = self.trainable(batch, step, noise)
        (terms.loss * batch.weight).backward()  # type: ignore[no-untyped-call]
        distributed.sum_gradients(self.parameters)
        loss = distributed.total(terms.loss)
        add_l2(self.trainable.model, self.settings.l2)
        norm = nn.utils.clip_grad_norm_(self.parameters, self.settings.clip or float("inf"))
        if not bool(torch.isfinite(loss)) or not bool(torch.isfinite(norm)):
            raise NonFiniteLossError
        self.optimizer.step()
        self.trainable.after_update(terms)
        return terms, loss


UPDATES: dict[str, type[Any]] = {"joint": Joint}
