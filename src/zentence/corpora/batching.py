"""Batches of nearly equal length, any of which can be made at once from (epoch, position).

Sentences stand sorted by length in the store's `order`; consecutive chunks of it are the batches. Shuffling permutes
the sentences of each length, and the batches, by keyed permutations that are computed where they are needed, so that
nothing here grows with the corpus and there is no state to save beyond the two numbers.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from zentence.corpora.store import TokenStore
from zentence.errors import ZentenceError
from zentence.noise import derive_key
from zentence.special import BOS, EOS, PAD
from zentence.types import Batch, Tokens

_ROUNDS = 6
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1, _MIX_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def permute(x: NDArray[np.int64], sizes: NDArray[np.int64], keys: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return the images of numbers x[i] < sizes[i] under pseudo-random permutations of range(sizes[i]).

    A permutation belongs to a size and a key. It is a Feistel network over the next power of four, walked along its
    cycle until it is back in range.
    """
    half = (np.maximum(np.frexp((sizes - 1).astype(np.float64))[1], 1) + 1).astype(np.uint64) // np.uint64(2)
    mask = (np.uint64(1) << half) - np.uint64(1)
    out, limits = x.astype(np.uint64), sizes.astype(np.uint64)
    outside = np.flatnonzero(sizes > 1)
    while len(outside):
        h, m, key = half[outside], mask[outside], keys[outside]
        left, right = out[outside] >> h, out[outside] & m
        for _ in range(_ROUNDS):
            key = key + _GOLDEN
            left, right = right, left ^ (_mix(right + key) & m)
        out[outside] = (left << h) | right
        outside = outside[out[outside] >= limits[outside]]
    return out.astype(np.int64)


def _mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Scramble 64-bit numbers as splitmix64 does."""
    x = (x ^ (x >> np.uint64(30))) * _MIX_1
    x = (x ^ (x >> np.uint64(27))) * _MIX_2
    return x ^ (x >> np.uint64(31))


class _Run(NamedTuple):
    """Equal chunks one after the other in length-sorted order."""

    start: int  # position of its first sentence
    rows: int  # sentences in each chunk
    chunks: int


def _cut(length_counts: NDArray[np.int64], sentences: int | None, tokens: int | None, world: int) -> list[_Run]:
    """Cut the length-sorted order into chunks, from the shortest sentences on; at most a few runs for each length."""
    runs: list[_Run] = []
    start = end = 0  # of what is not cut yet, among the lengths so far
    for length in np.flatnonzero(length_counts).tolist():
        rows = max(sentences or (tokens or 0) // (length + 1), world, 1)
        if end - start >= rows:  # a further, longer row would be too much
            runs.append(_Run(start, end - start, 1))
            start = end
        end += int(length_counts[length])
        if chunks := (end - start) // rows:
            runs.append(_Run(start, rows, chunks))
            start += chunks * rows
    if rest := end - start:
        if rest >= world:
            runs.append(_Run(start, rest, 1))
        else:
            last = runs.pop()
            if last.chunks > 1:
                runs.append(last._replace(chunks=last.chunks - 1))
            runs.append(_Run(start - last.rows, last.rows + rest, 1))
    return runs


class Batches:
    """The batches of a store: a function of (epoch, position), the same whatever came before.

    A batch has `sentences` rows, or as many as keep rows × (longest + 1) within `tokens`, but at least `world`.
    Of every batch, process `rank` of `world` receives rows rank, rank + world, …. With `shuffle`, each epoch permutes
    the sentences of each length and the order of the batches; without, sentences come sorted by length.
    """

    def __init__(
        self,
        store: TokenStore,
        *,
        sentences: int | None = None,
        tokens: int | None = None,
        seed: int = 0,
        shuffle: bool = True,
        rank: int = 0,
        world: int = 1,
    ) -> None:
        if (sentences is None) == (tokens is None):
            raise ZentenceError("Give the batch size in sentences or in tokens, one of the two")
        if (sentences or tokens or 0) < 1:
            raise ZentenceError("The batch size must be at least 1")
        if not 0 <= rank < world:
            raise ValueError(f"rank {rank} of {world}")
        if len(store) < world:
            raise ZentenceError(f"{len(store)} sentences are too few for {world} processes")
        self.store = store
        self._seed, self._shuffle, self._rank, self._world = seed, shuffle, rank, world
        self._counts = store.length_counts
        self._ends = np.cumsum(self._counts)
        self._runs = _cut(self._counts, sentences, tokens, world)
        self._run_ends = np.cumsum([run.chunks for run in self._runs])

    def __len__(self) -> int:
        return int(self._run_ends[-1])

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """Yield this process's part of the batches of an epoch, from position `start` on."""
        for position in range(start, len(self)):
            yield self.batch(epoch, position)

    def batch(self, epoch: int, position: int) -> Batch:
        """Return this process's part of the batch at a position of an epoch."""
        if not 0 <= position < len(self):
            raise IndexError(f"batch {position} of {len(self)}")
        start, rows = self._chunk(epoch, position)
        places = np.arange(start + self._rank, start + rows, self._world)
        if self._shuffle:
            lengths = np.searchsorted(self._ends, places, side="right")
            first = self._ends[lengths] - self._counts[lengths]
            keys = _mix(lengths.astype(np.uint64) * _GOLDEN + self._key("sentences", epoch))
            places = first + permute(places - first, self._counts[lengths], keys)
        batch = stored_batch(self.store, self.store.order[places], rows)
        return batch._replace(weight=rows * len(self) / len(self.store))

    def _key(self, what: str, epoch: int) -> np.uint64:
        return np.uint64(derive_key(self._seed, "batches", what, epoch))

    def _chunk(self, epoch: int, position: int) -> tuple[int, int]:
        """Return the first place, and the number of rows, of the chunk at a position."""
        if self._shuffle:
            key = np.array([self._key("order", epoch)])
            position = int(permute(np.array([position]), np.array([len(self)]), key)[0])
        number = int(np.searchsorted(self._run_ends, position, side="right"))
        run = self._runs[number]
        before = int(self._run_ends[number]) - run.chunks
        return run.start + (position - before) * run.rows, run.rows


def stored_batch(store: TokenStore, index: NDArray[np.int64], total: int = 0) -> Batch:
    """Make a batch of sentences of a store in the order given, each as decoder and encoder read it."""
    index = np.array(index, dtype=np.int64)  # a copy: tensors want arrays that can be written to
    labels = None if store.labels is None else store.labels[index].astype(np.int64)
    starts = store.offsets[index]
    batch = _assemble(store.tokens, starts, store.offsets[index + 1] - starts, index, labels, total)
    if store.sources is None:
        return batch
    tokens, offsets = store.sources
    starts = offsets[index]
    return batch._replace(source=_assemble(tokens, starts, offsets[index + 1] - starts, index, None, total).source)


def collate(
    sentences: Sequence[NDArray[np.int64]],
    index: Sequence[int] | NDArray[np.integer],
    labels: Sequence[int] | NDArray[np.integer] | None = None,
    total: int = 0,
    sources: Sequence[NDArray[np.int64]] | None = None,
) -> Batch:
    """Make a batch of sentences (ids without `<bos>` and `<eos>`) in the order given.

    `sources` are the same sentences as the encoder reads them, where its tokeniser is another one.
    """
    if sources is not None:
        return collate(sentences, index, labels, total)._replace(source=collate(sources, index).source)
    lengths = np.array([len(sentence) for sentence in sentences], dtype=np.int64)
    tokens = np.concatenate([np.zeros(0, dtype=np.int64), *sentences])
    numbers = None if labels is None else np.array(labels, dtype=np.int64)
    return _assemble(tokens, np.cumsum(lengths) - lengths, lengths, np.array(index, dtype=np.int64), numbers, total)


def _assemble(
    tokens: NDArray[np.integer],
    starts: NDArray[np.int64],
    lengths: NDArray[np.int64],
    index: NDArray[np.int64],
    labels: NDArray[np.int64] | None,
    total: int,
) -> Batch:
    """Gather rows `tokens[start:start + length]` into padded tensors."""
    rows, width = len(lengths), int(lengths.max(initial=0))
    columns = np.arange(width)
    real = columns < lengths[:, None]
    inputs = np.full((rows, width + 1), PAD, dtype=np.int64)  # <bos> words
    inputs[:, 0] = BOS
    inputs[:, 1:][real] = tokens[(starts[:, None] + columns)[real]]
    source = np.full((rows, width + 2), PAD, dtype=np.int64)  # <bos> words <eos>
    source[:, :-1] = inputs
    source[np.arange(rows), lengths + 1] = EOS
    sizes = torch.from_numpy(lengths)
    return Batch(
        source=Tokens(torch.from_numpy(source), sizes + 2),
        target=Tokens(torch.from_numpy(source[:, 1:].copy()), sizes + 1),
        inputs=torch.from_numpy(inputs),
        index=torch.from_numpy(index),
        labels=None if labels is None else torch.from_numpy(labels),
        total=total,
    )
