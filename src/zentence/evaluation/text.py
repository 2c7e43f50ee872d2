"""Comparing sentences word by word: edit distances, BLEU, n-gram variety. A word is what stands between blanks.

The libraries rapidfuzz and sacrebleu are optional, and imported where they are used: ask `why_not` before.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from importlib.util import find_spec
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from zentence.errors import ZentenceError
from zentence.noise import derive_key

MOST_WORDS = 0x10FFFF  # characters that a string may hold, but for the one that stands for all other words
SEARCHED_AT_ONCE = 8192  # training sentences compared with all samples at once: memory does not grow with the text
RESAMPLES = 500  # of the bootstrap that gives BLEU its standard error


def why_not(library: str) -> str | None:
    """Return why a metric that needs an optional library cannot be had; None if the library is installed."""
    return None if find_spec(library) else f"needs {library}: pip install 'zentence[metrics]'"


class Speller:
    """Writes sentences with one character a word, so that distances of words are distances of characters."""

    def __init__(self) -> None:
        self._characters: dict[str, str] = {}

    def spell(self, sentence: str) -> str:
        """Return one character for each word; a new word gets a new one."""
        known = self._characters
        for word in (words := sentence.split()):
            if word not in known:
                if len(known) == MOST_WORDS:
                    raise ZentenceError(f"More than {MOST_WORDS:,} different words cannot be compared: take fewer")
                known[word] = chr(len(known) + 1)
        return "".join([known[word] for word in words])

    def spell_known(self, sentence: str) -> str:
        """Return one character for each word; all words never spelt before share one."""
        return "".join([self._characters.get(word, "\0") for word in sentence.split()])


def edit_distances(one: Sequence[str], other: Sequence[str]) -> NDArray[np.int64]:
    """Return the word edit distance (Levenshtein: insert, delete, replace a word; no shifts) of each pair [N]."""
    from rapidfuzz import process
    from rapidfuzz.distance import Levenshtein

    speller = Speller()
    left, right = [[speller.spell(sentence) for sentence in side] for side in (one, other)]
    found = process.cpdist(left, right, scorer=Levenshtein.distance, dtype=np.int32)
    return np.asarray(found, dtype=np.int64).reshape(len(left))


def translation_edit_rate(edits: NDArray[Any], reference_words: NDArray[Any]) -> NDArray[np.float64]:
    """Return edits / words of the reference, at most 1 (paper 2 prints TER from 0 to 1).

    The edits are those of `edit_distances`. The TER of Snover et al. (2006), as sacrebleu has it, also allows a run of
    words to be shifted as one edit, so it may be lower.
    """
    rate: NDArray[np.float64] = np.asarray(edits, dtype=np.float64) / np.maximum(reference_words, 1)
    return rate.clip(max=1.0)


class Nearest(NamedTuple):
    """Of each sample [N]: its least edit distance to any training sentence, its least TER to any (0 to 1), and the
    number of the first training sentence at the least distance (-1 without any)."""

    distance: NDArray[np.int64]
    ter: NDArray[np.float64]
    number: NDArray[np.int64]


def nearest(samples: Sequence[str], training: Iterable[str], searched: int = SEARCHED_AT_ONCE) -> Nearest:
    """Compare each sample with every training sentence, which is the reference of the TER; exact, in chunks.

    All pairs are computed: rapidfuzz needs some 30 ns for one, less than a bound that would spare it would take.
    """
    from rapidfuzz import process
    from rapidfuzz.distance import Levenshtein

    speller = Speller()
    spelt = [speller.spell(sample) for sample in samples]
    distance = np.full(len(spelt), np.iinfo(np.int64).max)
    ter, number, seen = np.ones(len(spelt)), np.full(len(spelt), -1), 0
    for chunk in _chunks(training, searched):
        rows = [speller.spell_known(sentence) for sentence in chunk]
        lengths = np.array([len(row) for row in rows])
        edits = process.cdist(spelt, rows, scorer=Levenshtein.distance, dtype=np.int32)
        least = edits.min(1)
        number = np.where(least < distance, seen + edits.argmin(1), number)
        distance, seen = np.minimum(distance, least), seen + len(chunk)
        ter = np.minimum(ter, translation_edit_rate(edits, lengths).min(1, initial=1.0))
    return Nearest(distance, ter, number)


def _chunks(sentences: Iterable[str], size: int) -> Iterator[list[str]]:
    rest = iter(sentences)
    while chunk := list(islice(rest, size)):
        yield chunk


class Bleu(NamedTuple):
    """BLEU of a corpus, 0 to 100, its standard error by bootstrap over sentences, and sacrebleu's signature."""

    value: float
    error: float | None
    signature: str


def corpus_bleu(hypotheses: Sequence[str], references: Sequence[str], order: int = 4, seed: int = 0) -> Bleu:
    """Return corpus BLEU of n-grams up to `order` as sacrebleu computes it for text that is already split into words.

    Counts come from sacrebleu's score of each sentence; their sums make the corpus score, and sums over sentences drawn
    with replacement its error.
    """
    from sacrebleu.metrics.bleu import BLEU

    scorer = BLEU(tokenize="none", force=True, max_ngram_order=order, effective_order=True)
    scores = [
        scorer.sentence_score(hypothesis, [reference]) for hypothesis, reference in _pairs(hypotheses, references)
    ]
    counts = np.array([[*s.counts, *s.totals, s.sys_len, s.ref_len] for s in scores], dtype=np.int64)

    def score(sums: NDArray[np.int64]) -> float:
        *matches, written, gold = (int(number) for number in sums)
        found = BLEU.compute_bleu(matches[:order], matches[order:], written, gold, "exp", max_ngram_order=order)
        return float(found.score)

    corpus = BLEU(tokenize="none", force=True, max_ngram_order=order)
    corpus.corpus_score([""], [[""]])  # the signature is complete only after a score
    signature = f"{corpus.get_signature()}|order:{order}"
    error = None
    if len(counts) > 1:
        random = np.random.default_rng(derive_key(seed, "bleu"))
        drawn = random.multinomial(len(counts), np.full(len(counts), 1.0 / len(counts)), size=RESAMPLES)
        error = float(np.std([score(sums) for sums in drawn @ counts], ddof=1))
    return Bleu(score(counts.sum(0)), error, signature)


def sentence_bleu1(hypotheses: Sequence[str], references: Sequence[str]) -> NDArray[np.float64]:
    """Return BLEU-1 of each sentence, 0 to 1, as NLTK's `sentence_bleu` with weights (1, 0, 0, 0) has it.

    min(1, exp(1 − r / c)) × (words of the hypothesis found in the reference, each at most as often as there) / c,
    for c words of the hypothesis and r of the reference; 0 for an empty hypothesis. Paper 1 reports its mean.
    """
    values = []
    for hypothesis, reference in _pairs(hypotheses, references):
        written, gold = hypothesis.split(), reference.split()
        matched = (Counter(written) & Counter(gold)).total()
        brevity = min(1.0, math.exp(1.0 - len(gold) / len(written))) if written else 0.0
        values.append(brevity * matched / len(written) if written else 0.0)
    return np.array(values)


def same_places(hypotheses: Sequence[str], references: Sequence[str]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return how many words of each reference stand at the same place of the hypothesis [N], and its words [N]."""
    pairs = [(h.split(), r.split()) for h, r in _pairs(hypotheses, references)]
    hits = [sum(a == b for a, b in zip(written, gold, strict=False)) for written, gold in pairs]
    return np.array(hits, dtype=np.int64), np.array([len(gold) for _, gold in pairs], dtype=np.int64)


def self_bleu(sentences: Sequence[str], order: int = 4) -> NDArray[np.float64]:
    """Return the sentence BLEU [N], 0 to 100, of each sentence against all others as references (Zhu et al., 2018).

    sacrebleu's formula with exponential smoothing and effective order. 100: all are alike. It grows with N.
    """
    from sacrebleu.metrics.bleu import BLEU

    counted = [count_ngrams(sentence.split(), order) for sentence in sentences]
    lengths = np.array([len(sentence.split()) for sentence in sentences])
    most: dict[tuple[str, ...], tuple[int, int, int]] = {}  # n-gram → largest count, whose, largest count of another
    for number, counts in enumerate(counted):
        for ngram, count in counts.items():
            first, owner, second = most.get(ngram, (0, -1, 0))
            most[ngram] = (count, number, first) if count > first else (first, owner, max(second, count))
    values = []
    for number, counts in enumerate(counted):
        correct = [0] * order
        for ngram, count in counts.items():
            first, owner, second = most[ngram]
            correct[len(ngram) - 1] += min(count, second if owner == number else first)
        length = int(lengths[number])
        total = [max(0, length - n) for n in range(order)]
        reference = _closest(np.delete(lengths, number), length)
        score = BLEU.compute_bleu(correct, total, length, reference, "exp", None, True, order)
        values.append(float(score.score))
    return np.array(values)


def pool_bleu(sentences: Sequence[str], references: Iterable[str], order: int = 4) -> NDArray[np.float64]:
    """Return the sentence BLEU [N], 0 to 100, of each sentence against all references at once (paper 5, C.2.1).

    sacrebleu's formula with exponential smoothing and effective order, as in `self_bleu`. It grows with the references,
    of which only the largest count of each n-gram is held.
    """
    from sacrebleu.metrics.bleu import BLEU

    most: dict[tuple[str, ...], int] = {}
    found: set[int] = set()
    for reference in references:
        found.add(len(words := reference.split()))
        for ngram, count in count_ngrams(words, order).items():
            most[ngram] = max(count, most.get(ngram, 0))
    lengths, values = np.array(sorted(found), dtype=np.int64), []
    for words in map(str.split, sentences):
        correct = [0] * order
        for ngram, count in count_ngrams(words, order).items():
            correct[len(ngram) - 1] += min(count, most.get(ngram, 0))
        total = [max(0, len(words) - n) for n in range(order)]
        score = BLEU.compute_bleu(correct, total, len(words), _closest(lengths, len(words)), "exp", None, True, order)
        values.append(float(score.score))
    return np.array(values)


def _closest(lengths: NDArray[np.int64], length: int) -> int:
    """Return the reference length nearest to the hypothesis's; of two, the shorter."""
    return int(min(np.unique(lengths), key=lambda other: (abs(int(other) - length), int(other)), default=0))


def count_ngrams(words: Sequence[str], order: int) -> Counter[tuple[str, ...]]:
    """Count all n-grams up to an order."""
    return Counter(tuple(words[i : i + n]) for n in range(1, order + 1) for i in range(len(words) - n + 1))


def distinct(sentences: Sequence[str], n: int) -> float:
    """Return different n-grams over all n-grams (Li et al., 2016), 0 to 1; 0 if there is none."""
    every = [tuple(words[i : i + n]) for words in map(str.split, sentences) for i in range(len(words) - n + 1)]
    return len(set(every)) / len(every) if every else 0.0


def _pairs(hypotheses: Sequence[str], references: Sequence[str]) -> list[tuple[str, str]]:
    return list(zip(hypotheses, references, strict=True))
