"""Words and their ids. The tokeniser is the library `tokenizers`', so any tokenizer.json fits behind `Vocabulary`."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from zentence.errors import ZentenceError
from zentence.files import write_atomically
from zentence.settings import CorpusSettings
from zentence.special import BOS, EOS, PAD, SPECIAL_WORDS, UNK

ENCODER_FILE = "encoder_tokenizer.json"  # beside a tokenizer.json: what the encoder reads with


class Vocabulary:
    """A tokeniser whose ids 0 to 3 are `<pad> <bos> <eos> <unk>`.

    Text never yields `<pad>`, `<bos>` or `<eos>`: where it spells them, they are the unknown word. Where the encoder
    reads with a tokeniser of its own, `encoder` is that one; None: both parts of a model read with the same.
    """

    def __init__(self, tokenizer: Tokenizer, encoder: "Vocabulary | None" = None) -> None:
        tokenizer.no_padding()
        tokenizer.no_truncation()
        self._tokenizer = tokenizer
        self.encoder = encoder
        ids = tokenizer.get_vocab(with_added_tokens=True)
        self.words: tuple[str, ...] = tuple(sorted(ids, key=ids.__getitem__))
        if self.words[:4] != SPECIAL_WORDS:
            raise ZentenceError(f"The tokeniser's ids 0 to 3 must be {' '.join(SPECIAL_WORDS)}")
        if sorted(ids.values()) != list(range(len(ids))):
            raise ZentenceError("The tokeniser's ids must be 0, 1, 2 … without gaps")
        if isinstance(tokenizer.model, models.WordLevel) and tokenizer.model.unk_token != SPECIAL_WORDS[UNK]:
            raise ZentenceError(f"The tokeniser's unknown word must be {SPECIAL_WORDS[UNK]}")

    def __len__(self) -> int:
        return len(self.words)

    @cached_property
    def hash(self) -> str:
        """Hexadecimal digest of everything that decides how text is read."""
        text = self._tokenizer.to_str() + ("" if self.encoder is None else self.encoder.to_json())
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

    @property
    def sizes(self) -> tuple[int, int]:
        """Numbers of tokens that the decoder and the encoder know."""
        return len(self), len(self if self.encoder is None else self.encoder)

    def with_encoder(self, encoder: "Vocabulary | None") -> "Vocabulary":
        """Return the same tokeniser, beside another one for the encoder."""
        return Vocabulary(self._tokenizer, encoder)

    def encode_sources(self, texts: list[str]) -> list[NDArray[np.int64]] | None:
        """Return the ids that the encoder reads; None: those of `encode_batch`."""
        return None if self.encoder is None else self.encoder.encode_batch(texts)

    @property
    def lower_case(self) -> bool:
        """Whether text is lower-cased before it is looked up."""
        normalizer = self._tokenizer.normalizer
        return normalizer is not None and normalizer.normalize_str("A") == "a"

    def encode_batch(self, texts: list[str]) -> list[NDArray[np.int64]]:
        """Return the ids of each text's words, without `<bos>` and `<eos>`."""
        try:
            encodings = self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        except TypeError:
            raise ZentenceError("A sentence has characters that are not Unicode text") from None
        return [self._without_special(np.array(encoding.ids, dtype=np.int64)) for encoding in encodings]

    @staticmethod
    def _without_special(ids: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.maximum(ids, UNK)  # below it are <pad>, <bos> and <eos>, which only text that spells them gives

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of ids up to the first `<eos>`, without `<pad>` and `<bos>`."""
        kept: list[int] = []
        for number in map(int, ids):
            if number == EOS:
                break
            if number not in (PAD, BOS):
                kept.append(number)
        if self._tokenizer.decoder is not None:
            return str(self._tokenizer.decode(kept, skip_special_tokens=False))
        return " ".join(self.words[number] for number in kept)

    def save(self, path: Path) -> None:
        """Write a tokenizer.json, and the encoder's beside it if that has its own."""
        write_atomically(path, self._tokenizer.to_str(pretty=True))
        if self.encoder is None:
            path.with_name(ENCODER_FILE).unlink(missing_ok=True)  # of a model that was there before
        else:
            write_atomically(path.with_name(ENCODER_FILE), self.encoder._tokenizer.to_str(pretty=True))

    def to_json(self) -> str:
        """Return the content of a tokenizer.json."""
        return str(self._tokenizer.to_str())

    @classmethod
    def from_json(cls, text: str, name: str = "tokenizer.json") -> "Vocabulary":
        """Return the vocabulary in a tokenizer.json's content; `name` stands for it in messages."""
        try:
            tokenizer = Tokenizer.from_str(text)
        except Exception as error:  # the library raises nothing more special
            raise ZentenceError(f"{name} is not a tokeniser: {' '.join(str(error).split())}") from error
        try:
            return cls(tokenizer)
        except ZentenceError as error:
            raise ZentenceError(f"{name}: {error}") from None

    @classmethod
    def load(cls, path: Path) -> "Vocabulary":
        """Read a tokenizer.json, written here or elsewhere, and the encoder's own where one stands beside it."""
        beside = path.with_name(ENCODER_FILE)
        if path.name != ENCODER_FILE and beside.is_file():
            return cls._load(path).with_encoder(cls._load(beside))
        return cls._load(path)

    @classmethod
    def _load(cls, path: Path) -> "Vocabulary":
        try:
            text = Path(path).read_text(encoding="utf-8")
        except FileNotFoundError:
            raise ZentenceError(f"No such file: {path}") from None
        except (OSError, UnicodeDecodeError) as error:
            raise ZentenceError(f"{path} is not a tokeniser: {' '.join(str(error).split())}") from error
        return cls.from_json(text, str(path))


def fold_case(counts: Mapping[str, int], settings: CorpusSettings) -> tuple[Counter[str], set[str], bool]:
    """Return the counts of words as they are looked up, spellings of the unknown word, and whether case is folded."""
    unknown = set(settings.unknown_words)
    seen = Counter({word: count for word, count in counts.items() if word not in unknown})
    lower = normalizers.Lowercase()
    lowered: dict[str, str] = {}
    if settings.lower_case != "no":
        lowered = {word: lower.normalize_str(word) for word in seen}
    lower_case = settings.lower_case == "yes" or (
        settings.lower_case == "auto" and all(word == low for word, low in lowered.items())
    )
    if lower_case:
        unknown |= {lower.normalize_str(word) for word in unknown}
        merged: Counter[str] = Counter()
        for word, count in seen.items():
            merged[lowered[word]] += count
        seen = merged
    return seen, unknown, lower_case


def build_vocabulary(counts: Mapping[str, int], settings: CorpusSettings) -> Vocabulary:
    """Make a word-level vocabulary from the counts of the training words, as they are spelt in the text.

    Words stand by falling count, ties alphabetically; `min_count` and `max_vocabulary` limit them.
    """
    seen, unknown, lower_case = fold_case(counts, settings)
    unknown.update(SPECIAL_WORDS)
    kept = [(word, count) for word, count in seen.items() if count >= settings.min_count and word not in unknown]
    kept.sort(key=lambda item: (-item[1], item[0]))
    words = [word for word, _ in kept[: settings.max_vocabulary - len(SPECIAL_WORDS)]]
    if not words:
        raise ZentenceError(f"No word of the training text occurs {settings.min_count} times or more: lower min_count")
    ids = {word: number for number, word in enumerate((*SPECIAL_WORDS, *words))}
    tokenizer = Tokenizer(models.WordLevel(ids, unk_token=SPECIAL_WORDS[UNK]))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    if lower_case:
        tokenizer.normalizer = normalizers.Lowercase()
    return Vocabulary(tokenizer)
