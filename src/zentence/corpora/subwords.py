"""Byte-level sub-words (BPE) learnt from a corpus, as a `Vocabulary` like any other.

Everything that decides how text is read and written back is in the tokenizer.json: white space, case, spellings of the
unknown word, and how pieces join. Any text can be spelt, so only the unknown word itself is unknown.
"""

import re
from collections.abc import Iterator, Mapping

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from zentence.corpora.vocabulary import Vocabulary, fold_case
from zentence.errors import ZentenceError
from zentence.settings import CorpusSettings
from zentence.special import SPECIAL_WORDS, UNK

_MOST_WORDS = 20_000_000  # read by the trainer; beyond it counts are scaled down, which leaves the merges much the same
_CHUNK_WORDS = 1000
_LONGEST_WORD = 256  # characters that the trainer reads of one: its time grows with the square of a word's length
_WHITE_SPACE = {*range(9, 14), *range(28, 32)}  # bytes that never stand within a sentence


def build_subwords(counts: Mapping[str, int], settings: CorpusSettings) -> Vocabulary:
    """Learn byte-pair merges from the counts of the training words, up to `bpe_size` entries.

    The first entries are the special words and the bytes; `min_count` and `max_vocabulary` are for words alone.
    """
    seen, unknown, lower_case = fold_case(counts, settings)
    for word in {*unknown, *SPECIAL_WORDS}:
        del seen[word]
    if not seen:
        raise ZentenceError("The training text has no word but the unknown one")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = _normalizer(unknown - {SPECIAL_WORDS[UNK]}, lower_case)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    mark = f"Ġ{SPECIAL_WORDS[UNK]}"  # "Ġ" is the byte level's space: the unknown word stands apart from its neighbours
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace(SPECIAL_WORDS[UNK], mark), decoders.ByteLevel(), decoders.Strip(" ", 1, 0)]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=settings.bpe_size,
        special_tokens=[AddedToken(word, single_word=True, lstrip=True, normalized=True) for word in SPECIAL_WORDS],
        initial_alphabet=_alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_text(seen), trainer)
    return Vocabulary(tokenizer)


def _normalizer(unknown: set[str], lower_case: bool) -> normalizers.Normalizer:
    steps: list[normalizers.Normalizer] = [normalizers.Lowercase()] if lower_case else []
    if unknown:
        spellings = "|".join(re.escape(word) for word in sorted(unknown))
        steps.append(normalizers.Replace(Regex(rf"(?<!\S)(?:{spellings})(?!\S)"), SPECIAL_WORDS[UNK]))
    steps += [normalizers.Replace(Regex(r"\s+"), " "), normalizers.Strip()]
    return normalizers.Sequence(steps)


def _alphabet() -> list[str]:
    """Return the characters that stand for bytes: 256 + b for a byte b up to the space."""
    return sorted({*pre_tokenizers.ByteLevel.alphabet()} - {chr(256 + byte) for byte in _WHITE_SPACE})


def _text(counts: Mapping[str, int]) -> Iterator[str]:
    """Yield text in which words are as frequent as counted, in bounded pieces and in a fixed order."""
    scale = max(1, -(-sum(counts.values()) // _MOST_WORDS))
    for word in sorted(counts):
        left = -(-counts[word] // scale)
        for first in range(0, left, _CHUNK_WORDS):
            yield " ".join([word[:_LONGEST_WORD]] * min(_CHUNK_WORDS, left - first))
