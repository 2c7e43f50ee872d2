"""Hiding words from the networks while training."""

import torch
from torch import Tensor

from zentence.noise import Noise
from zentence.types import BOS, EOS, PAD, UNK, Batch, Tokens


def hide_words(ids: Tensor, share: float, noise: Noise) -> Tensor:
    """Replace a random share of the words of [B, T] by the unknown word; special tokens stay."""
    if share <= 0.0:
        return ids
    hidden = noise.uniform(ids.shape[1]) < share
    special = (ids == PAD) | (ids == BOS) | (ids == EOS)
    return torch.where(hidden & ~special, UNK, ids)


def corrupt(batch: Batch, word_dropout: float, unknown_inputs: float, noise: Noise) -> Batch:
    """Return the batch with words hidden from the decoder's inputs and from the encoder's source."""
    source = Tokens(hide_words(batch.source.ids, unknown_inputs, noise.fork("source")), batch.source.lengths)
    return batch._replace(inputs=hide_words(batch.inputs, word_dropout, noise.fork("inputs")), source=source)
