"""Contexts and responses as tokens: dialogues in a memory-mapped store, and batches of pairs from it.

All turns stand in one `TokenStore`, in the order of the text; a turn's label is the number of turns before it that it
answers (0: it answers none). So the context of a response is a range of turns, and no word is stored twice.
"""

import os
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from zentence.corpora.batching import Batches, stored_batch
from zentence.corpora.ledger import Ledger
from zentence.corpora.store import TokenStore, cache_folder
from zentence.errors import ZentenceError
from zentence.noise import Noise, derive_key
from zentence.special import BOS, EOS, PAD
from zentence.types import Batch, Tokens

_CHUNK = 1 << 16  # turns looked at together


class PairBatch(NamedTuple):
    """Responses with their contexts and, where a style is learnt, as many sentences of that style."""

    pairs: Batch
    style: Batch | None = None

    @property
    def index(self) -> torch.Tensor:  # type: ignore[override]
        """The responses' numbers among the turns, [B]."""
        return self.pairs.index

    @property
    def size(self) -> int:
        """Number of pairs."""
        return self.pairs.size

    @property
    def weight(self) -> float:
        """Its pairs over those of an average batch."""
        return self.pairs.weight

    def to(self, device: torch.device) -> "PairBatch":
        """Return the same batch on a device."""
        return PairBatch(self.pairs.to(device), None if self.style is None else self.style.to(device))


class Responses(TokenStore):
    """The turns of a store that answer something, as a store of their own, numbered as turns are."""

    def __init__(self, turns: TokenStore) -> None:
        if turns.labels is None:
            raise ZentenceError(f"{turns.folder} is no store of dialogues")
        self.__dict__.update(turns.__dict__)  # the same files, but for the order
        self.length_counts = np.zeros(len(turns.length_counts), dtype=np.int64)
        for first in range(0, len(turns), _CHUNK):
            lengths = np.diff(turns.offsets[first : first + _CHUNK + 1])
            answers = turns.labels[first : first + _CHUNK] > 0
            self.length_counts += np.bincount(lengths[answers], minlength=len(self.length_counts))
        count = int(self.length_counts.sum())
        tokens = int((self.length_counts * np.arange(len(self.length_counts))).sum())
        self.ledger = Ledger(sentences=count, tokens=tokens)
        self.order = _response_order(turns, count)

    def __reduce__(self) -> tuple[type["Responses"], tuple[TokenStore]]:  # type: ignore[override]
        return Responses, (TokenStore(self.folder),)


def _response_order(turns: TokenStore, count: int) -> NDArray[np.int64]:
    """Return the responses' numbers by length, memory-mapped: what remains of the store's order without the others."""
    path = cache_folder() / "responses" / f"{turns.folder.name}.bin"
    if not path.is_file() or path.stat().st_size != 8 * count:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        assert turns.labels is not None
        with temporary.open("wb") as file:
            for first in range(0, len(turns), _CHUNK):
                numbers = turns.order[first : first + _CHUNK]
                numbers[turns.labels[numbers] > 0].tofile(file)
        temporary.replace(path)
    return np.asarray(np.memmap(path, dtype=np.int64, mode="r", shape=(count,)))


class PairBatches:
    """The pairs of a store of dialogues in batches of responses of nearly equal length, by (epoch, position).

    A context is `<bos> turn <eos> turn <eos> …`: at most `turns` turns, and of these the last `context_tokens` tokens.
    With `style`, each response is joined by a sentence of that store, drawn anew in each epoch.
    """

    def __init__(
        self,
        store: TokenStore,
        *,
        sentences: int,
        turns: int,
        context_tokens: int,
        seed: int = 0,
        shuffle: bool = True,
        style: TokenStore | None = None,
    ) -> None:
        self.store, self.style = store, style
        self._batches = Batches(Responses(store), sentences=sentences, seed=seed, shuffle=shuffle)
        self._turns, self._context_tokens, self._seed = turns, context_tokens, seed

    def __len__(self) -> int:
        return len(self._batches)

    def batch(self, epoch: int, position: int) -> PairBatch:
        """Return the batch at a position of an epoch."""
        pairs = self._batches.batch(epoch, position)
        contexts = [self.context(number) for number in pairs.index.tolist()]
        pairs = pairs._replace(labels=None, context=collate_contexts(contexts, self._context_tokens))
        if self.style is None:
            return PairBatch(pairs)
        point = Noise(derive_key(self._seed, "style", epoch), pairs.index).uniform(1, torch.float64)[:, 0]
        return PairBatch(pairs, stored_batch(self.style, (point * len(self.style)).long().numpy()))

    def context(self, number: int) -> list[NDArray[np.int64]]:
        """Return what an encoder reads of the turns that a response answers, the latest last."""
        assert self.store.labels is not None
        tokens, offsets = self.store.sources or (self.store.tokens, self.store.offsets)
        first = number - min(int(self.store.labels[number]), self._turns)
        return [tokens[offsets[turn] : offsets[turn + 1]].astype(np.int64) for turn in range(first, number)]


def collate_contexts(contexts: Sequence[Sequence[NDArray[np.int64]]], most: int) -> Tokens:
    """Join each context's turns, every one closed by `<eos>`, cut to their last `most` tokens, after a `<bos>`."""
    end = np.array([EOS], dtype=np.int64)
    rows = [np.concatenate([piece for turn in turns for piece in (turn, end)])[-most:] for turns in contexts]
    lengths = np.array([len(row) + 1 for row in rows], dtype=np.int64)
    ids = np.full((len(rows), int(lengths.max())), PAD, dtype=np.int64)
    ids[:, 0] = BOS
    for place, row in enumerate(rows):
        ids[place, 1 : len(row) + 1] = row
    return Tokens(torch.from_numpy(ids), torch.from_numpy(lengths))
