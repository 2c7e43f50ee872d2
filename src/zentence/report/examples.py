"""What a model does with text: samples, reconstructions, interpolations, and the codes of many sentences."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from zentence.corpora import TokenStore
from zentence.corpora.prepare import open_split, prepare
from zentence.corpora.readers import LabelMode, is_stream
from zentence.errors import ZentenceError
from zentence.evaluation.text import nearest
from zentence.latent.space import LatentSpace
from zentence.noise import derive_key
from zentence.report.codemap import CodeMap, map_codes
from zentence.report.record import Numbers, Record

SAMPLES, RECONSTRUCTIONS, INTERPOLATIONS, STEPS = 12, 8, 3, 7
MAP_SENTENCES = 1500
MAX_WORDS = 60  # of a generated sentence
SHOWN_WORDS = (4, 25)  # examples are drawn from sentences of this length, so that they can be read at a glance
GATHERING = 6  # stages of `gather`

Progress = Callable[[str, int, int], None]  # what is done, stages done, stages in all


class Sample(NamedTuple):
    """A sentence from the prior, and the training sentence that is nearest in words, where training text is at hand."""

    text: str
    nearest: str | None = None
    distance: int | None = None  # words to change, add or drop


class Reconstruction(NamedTuple):
    """A sentence as the model reads it, and what its code keeps: the posterior's mean, and a sample."""

    given: str
    mean: str
    sample: str


@dataclass
class Examples:
    """All text and codes of one run; `gaps` says why something is not there."""

    text: str | None = None  # what the sentences were taken from
    unit: str = "words"
    lengths: Numbers | None = None  # [N] of every sentence of that text
    samples: list[Sample] = field(default_factory=list)
    reconstructions: list[Reconstruction] = field(default_factory=list)
    interpolations: list[list[str]] = field(default_factory=list)
    codes: CodeMap | None = None
    has_code: bool = True
    gaps: dict[str, str] = field(default_factory=dict)


class _Texts(NamedTuple):
    name: str | None
    store: TokenStore | None
    training: TokenStore | None
    reason: str  # why there is no text, or no training text


def gather(
    record: Record,
    *,
    text: Path | None = None,
    labels: LabelMode = "auto",
    seed: int = 0,
    device: str = "auto",
    threads: int | None = None,
    progress: Progress | None = None,
) -> Examples:
    """Load a run's model and let it write; sentences come from `text`, or from the validation text of its training."""
    stage = iter(range(GATHERING + 1))
    title = f"using {record.name}"

    def advance() -> None:
        if progress is not None:
            progress(title, next(stage), GATHERING)

    advance()
    try:
        space = LatentSpace.load(record.folder, device, threads)
    except ZentenceError as error:
        return Examples(gaps={"model": str(error)})
    advance()
    texts = _open_texts(space, text, labels)
    examples = Examples(texts.name, has_code=space.model.has_code)
    if texts.store is None:
        examples.gaps["text"] = texts.reason
    if texts.training is None:
        examples.gaps["training"] = texts.reason
    advance()
    examples.samples = _samples(space, texts.training, seed, examples.gaps)
    advance()
    if texts.store is not None:
        examples.lengths = np.diff(texts.store.offsets).astype(np.float64)
        examples.unit = "words" if texts.store.ledger.words == texts.store.ledger.tokens else "tokens"
        if space.model.has_code:
            _write(space, texts.store, seed, examples)
            advance()
            examples.codes = _codes(space, texts.store, seed, advance)
    if progress is not None:
        progress(title, GATHERING, GATHERING)
    return examples


def _open_texts(space: LatentSpace, text: Path | None, labels: LabelMode) -> _Texts:
    """Open the text that examples come from, and the training text; either may be out of reach."""
    files = space.settings.corpus
    store = name = training = None
    reason = "its training text is not in a file"
    if text is not None:
        name = text.name
        store = open_split(text, space.vocabulary, files.model_copy(update={"labels": labels}))
    if files.train and not any(map(is_stream, (*files.train, *files.valid, *files.test))):
        try:
            corpus = prepare(files, files.train, files.valid, files.test, vocabulary=space.vocabulary)
        except ZentenceError as error:
            reason = str(error)
        else:
            training = corpus.splits.get("train")
            if store is None:
                store, name = corpus.splits.get("valid"), "valid"
    return _Texts(name, store, training, reason)


def _samples(space: LatentSpace, training: TokenStore | None, seed: int, gaps: dict[str, str]) -> list[Sample]:
    texts = space.sample(SAMPLES, seed=seed, max_words=MAX_WORDS)
    if training is None:
        return [Sample(text) for text in texts]
    try:
        known = (space.vocabulary.decode(training.sentence(number)) for number in range(len(training)))
        found = nearest(texts, known)
    except ImportError:
        gaps["training"] = "the nearest training sentence needs rapidfuzz: pip install 'zentence[metrics]'"
        return [Sample(text) for text in texts]
    return [
        Sample(text, space.vocabulary.decode(training.sentence(int(number))), int(distance))
        for text, number, distance in zip(texts, found.number, found.distance, strict=True)
    ]


def _write(space: LatentSpace, store: TokenStore, seed: int, examples: Examples) -> None:
    """Reconstruct some sentences and walk between others."""
    chosen = _choose(store, RECONSTRUCTIONS + 2 * INTERPOLATIONS, seed)
    texts = [space.vocabulary.decode(store.sentence(number)) for number in chosen]
    given, ends = texts[:RECONSTRUCTIONS], texts[RECONSTRUCTIONS:]
    mean = space.reconstruct(given, max_words=MAX_WORDS)
    sample = space.reconstruct(given, sample=True, seed=seed, max_words=MAX_WORDS)
    examples.reconstructions = [Reconstruction(*row) for row in zip(given, mean, sample, strict=True)]
    examples.interpolations = [
        [start, *space.interpolate(start, end, steps=STEPS, max_words=MAX_WORDS), end]
        for start, end in zip(ends[::2], ends[1::2], strict=False)
    ]


def _choose(store: TokenStore, count: int, seed: int) -> list[int]:
    """Draw numbers of sentences that can be read at a glance, without repeats; of any length if those are too few."""
    random = np.random.default_rng(derive_key(seed, "report", "examples"))
    lengths = np.diff(store.offsets)
    few, many = SHOWN_WORDS
    handy = np.flatnonzero((lengths >= few) & (lengths <= many))
    pool = handy if len(handy) >= count else np.arange(len(store))
    drawn: list[int] = random.permutation(pool)[:count].tolist()
    return drawn


def _codes(space: LatentSpace, store: TokenStore, seed: int, advance: Callable[[], None]) -> CodeMap | None:
    """Encode up to 1500 sentences and lay their codes out in two dimensions."""
    random = np.random.default_rng(derive_key(seed, "report", "map"))
    chosen = np.sort(random.permutation(len(store))[:MAP_SENTENCES])
    if len(chosen) < 3:
        return None
    codes = space.encode([space.vocabulary.decode(store.sentence(int(number))) for number in chosen])
    advance()
    names: Sequence[str] | None = store.label_names
    labels = None if store.labels is None else np.asarray(store.labels)[chosen]
    return map_codes(codes, np.diff(store.offsets)[chosen], labels, names, seed)
