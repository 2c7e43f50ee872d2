"""Decoders that write a sentence word by word."""

from typing import Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor, nn

from zentence.decoders.readout import TRAINING_WORDS, word_log_prob
from zentence.initialise import InitialRanges, initialise
from zentence.parts import Options as PartOptions
from zentence.recurrence import all_states, kept
from zentence.types import BOS, UNK, Tokens


class RecurrentState(NamedTuple):
    """Where a recurrent decoder stands: S states for each of B sentences."""

    hidden: Tensor  # [layers, S, B, H]
    cell: Tensor | None  # the same, for LSTMs
    code: Tensor | None  # [S, B, D]

    def select(self, rows: Tensor) -> "RecurrentState":
        """Return the state of some of the sentences, in a new order; a row may be taken several times."""
        return RecurrentState(
            self.hidden[:, :, rows],
            None if self.cell is None else self.cell[:, :, rows],
            None if self.code is None else self.code[:, rows],
        )


class RecurrentDecoder(nn.Module):
    """LSTM or GRU with the code in its initial state and/or in every input; without a code, a language model."""

    paper = "papers 1-4"

    class Options(PartOptions):
        cell: Literal["lstm", "gru"] = Field("lstm", description="Kind of recurrence.")
        layers: int = Field(1, ge=1, le=2, description="Number of layers.")
        embedding_size: int = Field(256, ge=1, description="Width of the word embedding.")
        hidden_size: int = Field(256, ge=1, description="Width of the state.")
        initial_state: Literal["zero", "learned", "linear", "tanh", "hidden", "cell"] = Field(
            "linear",
            description="Initial state: zero; learned; linear in z; tanh of that (paper 2); h0 = Mz, c0 = 0 (paper 3); "
            "c0 = Wz, h0 = tanh(c0) (paper 4). Without a code: zero or learned.",
        )
        initial_bias: bool = Field(True, description="Bias on the map from the code to the initial state.")
        code_to_inputs: bool = Field(True, description="Append the code to every input.")
        tied: bool = Field(True, description="Output weights = word embedding (through a projection if sizes differ).")
        output_bias: bool = Field(True, description="Bias on the output layer.")
        input_dropout: float = Field(0.0, ge=0.0, lt=1.0, description="Dropout on the word embeddings.")
        output_dropout: float = Field(0.0, ge=0.0, lt=1.0, description="Dropout before the output layer.")
        recurrent_dropout: float = Field(
            0.0, ge=0.0, lt=1.0, description="Dropout on the weights from state to state, a mask a batch (DropConnect)."
        )
        dropout_mask: Literal["standard", "shared"] = Field(
            "standard", description="A new mask for each word, or one shared by all words of a sentence (paper 2)."
        )
        inputless: bool = Field(
            False, description="Read <unk> for every word, in training and use: all must come from the code (paper 3)."
        )
        training_words: int | None = Field(None, ge=1, description=TRAINING_WORDS)
        initial: InitialRanges = Field(InitialRanges(), description="Initial values.")

    def __init__(self, options: Options, vocabulary_size: int, code_size: int) -> None:
        super().__init__()
        self.options = options
        self.code_size = code_size
        hidden = options.hidden_size
        self.embedding = nn.Embedding(vocabulary_size, options.embedding_size)
        cell = nn.LSTM if options.cell == "lstm" else nn.GRU
        self.has_cell = options.cell == "lstm"
        inputs = options.embedding_size + (code_size if self.reads_code else 0)
        self.recurrence = cell(inputs, hidden, options.layers, batch_first=True)
        self.start_states = 2 if self.has_cell and options.initial_state in ("learned", "linear", "tanh") else 1
        width = self.start_states * options.layers * hidden
        self.start_map: nn.Linear | None = None
        self.start_vector: nn.Parameter | None = None
        if code_size > 0 and options.initial_state not in ("zero", "learned"):
            self.start_map = nn.Linear(code_size, width, bias=options.initial_bias)
        elif options.initial_state == "learned":
            self.start_vector = nn.Parameter(torch.zeros(width))
        project = options.tied and hidden != options.embedding_size
        self.projection = nn.Linear(hidden, options.embedding_size) if project else None
        self.output = None if options.tied else nn.Linear(hidden, vocabulary_size, bias=options.output_bias)
        self.tied_bias = nn.Parameter(torch.zeros(vocabulary_size)) if options.tied and options.output_bias else None
        self.reset_parameters()

    @property
    def reads_code(self) -> bool:
        """Whether the code is part of every input."""
        return self.options.code_to_inputs and self.code_size > 0

    def reset_parameters(self) -> None:
        """Draw new initial values."""
        initialise(self, self.options.initial)
        for vector in (self.start_vector, self.tied_bias):
            if vector is not None:
                nn.init.zeros_(vector)

    def initial(self, z: Tensor | None, batch: int) -> tuple[Tensor, Tensor | None]:
        """Return the first hidden and cell states [layers, S·B, H] for codes [S, B, D], or for no code."""
        layers, H, kind = self.options.layers, self.options.hidden_size, self.options.initial_state
        rows = batch if z is None else z.shape[0] * z.shape[1]
        zero = self.embedding.weight.new_zeros(layers, rows, H)
        if self.start_map is not None and z is not None:
            start = self.start_map(z.reshape(rows, -1))
        elif self.start_vector is not None:
            start = self.start_vector.expand(rows, -1)
        else:
            return zero, zero if self.has_cell else None
        if kind == "tanh":
            start = torch.tanh(start)
        states = start.view(rows, self.start_states, layers, H).permute(1, 2, 0, 3)  # [states, layers, S·B, H]
        if not self.has_cell:
            first = states[0]
            return (torch.tanh(first) if kind == "cell" else first).contiguous(), None
        if kind == "hidden":
            return states[0].contiguous(), zero
        if kind == "cell":
            return torch.tanh(states[0]).contiguous(), states[0].contiguous()
        return states[0].contiguous(), states[1].contiguous()

    def _embed(self, ids: Tensor) -> Tensor:
        if self.options.inputless:
            ids = torch.where(ids == BOS, ids, UNK)
        embedded: Tensor = self.embedding(ids)
        return embedded

    def _drop(self, x: Tensor, probability: float, time_dimension: int) -> Tensor:
        if not self.training or probability == 0.0:
            return x
        if self.options.dropout_mask == "standard":
            return x * kept(x.shape, probability, x)
        shape = list(x.shape)
        shape[time_dimension] = 1
        return x * kept(shape, probability, x)

    def hidden_states(self, z: Tensor | None, inputs: Tensor) -> Tensor:
        """Return hidden states [S, B, T, H] for codes [S, B, D] and gold inputs [B, T]; S = 1 without a code."""
        B, T = inputs.shape
        S = 1 if z is None else z.shape[0]
        embedded = self._drop(self._embed(inputs), self.options.input_dropout, 1)  # the same for all samples
        read = embedded.expand(S, B, T, -1)
        if self.reads_code and z is not None:
            read = torch.cat((read, z[:, :, None].expand(S, B, T, -1)), dim=-1)
        hidden, cell = self.initial(z, B)
        state = (hidden, cell) if cell is not None else hidden
        dropped = self.options.recurrent_dropout if self.training else 0.0
        return all_states(self.recurrence, read.reshape(S * B, T, -1), state, dropped).view(S, B, T, -1)

    def _readout(self, hidden: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return (features, weight, bias) whose product gives the scores of all words."""
        if self.output is not None:
            return hidden, self.output.weight, self.output.bias
        if self.projection is not None:
            hidden = self.projection(hidden)
        return hidden, self.embedding.weight, self.tied_bias

    def token_log_prob(self, hidden: Tensor, target: Tokens) -> Tensor:
        """Return log p(target token | hidden) as [S, B, T]: zero at padding."""
        S, B, T, H = hidden.shape
        hidden = self._drop(hidden, self.options.output_dropout, 2)
        mask = target.mask().expand(S, B, T).reshape(-1)
        flat, ids = hidden.reshape(-1, H), target.ids.expand(S, B, T).reshape(-1)
        words = self.options.training_words if self.training else None
        if bool(mask.all()):
            return word_log_prob(*self._readout(flat), ids, words).view(S, B, T)
        rows = mask.nonzero().squeeze(1)
        log_prob = word_log_prob(*self._readout(flat[rows]), ids[rows], words)
        return log_prob.new_zeros(S * B * T).index_copy(0, rows, log_prob).view(S, B, T)

    def start(self, z: Tensor | None, batch: int) -> RecurrentState:
        """Return the state before the first word, for codes [S, B, D], or for `batch` sentences without a code."""
        S, B = (1, batch) if z is None else z.shape[:2]
        hidden, cell = self.initial(z, B)
        split = (hidden.shape[0], S, B, hidden.shape[-1])
        return RecurrentState(hidden.view(split), None if cell is None else cell.view(split), z)

    def advance(self, token: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        """Read tokens [B]; return the scores [B, V] of the next ones (hidden states averaged over S) and the state."""
        layers, S, B, H = state.hidden.shape
        read = self._embed(token).expand(S, B, -1)
        if self.reads_code and state.code is not None:
            read = torch.cat((read, state.code), dim=-1)
        hidden = state.hidden.reshape(layers, S * B, H)
        cell = None if state.cell is None else state.cell.reshape(layers, S * B, H)
        states, after = self.recurrence(read.reshape(S * B, 1, -1), (hidden, cell) if cell is not None else hidden)
        features, weight, bias = self._readout(states.view(S, B, H).mean(0))
        new_hidden, new_cell = after if cell is not None else (after, None)
        split = (layers, S, B, H)
        moved = RecurrentState(new_hidden.view(split), None if new_cell is None else new_cell.view(split), state.code)
        return nn.functional.linear(features, weight, bias), moved
