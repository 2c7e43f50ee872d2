"""What a text file contains: its ledger and the distribution of its sentence lengths."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from zentence.corpora.ledger import Ledger
from zentence.corpora.readers import ReadStats, read_sentences
from zentence.errors import ZentenceError
from zentence.settings import CorpusSettings

_BAR = 40  # characters


@dataclass(frozen=True)
class TextStatistics:
    """Counts of text as it stands, before any vocabulary."""

    ledger: Ledger
    lengths: dict[int, int]  # sentences of each length in words
    distinct_words: int
    distinct_sentences: int
    labels: dict[str, int]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "ledger": self.ledger.to_dict(),
            "distinct_words": self.distinct_words,
            "distinct_sentences": self.distinct_sentences,
            "labels": self.labels,
            "length": self.quantiles(),
            "lengths": {str(length): count for length, count in sorted(self.lengths.items())},
        }

    def quantiles(self) -> dict[str, float]:
        """Return mean, spread and quantiles of the length in words."""
        values = np.array(sorted(self.lengths))
        counts = np.array([self.lengths[v] for v in values.tolist()])
        mean = float((values * counts).sum() / counts.sum())
        spread = float(np.sqrt(((values - mean) ** 2 * counts).sum() / counts.sum()))
        reached = np.cumsum(counts) / counts.sum()
        shares = {"median": 0.5, "p90": 0.9, "p99": 0.99}
        found = {name: float(values[np.searchsorted(reached, share)]) for name, share in shares.items()}
        return {"mean": mean, "standard_deviation": spread, **found, "max": float(values[-1])}

    def describe(self) -> str:
        """Return a paragraph for people."""
        q = self.quantiles()
        text = self.ledger.describe()
        text += f" {self.distinct_words:,} distinct words, {self.distinct_sentences:,} distinct sentences."
        if self.labels:
            text += " Labels: " + ", ".join(f"{name} ({count:,})" for name, count in self.labels.items()) + "."
        return text + (
            f" Length in words: mean {q['mean']:.1f} ± {q['standard_deviation']:.1f}, median {q['median']:.0f}, "
            f"90 % up to {q['p90']:.0f}, 99 % up to {q['p99']:.0f}, longest {q['max']:.0f}."
        )


def text_statistics(files: Sequence[str], labels: str = "auto") -> TextStatistics:
    """Read files once and count."""
    if labels not in ("auto", "yes", "no"):
        raise ZentenceError(f"--labels {labels}: choose one of auto, yes, no")
    words: Counter[str] = Counter()
    lengths: Counter[int] = Counter()
    names: Counter[str] = Counter()
    sentences: set[int] = set()  # hashes
    unknown_words = set(CorpusSettings().unknown_words)
    stats, size, unknown = ReadStats(), 0, 0
    for file in files:
        for line in read_sentences(file, labels, stats=stats):  # type: ignore[arg-type]
            tokens = line.text.split(" ")
            words.update(tokens)
            lengths[len(tokens)] += 1
            sentences.add(hash(line.text))
            size += len(line.text.encode()) + 1
            unknown += sum(token in unknown_words for token in tokens)
            if line.label is not None:
                names[line.label] += 1
    count, total = lengths.total(), words.total()
    ledger = Ledger(count, total, total, size, unknown, stats.blank_lines)
    return TextStatistics(ledger, dict(lengths), len(words), len(sentences), dict(sorted(names.items())))


def length_chart(statistics: TextStatistics, rows: int = 20) -> list[str]:
    """Return the histogram of lengths with its cumulative curve, as lines of text."""
    longest = max(statistics.lengths)
    width = max(1, -(-longest // rows))
    bins = Counter({(length - 1) // width: 0 for length in range(1, longest + 1)})
    for length, count in statistics.lengths.items():
        bins[(length - 1) // width] += count
    total, most, reached = sum(bins.values()), max(bins.values()), 0
    lines = ["   words  sentences   up to here"]
    for number in sorted(bins):
        reached += bins[number]
        first, last = number * width + 1, (number + 1) * width
        name = f"{first}" if width == 1 else f"{first}-{last}"
        share = reached / total
        bar = "█" * round(bins[number] / most * _BAR)
        curve = " " * (round(share * _BAR) - len(bar)) + "·" if round(share * _BAR) > len(bar) else ""
        lines.append(f"{name:>8} {bins[number]:>10,} {share:>11.1%}  {bar}{curve}")
    return lines


def draw_lengths(statistics: TextStatistics, path: Path) -> None:
    """Draw the histogram of lengths and its cumulative curve into a picture."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ZentenceError("Pictures need matplotlib: pip install 'zentence[plots]'") from error
    values = np.array(sorted(statistics.lengths))
    counts = np.array([statistics.lengths[v] for v in values.tolist()])
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    axes.bar(values, counts, width=1.0, color="#4477aa")
    axes.set_xlabel("words in a sentence")
    axes.set_ylabel("sentences", color="#4477aa")
    cumulative = axes.twinx()
    cumulative.plot(values, np.cumsum(counts) / counts.sum(), color="#cc6677")
    cumulative.set_ylim(0.0, 1.02)
    cumulative.set_ylabel("share up to this length", color="#cc6677")
    axes.set_xlim(0, max(float(values[-1]), 1.0) + 1)
    try:
        figure.savefig(path, dpi=120)
    except (OSError, ValueError) as error:
        raise ZentenceError(f"Cannot write {path}: {error}") from error
