"""Decoders that are causal transformers: GPT-2, Llama and their like, from scratch or from pre-trained weights."""

from typing import Any, ClassVar, NamedTuple

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from zentence.corpora import Vocabulary
from zentence.decoders.injection import Injection, memory_cache
from zentence.decoders.readout import TRAINING_WORDS, word_log_prob
from zentence.errors import ZentenceError
from zentence.huggingface import (
    TransformerOptions,
    check_length,
    configuration,
    evaluating,
    find_weights,
    layers_of,
    library,
    load_weights,
    new_network,
    reads_ahead,
    recompute_layers,
    reset_network,
)
from zentence.types import EOS, Tokens

_KIND = "AutoModelForCausalLM"
KeysAndValues = list[tuple[Tensor, Tensor]]  # of each layer, [S·B, heads, positions, head size]


class TransformerState(NamedTuple):
    """Where a transformer decoder stands: what B sentences, with S codes each, have attended to so far."""

    seen: KeysAndValues
    code: Tensor | None  # [S, B, D]
    samples: int  # S
    batch: int  # B

    def select(self, rows: Tensor) -> "TransformerState":
        """Return the state of some of the sentences, in a new order; a row may be taken several times."""
        starts = torch.arange(self.samples, device=rows.device)[:, None] * self.batch
        flat = (starts + rows).reshape(-1)  # rows of [S·B]
        seen = [(keys[flat], values[flat]) for keys, values in self.seen]
        return TransformerState(seen, None if self.code is None else self.code[:, rows], self.samples, len(rows))


class TransformerDecoder(nn.Module):
    """Causal transformer that reads the code as memory and/or in every embedding; without a code, a language model."""

    paper = "paper 5"

    class Options(TransformerOptions):
        family: ClassVar[str] = "decoder"

        architecture: str = Field("gpt2", description="Any causal language model of transformers: gpt2, llama, …")
        key_value_heads: int | None = Field(
            None, ge=1, description="Heads of keys and values where the architecture shares them; none: one each."
        )
        tied: bool = Field(True, description="Output weights = word embedding.")
        training_words: int | None = Field(None, ge=1, description=TRAINING_WORDS)
        memory: bool = Field(True, description="The code is one more position that every word attends to (W_M).")
        embedding: bool = Field(True, description="The code is added to every word's embedding (W_D).")
        code_spread: float | None = Field(
            None,
            gt=0.0,
            description="Standard deviation of the initial W_M and W_D; none: 0.02 for W_M, and for W_D what makes "
            "the code's share as large as a word's embedding.",
        )

        @model_validator(mode="after")
        def _grouped(self) -> "TransformerDecoder.Options":
            if self.key_value_heads is not None and self.heads % self.key_value_heads:
                raise ValueError(f"{self.key_value_heads} heads of keys do not divide {self.heads} heads")
            return self

    def __init__(self, options: Options, vocabulary_size: int, code_size: int) -> None:
        super().__init__()
        if code_size and not (options.memory or options.embedding):
            raise ZentenceError("decoder: without memory and without embedding the code is not read: set one of them")
        self.options = options
        self.code_size = code_size
        further: dict[str, Any] = {"tie_word_embeddings": options.tied}
        if options.key_value_heads is not None:
            further["num_key_value_heads"] = options.key_value_heads
        self.config = configuration(options, vocabulary_size, **further)
        self.network: Any = new_network(_KIND, self.config)
        self.injection = Injection(code_size, self.config, memory=options.memory, embedding=options.embedding)
        self._reset_injection()
        self._check()
        if options.recompute:
            recompute_layers(self.network)

    @property
    def positions(self) -> int:
        """Tokens of the longest sentence that can be read: `<bos>` and memory take their places."""
        return int(self.config.max_position_embeddings) - 1 - self.injection.positions

    def new_maps(self) -> list[nn.Module]:
        """Return what the code is read through: W_M and W_D."""
        return [self.injection]

    def last_layers(self, count: int) -> list[nn.Module]:
        """Return the last layers of the network, or all if there are fewer."""
        return layers_of(self.network)[-count:]

    def _reset_injection(self) -> None:
        self.injection.reset_parameters(self.options.code_spread, float(self.embedding.weight.detach().std()))

    def _check(self) -> None:
        """Refuse networks that see later words, or whose scores are not a product with the output weights."""
        name = self.config.model_type
        with evaluating(self.network):
            if reads_ahead(lambda x: self._read(x, [])[0], self.embedding.embedding_dim):
                raise ZentenceError(f"'{name}' is no decoder: its words see those that follow. Take gpt2 or llama")
            ids = torch.tensor([[1, 2]])
            hidden, _ = self._read(self.embedding(ids), [])
            features, weight, bias = self._readout(hidden)
            own = self.network(input_ids=ids).logits
            if not torch.allclose(nn.functional.linear(features, weight, bias), own, atol=1e-4):
                raise ZentenceError(f"'{name}' does not score words by a plain product. Take gpt2 or llama")

    @property
    def embedding(self) -> nn.Embedding:
        """The word embedding."""
        found: nn.Embedding = self.network.get_input_embeddings()
        return found

    def reset_parameters(self) -> None:
        """Draw new initial values; pre-trained weights are lost."""
        reset_network(self.network, new_network(_KIND, self.config))
        self._reset_injection()

    def load_pretrained(self, vocabulary: Vocabulary) -> None:
        """Take up the pre-trained weights that the options name, if any."""
        if self.options.weights is not None:
            folder = find_weights(self.options.weights, "decoder.weights")
            load_weights(self.network, _KIND, folder, vocabulary.words)
            self._reset_injection()  # their embeddings are of another size

    def _read(self, embedded: Tensor, seen: KeysAndValues) -> tuple[Tensor, KeysAndValues]:
        """Return states [N, T, H] for embeddings [N, T, H] after what was seen, and all that is seen then.

        Padding stands at the end, where causal attention keeps it from every word: no mask is needed.
        """
        cache = library().DynamicCache(seen) if seen else library().DynamicCache()
        out = self.network.base_model(inputs_embeds=embedded, past_key_values=cache, use_cache=True)
        return out.last_hidden_state, [(layer.keys, layer.values) for layer in cache.layers]

    def _embed(self, ids: Tensor, z: Tensor | None) -> Tensor:
        """Return embeddings [S, B, T, H] of ids [B, T], with what the code adds."""
        embedded: Tensor = self.embedding(ids)[None]
        if z is None:
            return embedded
        added = self.injection.added(z)
        return embedded.expand(z.shape[0], -1, -1, -1) if added is None else embedded + added[:, :, None]

    def hidden_states(self, z: Tensor | None, inputs: Tensor) -> Tensor:
        """Return hidden states [S, B, T, H] for codes [S, B, D] and gold inputs [B, T]; S = 1 without a code."""
        check_length(inputs.shape[1] + self.injection.positions, self.config.max_position_embeddings, "decoder")
        embedded = self._embed(inputs, z)
        memory = [] if z is None else self.injection.memory(z.flatten(0, 1))
        seen = memory_cache(memory) if memory else None
        out = self.network.base_model(
            inputs_embeds=embedded.flatten(0, 1), past_key_values=seen, use_cache=seen is not None
        )
        hidden: Tensor = out.last_hidden_state
        return hidden.view(embedded.shape)

    def _readout(self, hidden: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return (features, weight, bias) whose product gives the scores of all words."""
        output = self.network.get_output_embeddings()
        return hidden, output.weight, getattr(output, "bias", None)

    def token_log_prob(self, hidden: Tensor, target: Tokens) -> Tensor:
        """Return log p(target token | hidden) as [S, B, T]: zero at padding."""
        S, B, T, H = hidden.shape
        mask = target.mask().expand(S, B, T).reshape(-1)
        rows = mask.nonzero().squeeze(1)
        ids = target.ids.expand(S, B, T).reshape(-1)
        words = self.options.training_words if self.training else None
        log_prob = word_log_prob(*self._readout(hidden.reshape(-1, H)[rows]), ids[rows], words)
        return log_prob.new_zeros(S * B * T).index_copy(0, rows, log_prob).view(S, B, T)

    def start(self, z: Tensor | None, batch: int) -> TransformerState:
        """Return the state before the first word, for codes [S, B, D], or for `batch` sentences without a code."""
        if z is None:
            return TransformerState([], None, 1, batch)
        return TransformerState(self.injection.memory(z.flatten(0, 1)), z, z.shape[0], z.shape[1])

    def advance(self, token: Tensor, state: TransformerState) -> tuple[Tensor, TransformerState]:
        """Read tokens [B]; return the scores [B, V] of the next ones (hidden states averaged over S) and the state.

        At the last position only `<eos>` can follow.
        """
        length = state.seen[0][0].shape[-2] if state.seen else 0
        embedded = self._embed(token[:, None], state.code)
        hidden, seen = self._read(embedded.flatten(0, 1), state.seen)
        features, weight, bias = self._readout(hidden.view(embedded.shape)[:, :, 0].mean(0))
        scores = nn.functional.linear(features, weight, bias)
        if length + 1 >= self.config.max_position_embeddings:
            ends = torch.full_like(scores, -torch.inf)
            ends[:, EOS] = 0.0
            scores = ends
        return scores, state._replace(seen=seen)
