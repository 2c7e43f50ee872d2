"""From files of dialogues to a vocabulary and token stores, cached by content; perhaps with text in a style."""

import hashlib
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from zentence.corpora.dialogues import Dialogue, DialogueStats, read_dialogues
from zentence.corpora.readers import Progress, display_name, is_stream, open_file, read_sentences, spool
from zentence.corpora.splitting import Shares
from zentence.corpora.store import Limit, StoreWriter, TokenStore, cache_folder, content_key, open_store
from zentence.corpora.subwords import build_subwords
from zentence.corpora.vocabulary import Vocabulary, build_vocabulary
from zentence.errors import ZentenceError
from zentence.settings import CorpusSettings

MOST_TURNS = 100  # of a context that the store knows of; batches may take fewer
FEW_SENTENCES = 100  # of a style, below which a warning is given
_UNKNOWN_SHARE = 0.1  # of a split's tokens, above which a warning is given
_LABELS = tuple(str(count) for count in range(MOST_TURNS + 1))


@dataclass(frozen=True)
class DialogueCorpus:
    """A vocabulary and stores of turns; with a style, its sentences, and text of both kinds held apart from training.

    The stores of turns know of each turn how many turns it answers (`zentence.corpora.pairs`).
    """

    vocabulary: Vocabulary
    train: TokenStore
    valid: TokenStore
    style: TokenStore | None
    held_style: TokenStore | None  # sentences of the style, for classifiers only
    held_turns: TokenStore | None  # turns of dialogues, for classifiers only
    stats: DialogueStats  # of the training file
    warnings: tuple[str, ...]


class _File(NamedTuple):
    """A file that can be read again; `name` is what the user called it."""

    path: Path
    name: str
    digest: str


class _Sides(NamedTuple):
    """Which texts are held out of training: for validation, and for classifiers of a style."""

    valid: float
    held: float

    def of(self, text: str) -> str:
        if self.held and Shares(self.held).side(f"held apart: {text}") == "valid":
            return "held"
        return Shares(self.valid).side(text)


def prepare_dialogues(
    settings: CorpusSettings,
    train: Path | str,
    valid: Path | str | None = None,
    style: Path | str | None = None,
    *,
    vocabulary: Vocabulary | None = None,
    held_apart: float = 0.1,
    progress: Progress | None = None,
) -> DialogueCorpus:
    """Read dialogues, or find them in the cache; without `vocabulary`, one is made from the training text.

    Without `valid`, a share of the dialogues is held out for validation. With `style` (one sentence a line), the share
    `held_apart` of its sentences and of the dialogues is kept for classifiers; the sentences themselves decide which.
    """
    limit = Limit(settings.max_words, settings.long_sentences == "drop") if settings.max_words else None
    if limit is not None and limit.drop:
        raise ZentenceError("corpus.long_sentences = drop would tear dialogues apart: use truncate")
    with ExitStack() as stack:
        files = {
            what: _open(path, stack)
            for what, path in (("train", train), ("valid", valid), ("style", style))
            if path is not None
        }
        sides = _Sides(0.0 if valid is not None else settings.valid_share, held_apart if style is not None else 0.0)
        reader = _Reader(files, sides, limit, progress)
        stats = DialogueStats()
        words, style_words = reader.count(stats)
        if vocabulary is None:
            vocabulary = _vocabulary(words, style_words, settings)
        train_store = reader.turns("train", "train", vocabulary, limit)
        valid_store = reader.turns("valid", "all", vocabulary) if valid is not None else None
        if valid_store is None:
            valid_store = reader.turns("train", "valid", vocabulary)
        corpus = DialogueCorpus(
            vocabulary,
            train_store,
            valid_store,
            reader.sentences("train", vocabulary, limit) if style is not None else None,
            reader.sentences("held", vocabulary) if style is not None else None,
            reader.turns("train", "held", vocabulary) if style is not None else None,
            stats,
            tuple(_warnings(files, train_store, stats)),
        )
    for what, store in (("training", corpus.train), ("validation", corpus.valid)):
        if store.labels is None or not (store.labels > 0).any():
            raise ZentenceError(f"Too few dialogues for {what}: give more, or a file with --valid")
    if corpus.style is not None and not len(corpus.style):
        raise ZentenceError(f"{display_name(style or '')} has too few sentences to hold some apart: give more")
    return corpus


def _open(path: Path | str, stack: ExitStack) -> _File:
    name, real = display_name(path), Path(path)
    if is_stream(path):  # it is read twice
        real = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="zentence-"))) / "spooled"
        spool(path, real)
    with open_file(real, name) as file:
        return _File(real, name, hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=20)).hexdigest())


def _vocabulary(words: Counter[str], style_words: Counter[str], settings: CorpusSettings) -> Vocabulary:
    """Make a vocabulary; if one of the two texts has no capitals, all is lower-cased: case must not tell the style."""
    if settings.lower_case == "auto" and any(
        counts and all(word == word.lower() for word in counts) for counts in (words, style_words)
    ):
        settings = settings.model_copy(update={"lower_case": "yes"})
    make = build_subwords if settings.tokenizer == "bpe" else build_vocabulary
    return make(words + style_words, settings)


class _Reader:
    """Passes over the files."""

    def __init__(self, files: dict[str, _File], sides: _Sides, limit: Limit | None, progress: Progress | None) -> None:
        self.files, self.sides, self.limit, self.progress = files, sides, limit, progress

    def count(self, stats: DialogueStats) -> tuple[Counter[str], Counter[str]]:
        """Return the words of the training dialogues and those of the style's training sentences, counted."""
        words: Counter[str] = Counter()
        for dialogue in self._dialogues("train", "train", stats):
            for turn in dialogue.turns:
                words.update(self._cut(turn).split(" "))
        style: Counter[str] = Counter()
        if "style" in self.files:
            for text in self._sentences("train"):
                style.update(self._cut(text).split(" "))
        return words, style

    def _cut(self, text: str) -> str:
        return (self.limit.cut(text) or text) if self.limit else text

    def _dialogues(self, what: str, side: str, stats: DialogueStats | None = None) -> Iterator[Dialogue]:
        file = self.files[what]
        for dialogue in read_dialogues(file.path, name=file.name, stats=stats, progress=self.progress):
            if side == "all" or self.sides.of(" ".join(dialogue.turns)) == side:
                yield dialogue

    def _sentences(self, side: str) -> Iterator[str]:
        file = self.files["style"]
        for line in read_sentences(file.path, "no", name=file.name, progress=self.progress):
            if (_Sides(0.0, self.sides.held).of(line.text) == "held") == (side == "held"):
                yield line.text

    def turns(self, what: str, side: str, vocabulary: Vocabulary, limit: Limit | None = None) -> TokenStore:
        """Return the store of the turns of a file's dialogues on one side."""

        def write(writer: StoreWriter) -> None:
            for dialogue in self._dialogues(what, side):
                for place, turn in enumerate(dialogue.turns):
                    answered = min(place, MOST_TURNS) if place >= dialogue.first_response else 0
                    writer.add(turn, str(answered))

        split = (self.files[what].digest, side, self.sides if side != "all" else None)
        return _cached(content_key(dialogues=split, limit=limit, vocabulary=vocabulary.hash), vocabulary, limit, write)

    def sentences(self, side: str, vocabulary: Vocabulary, limit: Limit | None = None) -> TokenStore:
        """Return the store of the style's sentences on one side."""

        def write(writer: StoreWriter) -> None:
            for text in self._sentences(side):
                writer.add(text, "0")

        split = (self.files["style"].digest, side, self.sides.held)
        return _cached(content_key(style=split, limit=limit, vocabulary=vocabulary.hash), vocabulary, limit, write)


def _cached(key: str, vocabulary: Vocabulary, limit: Limit | None, write: Callable[[StoreWriter], None]) -> TokenStore:
    """Return the store with a key; one that is not in the cache is written."""
    if (store := open_store(key)) is not None:
        return store
    try:
        with StoreWriter(key, vocabulary, _LABELS, limit) as writer:
            write(writer)
            return writer.commit()
    except OSError as error:
        raise ZentenceError(
            f"Cannot write the token cache in {cache_folder()}: {error.strerror or error}. "
            "Set ZENTENCE_CACHE to a folder with room"
        ) from error


def _warnings(files: dict[str, _File], train: TokenStore, stats: DialogueStats) -> Iterator[str]:
    if stats.alone:
        yield f"{stats.alone:,} dialogues of {files['train'].name} have one turn only: they are left out"
    if "valid" in files and files["valid"].digest == files["train"].digest:
        yield f"{files['valid'].name} is the same text as {files['train'].name}"
    if train.ledger.unknown > _UNKNOWN_SHARE * train.ledger.tokens:
        yield f"{train.ledger.unknown / train.ledger.tokens:.1%} of the words of the dialogues are unknown"
    if "style" not in files:
        return
    count = sum(1 for _ in read_sentences(files["style"].path, "no", name=files["style"].name))
    if count < FEW_SENTENCES:
        yield f"{files['style'].name} has only {count} sentences: too few to learn a style from, or to judge one by"
