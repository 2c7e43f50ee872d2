"""From documents to sentences: a small rule-based splitter for English and languages that punctuate like it."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

# A word that may end a sentence: its stem, the marks, and quotes or brackets that close after them.
_ENDING = re.compile(r"""^(.*?)(\.{2,}|…|[.!?]+)(["'”’»)\]}]*)$""")
_CLOSING = frozenset(['"', "'", "''", "”", "’", "»", ")", "]", "}"])
_OPENING = "\"'“‘«([{¿¡`-–—"
_INITIALS = re.compile(r"^(\w\.)*\w$")  # J. or U.S. or e.g., without the last full stop


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


# Before a name or a number: never the end of a sentence.
_TITLES = _set(
    "mr mrs ms messrs dr prof st rev hon gen col lt sgt capt cpt cmdr adm gov sen rep pres supt mt ft fig figs eq vol "
    "vols ch sec no nos pp vs cf viz approx ca al"
)
# May end a sentence: they do where a word follows that likes to begin one.
_SHORTENED = _set(
    "inc ltd co corp bros jr sr etc ave blvd rd dept univ est assn jan feb mar apr jun jul aug sep sept oct nov dec "
    "mon tue tues wed thu thur thurs fri sat sun ph.d"
)
_STARTERS = _set(
    "a an the this that these those it its he she they we you i his her their our my there here in on at for from "
    "but and so yet or if when while after before since although though however as what who why how where one some "
    "many most all no not"
)


@dataclass
class DocumentStats:
    """Counts of what was split; filled while the sentences are taken."""

    documents: int = 0  # lines that are not blank
    sentences: int = 0  # found
    kept: int = 0  # within the limits of length
    words: int = 0  # of the kept sentences

    @property
    def share_kept(self) -> float:
        """Kept sentences among all that were found; 0 if there are none."""
        return self.kept / self.sentences if self.sentences else 0.0


def split_documents(
    lines: Iterable[str], max_words: int, min_words: int = 1, stats: DocumentStats | None = None
) -> Iterator[str]:
    """Yield the sentences of documents (one a line) that have `min_words` to `max_words` words, and count in `stats`.

    Sentences never cross lines; longer and shorter ones are left out, not cut.
    """
    stats = stats or DocumentStats()
    for line in lines:
        found = split_sentences(line)
        stats.documents += bool(found)
        stats.sentences += len(found)
        for sentence in found:
            words = sentence.count(" ") + 1
            if min_words <= words <= max_words:
                stats.kept += 1
                stats.words += words
                yield sentence


def split_sentences(text: str) -> list[str]:
    """Return the sentences of a text, each with single spaces between its words; tokenised text works too."""
    words = text.split()
    sentences: list[str] = []
    start = position = 0
    while position < len(words):
        end = position + 1
        if _ENDING.match(words[position]):
            while end < len(words) and _closes(words, start, end):
                end += 1
            if end < len(words) and _ends_sentence(words[position], words[end]):
                sentences.append(" ".join(words[start:end]))
                start = end
        position = end
    if start < len(words):
        sentences.append(" ".join(words[start:]))
    return sentences


def _closes(words: list[str], start: int, position: int) -> bool:
    """Tell whether a word by itself closes a quotation or a bracket of the sentence that began at `start`."""
    word = words[position]
    if word not in _CLOSING:
        return False
    return word not in ('"', "'") or words[start:position].count(word) % 2 == 1


def _ends_sentence(word: str, following: str) -> bool:
    """Tell whether a word with a mark at its end closes a sentence, given the word after it."""
    match = _ENDING.match(word)
    if match is None:
        return False
    stem, marks, closed = match.groups()
    first = following.lstrip(_OPENING)[:1]
    alone = not stem and marks[0] in ".!?" and marks not in ("..", "...")  # tokenised text, perhaps lower-cased
    if alone:
        return True
    if first.islower() or not (first.isalnum() or following[0] in _OPENING):
        return False
    if marks != ".":
        return True
    stem = stem.lstrip(_OPENING)
    if stem.lower() in _TITLES:
        return stem.lower() == "no" and not first.isdigit()
    if stem.lower() in _SHORTENED or (_INITIALS.match(stem) and not stem.isdigit() and stem != "I"):
        return bool(closed) or following.strip(_OPENING).lower() in _STARTERS
    return True
