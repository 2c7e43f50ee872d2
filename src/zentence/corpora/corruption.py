"""Hiding words from the networks while training."""

import torch
from torch import Tensor

from zentence.noise import Noise
from zentence.settings import Hidden
from zentence.types import BOS, EOS, PAD, UNK, Batch, Tokens


def hide_words(ids: Tensor, share: float, noise: Noise, *, where: Hidden = "anywhere") -> Tensor:
    """Replace a random share of the words of [B, T] by the unknown word; special tokens stay.

    Unless words are hidden "anywhere", rows differ: 2 · share of them lose a part drawn evenly between none and all,
    the others nothing. "uneven" takes that part anywhere, "end" the last words. The share over all rows is the same; it
    is at most one half.
    """
    if share <= 0.0:
        return ids
    special = (ids == PAD) | (ids == BOS) | (ids == EOS)
    if where == "anywhere":
        return torch.where((noise.uniform(ids.shape[1]) < share) & ~special, UNK, ids)
    drawn = noise.fork("rows").uniform(1)  # [B, 1]
    lost = torch.where(drawn < 2.0 * share, drawn / (2.0 * share), 0.0)
    if where == "uneven":
        hidden = noise.uniform(ids.shape[1]) < lost
    else:
        words = (~special).cumsum(1)  # [B, T]: the number of each word
        hidden = words > (1.0 - lost) * words[:, -1:]
    return torch.where(hidden & ~special, UNK, ids)


def corrupt(
    batch: Batch, word_dropout: float, unknown_inputs: float, noise: Noise, where: Hidden = "anywhere"
) -> Batch:
    """Return the batch with words hidden from the decoder's inputs and from the encoder's source."""
    hidden = hide_words(batch.source.ids, unknown_inputs, noise.fork("source"), where=where)
    source = Tokens(hidden, batch.source.lengths)
    return batch._replace(inputs=hide_words(batch.inputs, word_dropout, noise.fork("inputs")), source=source)
