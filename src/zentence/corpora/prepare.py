"""From text files to a corpus: a vocabulary and the token stores of its splits, cached by content.

The text is read in streams, twice at most: once to count the training words, once to write all splits.
"""

import hashlib
import json
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from zentence.corpora.readers import (
    LabelMode,
    Line,
    Progress,
    ReadStats,
    display_name,
    has_labels,
    is_stdin,
    is_stream,
    open_file,
    read_sentences,
    spool,
)
from zentence.corpora.source import Origin, source_nll
from zentence.corpora.splitting import Shares
from zentence.corpora.store import Limit, StoreWriter, TokenStore, cache_folder, content_key, open_store
from zentence.corpora.subwords import build_subwords
from zentence.corpora.vocabulary import Vocabulary, build_vocabulary
from zentence.errors import ZentenceError
from zentence.files import write_atomically
from zentence.settings import CorpusSettings

_UNKNOWN_SHARE = 0.1  # of a split's tokens, above which a warning is given
_FEW_SENTENCES = 100  # in a split that is evaluated, below which a warning is given


@dataclass(frozen=True)
class Corpus:
    """A vocabulary and splits: "train", "valid", perhaps "test", and "valid/<name>" where several files were given."""

    vocabulary: Vocabulary
    splits: dict[str, TokenStore]
    label_names: tuple[str, ...] | None
    warnings: tuple[str, ...]
    origins: dict[str, tuple[Origin, ...]]  # the files of each split

    def source_nll(self, split: str, limit: int | None = None) -> Iterator[float] | None:
        """Return −log p in nats of a split's sentences under their true source; none where it is not known."""
        return source_nll(self.origins[split], limit)

    def summary(self) -> dict[str, Any]:
        """Return what was read and what was cut, for JSON."""
        return {
            "vocabulary": len(self.vocabulary),
            "lower_case": self.vocabulary.lower_case,
            "labels": None if self.label_names is None else list(self.label_names),
            "splits": {name: store.ledger.to_dict() for name, store in self.splits.items()},
            "warnings": list(self.warnings),
        }


@dataclass(frozen=True)
class _Source:
    """A text file that can be read again; `name` is what the user called it."""

    path: Path
    name: str
    digest: str
    labels: LabelMode
    labelled: bool  # what the mode comes to
    shares: Shares | None = None  # None: the file is not split

    @property
    def size(self) -> int:
        return self.path.stat().st_size

    def lines(self, stats: ReadStats, progress: Progress) -> Iterator[tuple[str, Line]]:
        """Yield sentences with their side."""
        for line in read_sentences(self.path, self.labels, name=self.name, stats=stats, progress=progress):
            yield (self.shares.side(line.text) if self.shares else "all"), line


class _Split(NamedTuple):
    """A split to be: which sides of which files it joins."""

    name: str
    pieces: tuple[tuple[_Source, str], ...]
    limit: Limit | None = None

    def key(self, vocabulary: Vocabulary, label_names: Sequence[str] | None) -> str:
        pieces = [(source.digest, side, source.shares if side != "all" else None) for source, side in self.pieces]
        labels = None if label_names is None else list(label_names)
        return content_key(pieces=pieces, limit=self.limit, vocabulary=vocabulary.hash, labels=labels)


class _Survey(NamedTuple):
    """What one pass over the training files finds out."""

    tokenizer: str | None  # JSON; None if the vocabulary was given
    label_names: list[str] | None  # of the whole training files, sorted
    kept: dict[str, int]  # sentences on each side, after the length limit
    dropped: int


class _Meter:
    """Joins the progress of several passes over files."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self._progress = progress or (lambda _done, _total: None)
        self._total = total
        self._before = 0

    def passing(self, source: _Source) -> Progress:
        """Return the callback for the next pass."""
        before = self._before
        self._before += source.size
        return lambda done, _: self._progress(min(before + done, self._total), self._total)

    def finish(self) -> None:
        self._progress(self._total, self._total)


def prepare(
    settings: CorpusSettings,
    train: Sequence[Path | str],
    valid: Sequence[Path | str] = (),
    test: Sequence[Path | str] = (),
    vocabulary: Vocabulary | None = None,
    progress: Progress | None = None,
) -> Corpus:
    """Read text files into a corpus, or find it in the cache.

    Without `valid`, a share of the training sentences is held out for validation, and without `test` as well another
    for testing. Without `vocabulary`, one is made from the training split. The length limit touches training only.
    """
    shares = _held_out(settings, bool(valid), bool(test))
    limit = Limit(settings.max_words, settings.long_sentences == "drop") if settings.max_words else None
    with _sources([train, valid, test], settings) as (trained, validated, tested), _cache_errors():
        trained = [replace(source, shares=shares) for source in trained]
        everything = [*trained, *validated, *tested]
        _check_labels(everything)
        meter = _Meter(progress, sum(source.size for source in [*trained, *everything]))
        survey = _survey(trained, settings, limit, vocabulary, meter)
        _check_sides(survey, shares, settings)
        if vocabulary is None:
            vocabulary = Vocabulary.from_json(survey.tokenizer or "")
        plan = [
            _Split("train", tuple((source, "train") for source in trained), limit),
            *_evaluated("valid", trained if shares.valid else [], validated),
            *_evaluated("test", trained if shares.test else [], tested),
        ]
        stores = _open_or_write(plan, vocabulary, survey.label_names, meter)
        meter.finish()
    splits = {name: store for name, store in stores.items() if len(store)}
    warnings = tuple(_warnings(splits, everything, stores.keys() - splits.keys()))
    names = None if survey.label_names is None else tuple(survey.label_names)
    origins = {
        split.name: tuple(Origin(Path(s.name), s.labelled, s.shares, side) for s, side in split.pieces)
        for split in plan
    }
    return Corpus(vocabulary, splits, names, warnings, origins)


def open_split(
    path: Path | str,
    vocabulary: Vocabulary,
    settings: CorpusSettings,
    label_names: Sequence[str] | None = None,
    progress: Progress | None = None,
) -> TokenStore:
    """Read one whole file with a stored vocabulary, for evaluation; no length limit applies.

    Labels become indices into `label_names` (a model's own), or into the file's label names, sorted.
    """
    with _sources([[path]], settings) as ([source],), _cache_errors():
        meter = _Meter(progress, source.size * (2 if source.labelled and label_names is None else 1))
        if not source.labelled:
            if label_names is not None:
                raise ZentenceError(f"{source.name} has no labels: expected label<TAB>sentence on every line")
        elif label_names is None:
            label_names = _survey([source], settings, None, vocabulary, meter).label_names
        store = _open_or_write([_Split("all", ((source, "all"),))], vocabulary, label_names, meter)["all"]
        meter.finish()
    return store


def _held_out(settings: CorpusSettings, valid: bool, test: bool) -> Shares:
    if valid:
        return Shares()
    if test:
        return Shares(settings.valid_share)
    if settings.valid_share + settings.test_share >= 1.0:
        raise ZentenceError("valid_share + test_share must be less than 1, or nothing is left for training")
    return Shares(settings.valid_share, settings.test_share)


@contextmanager
def _sources(groups: Sequence[Sequence[Path | str]], settings: CorpusSettings) -> Iterator[list[list[_Source]]]:
    """Open groups of files; standard input and pipes are copied to temporary files first."""
    if sum(is_stdin(path) for group in groups for path in group) > 1:
        raise ZentenceError("Standard input (-) can be given once only")
    with ExitStack() as stack:
        opened = [[_open_source(path, settings, stack) for path in group] for group in groups]
        if not opened[0]:
            raise ZentenceError("No training file is given")
        yield opened


def _open_source(path: Path | str, settings: CorpusSettings, stack: ExitStack) -> _Source:
    name = display_name(path)
    real = Path(path)
    if is_stream(path):
        real = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="zentence-"))) / "spooled"
        spool(path, real)
    with open_file(real, name) as file:
        digest = hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=20)).hexdigest()
    return _Source(real, name, digest, settings.labels, has_labels(real, settings.labels, name))


@contextmanager
def _cache_errors() -> Iterator[None]:
    """Turn failures to write the cache into one line; failures to read text are ZentenceErrors already."""
    try:
        yield
    except BrokenPipeError:
        raise  # a display of progress that nobody reads
    except OSError as error:
        raise ZentenceError(
            f"Cannot write the token cache in {cache_folder()}: {error.strerror or error}. "
            "Set ZENTENCE_CACHE to a folder with room"
        ) from error


def _check_labels(sources: Iterable[_Source]) -> None:
    with_labels = [source.name for source in sources if source.labelled]
    without = [source.name for source in sources if not source.labelled]
    if with_labels and without:
        raise ZentenceError(
            f"{without[0]} has no labels (label<TAB>sentence), but {with_labels[0]} has: "
            'label every file, or set labels = "no" to read tabs as spaces'
        )


def _check_sides(survey: _Survey, shares: Shares, settings: CorpusSettings) -> None:
    if not survey.kept["train"] and survey.dropped:
        raise ZentenceError(
            f"All training sentences are longer than max_words = {settings.max_words}: "
            'raise it, or set long_sentences = "truncate"'
        )
    if not survey.kept["train"] or (shares.valid and not survey.kept["valid"]):
        raise ZentenceError("Too few sentences to split: give a file with --valid")


def _survey(
    sources: Sequence[_Source],
    settings: CorpusSettings,
    limit: Limit | None,
    vocabulary: Vocabulary | None,
    meter: _Meter,
) -> _Survey:
    """Count the training words, list the labels and size the sides, or find all that in the cache."""
    relevant = settings.model_dump(
        include={"unknown_words", "lower_case", "min_count", "max_vocabulary", "tokenizer", "bpe_size"}
    )
    key = content_key(
        files=[(source.digest, source.labelled, source.shares) for source in sources],
        limit=limit,
        vocabulary=relevant if vocabulary is None else None,
    )
    path = cache_folder() / "surveys" / f"{key}.json"
    try:
        cached = _Survey(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        survey = _survey_text(sources, settings, limit, vocabulary, meter)
        if vocabulary or survey.tokenizer:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, json.dumps(survey._asdict()))
        return survey
    return cached


def _survey_text(
    sources: Sequence[_Source],
    settings: CorpusSettings,
    limit: Limit | None,
    vocabulary: Vocabulary | None,
    meter: _Meter,
) -> _Survey:
    counts: Counter[str] = Counter()
    labels: set[str] = set()
    kept = {"train": 0, "valid": 0, "test": 0, "all": 0}
    dropped = 0
    for source in sources:
        for side, line in source.lines(ReadStats(), meter.passing(source)):
            text: str | None = line.text
            if line.label is not None:
                labels.add(line.label)
            if side == "train":
                text = limit.cut(line.text) if limit else line.text
                if text is None:
                    dropped += 1
                    continue
                if vocabulary is None:
                    counts.update(text.split(" "))
            kept[side] += 1
    build = vocabulary is None and kept["train"] > 0
    make = build_subwords if settings.tokenizer == "bpe" else build_vocabulary
    tokenizer = make(counts, settings).to_json() if build else None
    return _Survey(tokenizer, sorted(labels) if sources[0].labelled else None, kept, dropped)


def _evaluated(name: str, held_out: Sequence[_Source], given: Sequence[_Source]) -> list[_Split]:
    """Plan a split that is evaluated: all its files joined, and each alone if there are several."""
    pieces = [(source, name) for source in held_out] or [(source, "all") for source in given]
    if not pieces:
        return []
    splits = [_Split(name, tuple(pieces))]
    if len(pieces) > 1:
        stems = _unique_stems([source for source, _ in pieces])
        splits += [_Split(f"{name}/{stem}", (piece,)) for stem, piece in zip(stems, pieces, strict=True)]
    return splits


def _unique_stems(sources: Iterable[_Source]) -> list[str]:
    stems: list[str] = []
    for source in sources:
        stem = "stdin" if source.name == display_name("-") else Path(source.name.removesuffix(".gz")).stem
        unique, number = stem, 1
        while unique in stems:
            number += 1
            unique = f"{stem}-{number}"
        stems.append(unique)
    return stems


def _open_or_write(
    plan: Sequence[_Split], vocabulary: Vocabulary, label_names: Sequence[str] | None, meter: _Meter
) -> dict[str, TokenStore]:
    """Return the splits' stores; those that are not in the cache are written, all in one pass over each file."""
    keys = {split.name: split.key(vocabulary, label_names) for split in plan}
    stores = {name: store for name, key in keys.items() if (store := open_store(key)) is not None}
    missing = [split for split in plan if split.name not in stores]
    with ExitStack() as stack:
        writers = {
            split.name: stack.enter_context(StoreWriter(keys[split.name], vocabulary, label_names, split.limit))
            for split in missing
        }
        sources = list({id(source): source for split in missing for source, _ in split.pieces}.values())
        for source in sources:
            feeds: dict[str, list[StoreWriter]] = {}
            for split in missing:
                for _, side in (piece for piece in split.pieces if piece[0] is source):
                    feeds.setdefault(side, []).append(writers[split.name])
            _feed(source, feeds, meter.passing(source))
        stores |= {name: writer.commit() for name, writer in writers.items()}
    return {split.name: stores[split.name] for split in plan}


def _feed(source: _Source, feeds: Mapping[str, Sequence[StoreWriter]], progress: Progress) -> None:
    stats = ReadStats()
    for side, line in source.lines(stats, progress):
        for writer in feeds.get(side, ()):
            try:
                writer.add(line.text, line.label)
            except KeyError:
                raise ZentenceError(
                    f"{source.name}, line {line.number}: label '{line.label}' does not occur in training"
                ) from None
    for writer in [*feeds.get("train", ()), *feeds.get("all", ())]:  # held-out sides of a file leave them to training
        writer.add_blank_lines(stats.blank_lines)


def _warnings(splits: Mapping[str, TokenStore], sources: Sequence[_Source], empty: Iterable[str]) -> Iterator[str]:
    yield from (f"{name} has no sentences and is left out" for name in sorted(empty))
    seen: dict[str, str] = {}
    for source in sources:
        if source.digest in seen:
            yield f"{source.name} is the same text as {seen[source.digest]}"
        seen.setdefault(source.digest, source.name)
    for name, store in splits.items():
        ledger = store.ledger
        if name != "train" and ledger.sentences < _FEW_SENTENCES:
            yield f"{name} has only {ledger.sentences} sentences: figures on it are noisy"
        if ledger.unknown > _UNKNOWN_SHARE * ledger.tokens:
            yield f"{ledger.unknown / ledger.tokens:.1%} of the words of {name} are unknown"
        if ledger.cut_words:
            every = ledger.sentences + ledger.dropped
            yield (
                f"The length limit cut {ledger.truncated + ledger.dropped:,} of {every:,} sentences of {name} "
                f"({ledger.cut_words:,} words)"
            )
