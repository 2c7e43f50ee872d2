"""Text from elsewhere, written as the corpus of a model is written."""

import re
from functools import lru_cache

from zentence.corpora import Vocabulary
from zentence.settings import CorpusSettings
from zentence.special import SPECIAL_WORDS, UNK

RARE = 0.01  # a corpus whose vocabulary has a smaller share of such words is taken not to have them
_ATTACHED = re.compile(r".*\w[,?!;]")  # full stops also end abbreviations, so they prove nothing
_CONTRACTION = re.compile(r"(.+?)(n't|'(?:s|re|ve|ll|m|d)|')", re.IGNORECASE)
_OPENING = "\"'([{<`“‘«¿¡$#"
_CLOSING = "\"')]}>.,?!;:…”’»%"
_PLAIN = str.maketrans("’‘“”", "''\"\"")


class Normaliser:
    """Writes any text as a model's corpus is written, judged by the words of its vocabulary alone.

    - Spellings of the unknown word (`_UNK`, …) become `<unk>`; a word that the vocabulary knows is left as it is.
    - If less than 1 % of the vocabulary's words have capitals, words are lower-cased.
    - If less than 1 % of them end in an attached comma, semicolon, question or exclamation mark, the corpus is
      tokenised: marks are split off unknown words (and left out where the vocabulary has no such mark), quotes are
      spelt as the vocabulary spells them, and contractions are split as in the Penn Treebank (do n't, it 's, can not)
      where the vocabulary has their parts.

    Text of the corpus itself stays as it is, but for unknown words with marks inside the corpus's own words. Sub-word
    vocabularies know every word, so that only their case is touched.
    """

    def __init__(self, vocabulary: Vocabulary, settings: CorpusSettings) -> None:
        words = vocabulary.words[len(SPECIAL_WORDS) :]
        capitals = sum(word != word.lower() for word in words)
        attached = sum(_ATTACHED.fullmatch(word) is not None for word in words)
        self.lower_case = vocabulary.lower_case or capitals < RARE * len(words)
        self.tokenised = attached < RARE * len(words)
        self._vocabulary = vocabulary
        self._unknown = {spelling.lower() for spelling in (*settings.unknown_words, SPECIAL_WORDS[UNK])}
        self._pieces = lru_cache(maxsize=100_000)(self._split)  # words repeat; memory stays bounded

    def __call__(self, text: str) -> str:
        """Return the text with single spaces between its words; what has only marks that are left out is `<unk>`."""
        return " ".join(piece for word in text.split() for piece in self._pieces(word)) or SPECIAL_WORDS[UNK]

    def _knows(self, word: str) -> bool:
        ids = self._vocabulary.encode_batch([word])[0]
        return len(ids) > 0 and bool((ids != UNK).all())

    def _split(self, word: str) -> tuple[str, ...]:
        if word.lower() in self._unknown:
            return (SPECIAL_WORDS[UNK],)
        if self._vocabulary.lower_case or (self.lower_case and not self._knows(word)):
            word = word.lower()
        if not self.tokenised or self._knows(word):
            return (word,)
        plain = word.translate(_PLAIN)
        if plain != word and self._knows(plain):
            return (plain,)
        return tuple(self._tokenise(plain))

    def _tokenise(self, word: str) -> list[str]:
        before: list[str] = []
        after: list[str] = []
        while word and word[0] in _OPENING and not self._knows(word):
            before += self._mark(word[0], opens=True)
            word = word[1:]
        while word and word[-1] in _CLOSING and not self._knows(word) and not self._contraction(word):
            end = len(word.rstrip(word[-1])) if word[-1] == "." else len(word) - 1  # an ellipsis is one mark
            after = self._mark(word[end:], opens=False) + after
            word = word[:end]
        return [*before, *(self._contraction(word) or ([word] if word else [])), *after]

    def _mark(self, mark: str, opens: bool) -> list[str]:
        """Return a mark as the vocabulary spells it, or nothing if it has none."""
        spellings = {'"': ["``" if opens else "''", '"']}.get(mark, [mark, *(["..."] if mark.startswith("..") else [])])
        return [spelling for spelling in spellings if self._knows(spelling)][:1]

    def _contraction(self, word: str) -> list[str]:
        """Return a contraction's parts, or nothing if it is none or the vocabulary does not write them apart."""
        if self._knows(word):
            return []
        if word.lower() == "cannot" and self._knows("not"):
            return [word[:3], word[3:]]
        match = _CONTRACTION.fullmatch(word)
        if match is None or not self._knows(match[2]):
            return []
        return list(match.groups()) if match[2] != "'" or self._knows(match[1]) else []
