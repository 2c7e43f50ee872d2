"""What a split contains, counted once, so that every figure can name its denominator."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any


@dataclass(frozen=True)
class Ledger:
    """Counts of one split. Ledgers of disjoint splits add.

    `words` + `cut_words` are all the words of the text, `sentences` + `dropped` all its sentences.
    """

    sentences: int = 0  # kept
    words: int = 0  # of kept text, without <bos> and <eos>
    tokens: int = 0  # what the tokeniser makes of the words: the same number where tokens are words
    bytes: int = 0  # UTF-8 bytes of the kept, whitespace-normalised sentences, and one for each line end (its <eos>)
    unknown: int = 0  # tokens read as the unknown word
    blank_lines: int = 0  # skipped lines
    truncated: int = 0  # sentences that lost words to the length limit
    dropped: int = 0  # sentences left out because of the length limit
    cut_words: int = 0  # words lost by truncating and dropping

    @property
    def eos(self) -> int:
        """Number of `<eos>` predicted: one a sentence."""
        return self.sentences

    @property
    def predicted(self) -> int:
        """Words and `<eos>`, never `<bos>`: the default denominator of a perplexity."""
        return self.words + self.eos

    def __add__(self, other: "Ledger") -> "Ledger":
        return Ledger(**{f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(Ledger)})

    def to_dict(self) -> dict[str, int]:
        """Return all counts, derived ones included, for JSON."""
        return {**asdict(self), "eos": self.eos, "predicted": self.predicted}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Ledger":
        """Return the ledger that `to_dict` wrote."""
        return cls(**{f.name: int(values[f.name]) for f in fields(cls)})

    def describe(self) -> str:
        """Return one paragraph for people."""
        parts = [f"{_count(self.sentences, 'sentence')}, {_count(self.words, 'word')} (+ {self.eos:,} <eos>)"]
        if self.tokens != self.words:
            parts.append(_count(self.tokens, "sub-word token"))
        parts.append(_count(self.bytes, "byte"))
        share = self.unknown / self.tokens if self.tokens else 0.0
        parts.append(f"{self.unknown:,} unknown ({share:.1%})")
        text = ", ".join(parts) + "."
        if self.truncated or self.dropped:
            text += (
                f" Length limit: {_count(self.truncated, 'sentence')} truncated, {self.dropped:,} dropped,"
                f" {_count(self.cut_words, 'word')} lost."
            )
        if self.blank_lines:
            text += f" {_count(self.blank_lines, 'blank line')} skipped."
        return text


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")
