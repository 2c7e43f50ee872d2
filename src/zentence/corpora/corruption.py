"""Hiding words from the networks while training."""

import torch
from torch import Tensor

from zentence.noise import Noise
from zentence.types import BOS, EOS, PAD, UNK, Batch, Tokens


def hide_words(ids: Tensor, share: float, noise: Noise, *, uneven: bool = False) -> Tensor:
    """Replace a random share of the words of [B, T] by the unknown word; special tokens stay.

    With `uneven` rows differ: 2 · share of them lose a part drawn evenly between none and all, the others nothing. The
    share over all rows is the same; it is at most one half.
    """
    if share <= 0.0:
        return ids
    lost: float | Tensor = share
    if uneven:
        drawn = noise.fork("rows").uniform(1)  # [B, 1]
        lost = torch.where(drawn < 2.0 * share, drawn / (2.0 * share), 0.0)
    hidden = noise.uniform(ids.shape[1]) < lost
    special = (ids == PAD) | (ids == BOS) | (ids == EOS)
    return torch.where(hidden & ~special, UNK, ids)


def corrupt(batch: Batch, word_dropout: float, unknown_inputs: float, noise: Noise, *, uneven: bool = False) -> Batch:
    """Return the batch with words hidden from the decoder's inputs and from the encoder's source."""
    hidden = hide_words(batch.source.ids, unknown_inputs, noise.fork("source"), uneven=uneven)
    source = Tokens(hidden, batch.source.lengths)
    return batch._replace(inputs=hide_words(batch.inputs, word_dropout, noise.fork("inputs")), source=source)
