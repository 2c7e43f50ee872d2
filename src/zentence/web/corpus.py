"""The text that the map shows: a bounded number of sentences, their labels and their codes."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from zentence.corpora.readers import Line, display_name, is_stream, read_sentences
from zentence.errors import ZentenceError
from zentence.latent import LatentSpace
from zentence.latent.maps import MAX_POINTS, choose
from zentence.latent.moves import validation_sentences
from zentence.latent.space import Codes
from zentence.latent.streams import Progress, Remarks, encode_stream


@dataclass(frozen=True)
class Corpus:
    """Sentences with their posterior means; `count` of them stand in the text, from which these were drawn."""

    name: str
    sentences: list[str]
    labels: list[str] | None
    codes: Codes  # [N, D]
    count: int
    file: str | None = None  # its path, where it is one file
    warnings: tuple[str, ...] = ()

    @cached_property
    def label_counts(self) -> dict[str, int]:
        """Labels, frequent ones first, and how many points have each."""
        counts = Counter(self.labels or [])
        return {name: counts[name] for name in sorted(counts, key=lambda name: (-counts[name], name))}

    def mean_code(self, label: str) -> Codes:
        """Return the mean [D] of the codes of the sentences with a label, as `moves.mean_code` of these sentences."""
        if label not in self.label_counts:
            known = ", ".join(list(self.label_counts)[:10]) or "it has none"
            raise ZentenceError(f"No sentence of the corpus has the label '{label[:60]}' (labels: {known[:200]})")
        rows = [place for place, own in enumerate(self.labels or []) if own == label]
        mean: Codes = self.codes[rows].mean(0, dtype=np.float64).astype(np.float32)
        return mean


def read_corpus(
    space: LatentSpace,
    file: Path | None = None,
    *,
    points: int = 5000,
    seed: int = 0,
    progress: Progress | None = None,
) -> Corpus | None:
    """Read and encode a file's sentences, or the model's validation text; None if there is no text at hand.

    Of a longer text `points` sentences are drawn; nothing grows with the text.
    """
    if not space.model.has_code:
        return None
    path = file or _validation_file(space)

    def told(done: int, total: int) -> None:
        if progress is not None:
            progress("reading", done, total, "bytes")

    if path is None:
        lines = _validation_lines(space)
    else:
        lines = read_sentences(path, "auto" if file else space.settings.corpus.labels, progress=told)
    if lines is None:
        return None
    name = "the validation text" if path is None else display_name(path)
    kept, count = choose(lines, min(points, MAX_POINTS), seed)
    texts = [line.text for line in kept]
    if len(texts) < 2:
        raise ZentenceError(f"{name} has one sentence only: a map needs at least 2")
    remarks, parts = Remarks(limit=space.max_words), []
    for part in encode_stream(space, texts, remarks=remarks):
        parts.append(part)
        if progress is not None:
            progress("encoding", sum(map(len, parts)), len(texts), "sentences")
    labels = [line.label for line in kept] if kept[0].label is not None else None
    said = tuple(remarks.warnings())
    return Corpus(name, texts, labels, np.concatenate(parts), count, None if path is None else str(path), said)


def _validation_file(space: LatentSpace) -> Path | None:
    """Return the validation text where it is one file of its own, which may have labels."""
    files = space.settings.corpus.valid
    return Path(files[0]) if len(files) == 1 and not is_stream(files[0]) and Path(files[0]).is_file() else None


def _validation_lines(space: LatentSpace) -> Iterator[Line] | None:
    texts = validation_sentences(space.settings.corpus)
    return None if texts is None else (Line(text, None, number) for number, text in enumerate(texts, 1))
