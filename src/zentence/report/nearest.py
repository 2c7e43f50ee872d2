"""The nearest training sentence, in words: did the model write something new?"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from zentence.corpora import TokenStore

_CHUNK, _CHUNKS = 1 << 13, 64  # training sentences compared at once, and such chunks kept in memory
_SURROGATES = 0xD800, 0x800  # code points that no string may hold, and how many


def nearest_sentences(training: TokenStore, sentences: Sequence[NDArray[np.int64]]) -> list[tuple[int, int]]:
    """Return, for each sentence (token ids), number and word edit distance of the nearest training sentence.

    Exact: training sentences are compared by growing difference of length, until that alone reaches the best distance
    found. Of equally near ones that most alike in length wins, then the shorter, then the first. Needs rapidfuzz.
    """
    from rapidfuzz.distance import Levenshtein
    from rapidfuzz.process import extractOne

    counts = np.asarray(training.length_counts)
    ends = np.cumsum(counts)

    @lru_cache(_CHUNKS)
    def texts(first: int, end: int) -> list[str]:
        return [_as_text(training.sentence(number)) for number in training.order[first:end].tolist()]

    found = []
    for ids in sentences:
        mine, best = _as_text(ids), (-1, len(ids) + len(counts))
        for length in sorted(np.flatnonzero(counts).tolist(), key=lambda other: (abs(other - len(ids)), other)):
            if abs(length - len(ids)) >= best[1]:
                break
            start, end = int(ends[length] - counts[length]), int(ends[length])
            for first in range(start, end, _CHUNK):
                chunk = texts(first, min(first + _CHUNK, end))
                nearer = extractOne(mine, chunk, scorer=Levenshtein.distance, processor=None, score_cutoff=best[1] - 1)
                if nearer is not None:
                    best = (int(training.order[first + nearer[2]]), int(nearer[1]))
                if best[1] == 0:
                    break
        found.append(best)
    return found


def _as_text(ids: NDArray[np.int64]) -> str:
    """Return ids as a string of one character each, which is what edit distances are quickest on."""
    first, count = _SURROGATES
    return np.where(ids < first, ids, ids + count).astype("<u4").tobytes().decode("utf-32-le")
