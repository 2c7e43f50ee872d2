"""Types that every room shares. Shape letters: S samples, B batch, T time, D code, H hidden, V vocabulary."""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor

from zentence.noise import Noise
from zentence.special import BOS as BOS
from zentence.special import EOS as EOS
from zentence.special import PAD as PAD
from zentence.special import SPECIAL_WORDS as SPECIAL_WORDS
from zentence.special import UNK as UNK


class Tokens(NamedTuple):
    """Right-padded token ids and the number of real tokens in each row."""

    ids: Tensor  # [B, T] int64
    lengths: Tensor  # [B] int64

    def mask(self) -> Tensor:
        """Return [B, T] booleans: True at real tokens."""
        return torch.arange(self.ids.shape[1], device=self.ids.device) < self.lengths[:, None]

    def to(self, device: torch.device) -> "Tokens":
        """Return the same tokens on a device."""
        return Tokens(self.ids.to(device, non_blocking=True), self.lengths.to(device, non_blocking=True))


class Batch(NamedTuple):
    """Sentences of (nearly) equal length.

    `source` is what an encoder may read: `<bos> words <eos>`. `target` is what a decoder is scored on: `words <eos>`.
    `inputs` is what it reads meanwhile: `<bos> words`, possibly corrupted. `index` is the sentence's number in its
    split: it restores the order and keys the noise.
    """

    source: Tokens
    target: Tokens
    inputs: Tensor  # [B, T]
    index: Tensor  # type: ignore[assignment]  # [B]
    labels: Tensor | None = None  # [B]
    context: Tokens | None = None
    total: int = 0  # sentences in the whole batch, over all processes; 0: this is the whole batch
    weight: float = 1.0  # its sentences over those of an average batch: makes every sentence count alike

    @property
    def global_size(self) -> int:
        """Number of sentences in the whole batch, over all processes."""
        return self.total or self.size

    @property
    def size(self) -> int:
        """Number of sentences in this process's part of the batch."""
        return int(self.index.shape[0])

    def to(self, device: torch.device) -> "Batch":
        """Return the same batch on a device."""
        return Batch(
            self.source.to(device),
            self.target.to(device),
            self.inputs.to(device, non_blocking=True),
            self.index.to(device, non_blocking=True),
            None if self.labels is None else self.labels.to(device, non_blocking=True),
            None if self.context is None else self.context.to(device),
            self.total,
            self.weight,
        )


@runtime_checkable
class LatentDistribution(Protocol):
    """A density over codes: q(z|x) for B sentences, or a prior with B = 1 that broadcasts."""

    @property
    def center(self) -> Tensor:
        """E[z], [B, D]; for flows an average of samples."""

    @property
    def scale(self) -> Tensor:
        """Standard deviation of each dimension, [B, D]."""

    def rsample_and_log_prob(self, num_samples: int, noise: Noise | None = None) -> tuple[Tensor, Tensor]:
        """Return codes [S, B, D] with gradients, and their log-densities [S, B]; torch's own noise if none is given."""

    def log_prob(self, z: Tensor) -> Tensor:
        """Return log-densities [S, B] of codes [S, B, D], or raise NotInvertibleError."""


InferEmbedded = Callable[[Tensor, Tensor], LatentDistribution]
"""q(z|embeddings [B, T, E], lengths [B]): lets a prior encode pseudo-inputs without holding the encoder."""


class Terms(NamedTuple):
    """What an objective returns.

    `loss` is this process's share of the loss in nats per sentence: summed over processes it is the mean over the
    whole batch. `values` are named [B] quantities for the log (`distortion`, `rate`, …), without gradients;
    `center` the posterior means [B, D] where there is a posterior; `scalars` what belongs to no sentence (β, …).
    """

    loss: Tensor
    values: dict[str, Tensor]
    center: Tensor | None = None
    scalars: dict[str, float] = {}  # noqa: RUF012 - never written to


State = Any  # a decoder's own state while it generates; only that decoder looks inside
