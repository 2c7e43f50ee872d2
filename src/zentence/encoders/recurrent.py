"""Encoders that read a sentence word by word."""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from zentence.errors import ZentenceError
from zentence.initialise import InitialRanges, initialise
from zentence.parts import Options as PartOptions
from zentence.types import Tokens


class RecurrentEncoder(nn.Module):
    """LSTM or GRU; the feature vector is the last hidden state of the top layer, of each direction read."""

    paper = "papers 1-4"

    class Options(PartOptions):
        cell: Literal["lstm", "gru"] = Field("lstm", description="Kind of recurrence.")
        layers: int = Field(1, ge=1, le=2, description="Number of layers.")
        hidden_size: int = Field(256, ge=1, description="Width of the state, per direction.")
        embedding: Literal["own", "decoder"] = Field("own", description="Own word embedding, or the decoder's.")
        embedding_size: int = Field(256, ge=1, description="Width of its own embedding.")
        direction: Literal["forward", "backward", "both"] = Field(
            "forward", description="Reading order; backward reverses the input."
        )
        reads: Literal["words", "words_eos", "bos_words_eos"] = Field(
            "bos_words_eos", description="Which tokens are read."
        )
        dropout: float = Field(0.0, ge=0.0, lt=1.0, description="Dropout on the embeddings.")
        initial: InitialRanges = Field(InitialRanges(), description="Initial values.")

    def __init__(self, options: Options, vocabulary_size: int, shared_embedding: nn.Embedding | None = None) -> None:
        super().__init__()
        self.options = options
        if options.embedding == "decoder":
            if shared_embedding is None:
                raise ZentenceError("encoder.embedding = 'decoder': this decoder has no word embedding to share")
            self.embedding = shared_embedding
        else:
            self.embedding = nn.Embedding(vocabulary_size, options.embedding_size)
        cell = nn.LSTM if options.cell == "lstm" else nn.GRU
        directions = 2 if options.direction == "both" else 1
        width = self.embedding.embedding_dim
        self.recurrences = nn.ModuleList(
            cell(width, options.hidden_size, options.layers, batch_first=True) for _ in range(directions)
        )
        self.dropout = nn.Dropout(options.dropout)
        self.feature_size = directions * options.hidden_size
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new initial values, except for an embedding that belongs to the decoder."""
        initialise(self.recurrences, self.options.initial)
        if self.options.embedding == "own":
            initialise(self.embedding, self.options.initial)

    def forward(self, source: Tokens) -> Tensor:
        """Return features [B, H] of `<bos> words <eos>`."""
        ids, lengths = source
        if self.options.reads != "bos_words_eos":
            ids, lengths = ids[:, 1:], lengths - 1
        if self.options.reads == "words":
            ids, lengths = ids[:, : max(1, ids.shape[1] - 1)], (lengths - 1).clamp(min=1)
        return self.forward_embedded(self.embedding(ids), lengths)

    def forward_embedded(self, embedded: Tensor, lengths: Tensor) -> Tensor:
        """Return features [B, H] of embeddings [B, T, E], of which the first `lengths` count."""
        embedded = self.dropout(embedded)
        orders = {"forward": [False], "backward": [True], "both": [False, True]}[self.options.direction]
        last = (lengths - 1)[:, None, None]
        features = []
        for recurrence, backward in zip(self.recurrences, orders, strict=True):
            read = reverse_within_length(embedded, lengths) if backward else embedded
            states, _ = recurrence(read)  # [B, T, H]
            features.append(states.gather(1, last.expand(-1, 1, states.shape[2])).squeeze(1))
        return torch.cat(features, dim=1)


def reverse_within_length(embedded: Tensor, lengths: Tensor) -> Tensor:
    """Reverse the first `lengths` steps of each row [B, T, E]; padding stays at the end."""
    position = torch.arange(embedded.shape[1], device=embedded.device)
    mirrored = lengths[:, None] - 1 - position
    mirrored = torch.where(mirrored >= 0, mirrored, position)  # [B, T]
    return embedded.gather(1, mirrored[:, :, None].expand_as(embedded))
