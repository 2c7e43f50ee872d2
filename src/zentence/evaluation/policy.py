"""How many codes a sentence gets for its importance-weighted bound."""

from typing import NamedTuple

import torch
from torch import Tensor

LEAST, MOST = 8, 6144  # codes a sentence where their number is chosen


class SamplePolicy(NamedTuple):
    """A fixed number of codes K a sentence, or as many as a sentence's bound needs for a tolerance.

    The logarithm of a mean of K weights has, to first order, variance v/K and bias −v/(2K), v the weights' variance
    over their squared mean. So K = v/tolerance² makes every sentence's standard error the tolerance.
    """

    samples: int | None = None  # K; None: chosen for each sentence by a pilot
    tolerance: float = 0.25  # nats: the standard error of a sentence's bound that the pilot aims at

    @property
    def name(self) -> str:
        """`fixed` or `auto`."""
        return "auto" if self.samples is None else "fixed"

    @property
    def most(self) -> int:
        """The largest number of codes that a sentence can get."""
        return MOST if self.samples is None else self.samples

    def needed(self, relative_variance: Tensor) -> Tensor:
        """Return how many codes [B] sentences need whose weights have these relative variances [B].

        The number is rounded up to one of 8, 12, 16, 24, 32 …, so that sentences can be computed together.
        """
        steps = torch.tensor([step << power for power in range(10) for step in (LEAST, LEAST * 3 // 2)])
        wanted = (relative_variance.cpu() / self.tolerance**2).nan_to_num(nan=MOST, posinf=MOST)
        return steps[torch.searchsorted(steps.double(), wanted.clamp(max=MOST).double())]
