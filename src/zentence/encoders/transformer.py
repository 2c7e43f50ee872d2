"""Encoders that are transformers: BERT and its like, from scratch or from pre-trained weights."""

from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from zentence.corpora import Vocabulary
from zentence.errors import ZentenceError
from zentence.huggingface import (
    TransformerOptions,
    check_length,
    configuration,
    evaluating,
    find_weights,
    layers_of,
    load_weights,
    new_network,
    position_limit,
    reads_ahead,
    recompute_layers,
    reset_network,
)
from zentence.types import Tokens

_KIND = "AutoModel"


class TransformerEncoder(nn.Module):
    """Bidirectional transformer; features are the first token's state, through tanh or raw, or the mean over tokens.

    The sentence is read as `<bos> words <eos>`: `<bos>` stands where BERT has [CLS].
    """

    paper = "paper 5"

    class Options(TransformerOptions):
        family: ClassVar[str] = "encoder"

        architecture: str = Field("bert", description="Any encoder of transformers: bert, roberta, distilbert, …")
        pooling: Literal["cls_tanh", "cls", "mean"] = Field(
            "cls_tanh",
            description="How states become one vector: the first through a linear map and tanh; the first; the mean.",
        )

    def __init__(self, options: Options, vocabulary_size: int, shared_embedding: nn.Embedding | None = None) -> None:  # noqa: ARG002
        super().__init__()
        self.options = options
        self.config = configuration(options, vocabulary_size)
        self.network = self._new_network()
        self.feature_size: int = self.config.hidden_size
        self.pooler = nn.Linear(self.feature_size, self.feature_size) if options.pooling == "cls_tanh" else None
        self._reset_pooler()
        self._check()

    def _new_network(self) -> Any:
        network = new_network(_KIND, self.config)
        if getattr(network, "pooler", None) is not None:
            network.pooler = None  # ours takes its place
        if self.options.recompute:
            recompute_layers(network)
        return network

    @property
    def positions(self) -> int:
        """Tokens of the longest sentence that can be read: `<bos>` and `<eos>` take their places."""
        return position_limit(self.network) - 2

    def new_maps(self) -> list[nn.Module]:
        """Return what stands between the network and the code."""
        return [] if self.pooler is None else [self.pooler]

    def last_layers(self, count: int) -> list[nn.Module]:
        """Return the last layers of the network, or all if there are fewer."""
        return layers_of(self.network)[-count:]

    def _reset_pooler(self) -> None:
        if self.pooler is not None:
            nn.init.normal_(self.pooler.weight, std=getattr(self.config, "initializer_range", 0.02))
            nn.init.zeros_(self.pooler.bias)

    def _check(self) -> None:
        """Refuse to take the first token's state from a network in which it sees no other."""
        if self.options.pooling == "mean":
            return
        with evaluating(self.network):
            lengths = torch.tensor([3])
            if not reads_ahead(lambda x: self._states(x, lengths), self.embedding.embedding_dim):
                raise ZentenceError(
                    f"'{self.config.model_type}' is no encoder: its first token sees no word. "
                    "Take bert, or set encoder.pooling = 'mean'"
                )

    @property
    def embedding(self) -> nn.Embedding:
        """The word embedding."""
        found: nn.Embedding = self.network.get_input_embeddings()
        return found

    def reset_parameters(self) -> None:
        """Draw new initial values; pre-trained weights are lost."""
        reset_network(self.network, self._new_network())
        self._reset_pooler()

    def load_pretrained(self, vocabulary: Vocabulary) -> None:
        """Take up the pre-trained weights that the options name, if any, and their pooling layer if they have one."""
        if self.options.weights is None:
            return
        folder = find_weights(self.options.weights, "encoder.weights")
        trained = load_weights(self.network, _KIND, folder, vocabulary.words)
        dense = getattr(getattr(trained, "pooler", None), "dense", None)
        if self.pooler is not None and isinstance(dense, nn.Linear):
            with torch.no_grad():
                self.pooler.weight.copy_(dense.weight)
                self.pooler.bias.copy_(dense.bias)

    def forward(self, source: Tokens) -> Tensor:
        """Return features [B, H] of `<bos> words <eos>`."""
        return self.forward_embedded(self.embedding(source.ids), source.lengths)

    def forward_embedded(self, embedded: Tensor, lengths: Tensor) -> Tensor:
        """Return features [B, H] of embeddings [B, T, E], of which the first `lengths` count."""
        longest = int(lengths.max())
        check_length(longest, position_limit(self.network), "encoder")
        states = self._states(embedded[:, :longest], lengths)
        if self.options.pooling == "mean":
            return torch.where(_real(states, lengths)[:, :, None], states, 0.0).sum(1) / lengths[:, None]
        first = states[:, 0]
        return first if self.pooler is None else torch.tanh(self.pooler(first))

    def _states(self, embedded: Tensor, lengths: Tensor) -> Tensor:
        real = _real(embedded, lengths).long()
        states: Tensor = self.network(inputs_embeds=embedded, attention_mask=real).last_hidden_state
        return states


def _real(states: Tensor, lengths: Tensor) -> Tensor:
    """Return [B, T] booleans: True at the first `lengths` of states [B, T, H]."""
    return torch.arange(states.shape[1], device=states.device) < lengths[:, None]
