"""Encoders that read a sentence word by word."""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from zentence.encoders.embedding import own_or_shared
from zentence.initialise import InitialRanges, initialise
from zentence.parts import Options as PartOptions
from zentence.recurrence import all_states
from zentence.types import Tokens

GROUPS, MOST_PADDED = 4, 0.6  # rows whose words fill less than this share of the rectangle are read in so many groups


class RecurrentEncoder(nn.Module):
    """LSTM or GRU; features are the top layer's last hidden state, or its mean or maximum over the words."""

    paper = "papers 1-4 (last state); pooling: Long et al. 2019, against posterior collapse"

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
        pooling: Literal["last", "mean", "max"] = Field(
            "last", description="How the states of a sentence become one vector, for each direction."
        )
        dropout: float = Field(0.0, ge=0.0, lt=1.0, description="Dropout on the embeddings.")
        initial: InitialRanges = Field(InitialRanges(), description="Initial values.")

    def __init__(self, options: Options, vocabulary_size: int, shared_embedding: nn.Embedding | None = None) -> None:
        super().__init__()
        self.options = options
        width = options.embedding_size
        self.embedding = own_or_shared(options.embedding, vocabulary_size, width, shared_embedding)
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
        """Return features [B, H] of embeddings [B, T, E], of which the first `lengths` count.

        Rows of very different lengths (a VampPrior's pseudo-inputs) are read in groups of similar ones: less padding.
        """
        embedded = self.dropout(embedded)
        B, T = embedded.shape[:2]
        if B < 4 * GROUPS or float(lengths.sum()) > MOST_PADDED * B * T:
            return self._read(embedded, lengths)
        order = lengths.argsort()
        groups = [(embedded[rows, : int(lengths[rows].max())], lengths[rows]) for rows in order.chunk(GROUPS)]
        return torch.cat([self._read(*group) for group in groups])[order.argsort()]

    def _read(self, embedded: Tensor, lengths: Tensor) -> Tensor:
        orders = {"forward": [False], "backward": [True], "both": [False, True]}[self.options.direction]
        features = []
        for recurrence, backward in zip(self.recurrences, orders, strict=True):
            read = reverse_within_length(embedded, lengths) if backward else embedded
            features.append(self._pool(all_states(recurrence, read), lengths))  # type: ignore[arg-type]
        return torch.cat(features, dim=1)

    def _pool(self, states: Tensor, lengths: Tensor) -> Tensor:
        """Return one vector [B, H] for states [B, T, H] of which the first `lengths` count."""
        if self.options.pooling == "last":
            last = (lengths - 1)[:, None, None].expand(-1, 1, states.shape[2])
            return states.gather(1, last).squeeze(1)
        real = (torch.arange(states.shape[1], device=states.device) < lengths[:, None])[:, :, None]
        if self.options.pooling == "mean":
            return torch.where(real, states, 0.0).sum(1) / lengths[:, None]
        return torch.where(real, states, -torch.inf).amax(1)


def reverse_within_length(embedded: Tensor, lengths: Tensor) -> Tensor:
    """Reverse the first `lengths` steps of each row [B, T, E]; padding stays at the end."""
    position = torch.arange(embedded.shape[1], device=embedded.device)
    mirrored = lengths[:, None] - 1 - position
    mirrored = torch.where(mirrored >= 0, mirrored, position)  # [B, T]
    return embedded.gather(1, mirrored[:, :, None].expand_as(embedded))
