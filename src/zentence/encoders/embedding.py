"""The word embedding that an encoder reads with."""

from typing import Literal

from torch import nn

from zentence.errors import ZentenceError


def own_or_shared(
    whose: Literal["own", "decoder"], vocabulary_size: int, width: int, shared: nn.Embedding | None
) -> nn.Embedding:
    """Return a new embedding, or the decoder's."""
    if whose == "own":
        return nn.Embedding(vocabulary_size, width)
    if shared is None:
        raise ZentenceError("encoder.embedding = 'decoder': this decoder has no word embedding to share")
    return shared
