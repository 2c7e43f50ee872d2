"""Comparing sentences word by word: distances of many pairs, and the nearest training sentences of samples."""

import time
from collections.abc import Callable

import numpy as np

from benchmarks.harness import Row, Section, measure
from benchmarks.shapes import VOCABULARY
from zentence.evaluation.kneser_ney import KneserNey
from zentence.evaluation.text import edit_distances, nearest, self_bleu

PAIRS, SAMPLES, TRAINING = 100_000, 300, 42_000
WRITTEN = 10_000


def _sentences(count: int, seed: int = 0) -> list[str]:
    """Return sentences of about 21 words whose frequencies fall as those of text do."""
    random = np.random.default_rng(seed)
    lengths = random.normal(21.0, 9.0, count).astype(int).clip(1, 80)
    words = np.minimum(random.zipf(1.3, int(lengths.sum())), VOCABULARY)
    return [" ".join(map(str, row)) for row in np.split(words, np.cumsum(lengths)[:-1])]


def _seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def measure_text() -> dict[str, float]:
    """Time each once on one core, from text to figures."""
    training, samples = _sentences(TRAINING), _sentences(SAMPLES, seed=1)
    random = np.random.default_rng(2)
    one, other = ([training[i] for i in random.integers(0, TRAINING, PAIRS)] for _ in range(2))
    ids = [[int(word) % VOCABULARY for word in sentence.split()] for sentence in training[:WRITTEN]]
    return {
        "pairs": _seconds(lambda: edit_distances(one, other)),
        "nearest": _seconds(lambda: nearest(samples, training)),
        "self_bleu": _seconds(lambda: self_bleu(training[:1000])),
        "kneser_ney": _seconds(lambda: KneserNey(ids, VOCABULARY)),
    }


MEASUREMENTS = {"text": measure_text}


def section() -> Section:
    """Measure and return the table."""
    found = measure("text", "text")
    rows = [
        Row(f"word edit distance of {PAIRS:,} pairs", f"{found['pairs']:.1f} s", "", "seconds"),
        Row(
            f"nearest of {TRAINING:,} sentences to {SAMPLES} samples",
            f"{found['nearest']:.1f} s",
            f"{SAMPLES * TRAINING / found['nearest'] / 1e6:.0f} million pairs a second",
            "seconds",
        ),
        Row("self-BLEU of 1,000 sentences", f"{found['self_bleu']:.1f} s"),
        Row(f"Kneser–Ney trigrams of {WRITTEN:,} sentences", f"{found['kneser_ney']:.1f} s"),
    ]
    return Section("Comparing sentences", rows, "One core, sentences of about 21 words, from text to figures.")
