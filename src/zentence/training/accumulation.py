"""Gradient accumulation: a batch in parts, whose gradients add up to that of the whole.

Every loss is a mean over the sentences of the whole batch, and noise belongs to a sentence, so that the sum over the
parts is the loss of the batch; dropout alone is drawn anew for each part. What looks at a batch as a whole (a hinge on
its mean rate, a distance between its codes and the prior) is no such sum: `Objective.whole_batch` says so, and
settings that ask for both are refused.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from zentence import distributed
from zentence.noise import Noise
from zentence.types import Batch, Terms, Tokens


def parts_of(batch: Batch, noise: Noise, count: int) -> Iterator[tuple[Batch, Noise]]:
    """Yield up to `count` parts of a batch with their noise; every process makes the same number of them."""
    count = max(1, min(count, batch.global_size // distributed.world()))
    for rows in torch.arange(batch.size, device=batch.index.device).tensor_split(count):
        yield _rows(batch, rows), noise._replace(index=noise.index[rows])


def _rows(batch: Batch, rows: Tensor) -> Batch:
    def of(tokens: Tokens) -> Tokens:
        return Tokens(tokens.ids[rows], tokens.lengths[rows])

    return batch._replace(
        source=of(batch.source),
        target=of(batch.target),
        inputs=batch.inputs[rows],
        index=batch.index[rows],
        labels=None if batch.labels is None else batch.labels[rows],
        context=None if batch.context is None else of(batch.context),
        total=batch.global_size,
    )


def joined(parts: Sequence[Terms]) -> Terms:
    """Return the terms of a whole batch, without gradients, from those of its parts.

    The charge for the rate is a share, as losses are, and is added up; other scalars are those of the step.
    """
    if len(parts) == 1:
        return parts[0]
    values = {name: torch.cat([terms.values[name] for terms in parts]) for name in parts[0].values}
    centers = [terms.center for terms in parts if terms.center is not None]
    scalars = dict(parts[-1].scalars)
    if "charge" in scalars:
        scalars["charge"] = sum(terms.scalars["charge"] for terms in parts)
    loss = torch.stack([terms.loss.detach() for terms in parts]).sum()
    return Terms(loss, values, torch.cat(centers) if centers else None, scalars)
