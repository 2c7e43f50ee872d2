"""An encoder that knows which words a sentence has, not their order."""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from zentence.encoders.embedding import own_or_shared
from zentence.initialise import InitialRanges, initialise
from zentence.parts import Options as PartOptions
from zentence.types import UNK, Tokens

_COUNTS = 3  # log(1 + known words), log(1 + unknown words), the share of these


class BagEncoder(nn.Module):
    """A weighted sum of word embeddings of a fixed size, less of it the more of the text is unknown.

    Each word has a weight w. Words are numbered by frequency, and by Zipf's law the logarithm of a word's number stands
    for the logarithm of its rarity: that is the weight to begin with. k = Σ w e over the known words, brought to mean
    square 1. Unknown words are taken for missing ones: they say how much is not known, not what. Features are g · k and
    a few units that see only how many words are known and unknown; the share g is 1 where nothing is unknown, learnt
    elsewhere.
    """

    paper = "bags of words; deep averaging networks (Iyyer et al., 2015)"

    class Options(PartOptions):
        embedding: Literal["own", "decoder"] = Field("own", description="Own word embedding, or the decoder's.")
        embedding_size: int = Field(512, ge=1, description="Width of its own embedding.")
        hidden_size: int = Field(32, ge=1, description="Units that see how many words are known and unknown.")
        initial: InitialRanges = Field(InitialRanges(embedding=None), description="Initial values.")

    def __init__(self, options: Options, vocabulary_size: int, shared_embedding: nn.Embedding | None = None) -> None:
        super().__init__()
        self.options = options
        width = options.embedding_size
        self.embedding = own_or_shared(options.embedding, vocabulary_size, width, shared_embedding)
        width = self.embedding.embedding_dim
        self.importance = nn.Embedding(vocabulary_size, 1)
        self.counting = nn.Linear(_COUNTS, options.hidden_size)
        self.gain = nn.Linear(options.hidden_size, 1)
        self.feature_size = width + options.hidden_size
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new initial values, except for an embedding that belongs to the decoder."""
        for part in (self.counting, self.gain):
            initialise(part, self.options.initial)
        rank = torch.arange(self.importance.num_embeddings, dtype=self.importance.weight.dtype)
        with torch.no_grad():
            self.importance.weight.copy_((rank + 2.0).log()[:, None])
        if self.options.embedding == "own":
            initialise(self.embedding, self.options.initial)

    def forward(self, source: Tokens) -> Tensor:
        """Return features [B, H] of `<bos> words <eos>`, of which the words count."""
        ids, words = source.ids[:, 1:], (source.lengths - 2).clamp(min=0)
        return self._features(self.embedding(ids) * self.importance(ids), words, ids != UNK)

    def forward_embedded(self, embedded: Tensor, lengths: Tensor) -> Tensor:
        """Return features [B, H] of embeddings [B, T, E]: the first `lengths` count, all known and of one weight."""
        return self._features(embedded, lengths, torch.ones_like(embedded[:, :, 0], dtype=torch.bool))

    def _features(self, weighted: Tensor, words: Tensor, is_known: Tensor) -> Tensor:
        """Return features [B, H] of weighted embeddings [B, T, E]: the first `words` of a row count."""
        known = (torch.arange(weighted.shape[1], device=weighted.device) < words[:, None]) & is_known  # [B, T]
        total = torch.where(known[:, :, None], weighted, 0.0).sum(1)  # [B, E]
        content = total * (total.square().mean(1, keepdim=True) + 1e-12).rsqrt()
        found = known.sum(1).to(content)
        missing = words - found
        counts = torch.stack((found.log1p(), missing.log1p(), missing / words.clamp(min=1)), dim=1)
        units = self.counting(counts).tanh()
        gain = 1.0 - counts[:, 2:] * self.gain(units).sigmoid()
        return torch.cat((gain * content, units), dim=1)
