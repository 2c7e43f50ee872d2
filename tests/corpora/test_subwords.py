"""Sub-words learnt from a corpus: reading, writing back, and counting."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zentence.corpora import Vocabulary
from zentence.corpora.prepare import prepare
from zentence.corpora.subwords import build_subwords
from zentence.errors import ZentenceError
from zentence.settings import CorpusSettings
from zentence.special import SPECIAL_WORDS

TEXT = ["the dog barks loudly at the dogs", "a dog runs , barking at the <unk>", "the dogs bark"] * 4
SETTINGS = CorpusSettings(tokenizer="bpe", bpe_size=320)


def learnt(texts: list[str] = TEXT, settings: CorpusSettings = SETTINGS) -> Vocabulary:
    return build_subwords(Counter(" ".join(texts).split(" ")), settings)


SUBWORDS = learnt()


def test_frequent_words_are_one_token_and_rare_ones_several() -> None:
    assert SUBWORDS.words[:4] == SPECIAL_WORDS and len(SUBWORDS) <= 320
    assert "Ġdog" in SUBWORDS.words and "Ġthe" in SUBWORDS.words
    dog, doghouse = SUBWORDS.encode_batch(["the dog", "doghouse"])
    assert len(dog) == 2 and len(doghouse) > 1
    assert doghouse[0] == dog[1]  # the same piece


def test_the_first_merge_is_the_most_frequent_pair() -> None:
    """ "ab" stands 9 times, "bc" 8 times, the space before "a" 5 times."""
    vocabulary = build_subwords({"abc": 5, "xabz": 4, "ybc": 3}, SETTINGS)
    merged = [word for word in vocabulary.words[4:] if len(word) > 1]
    assert merged[0] == "ab"


@settings(deadline=None)
@given(st.lists(st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1), min_size=1).map(" ".join))
def test_any_text_can_be_spelt_and_read_back(text: str) -> None:
    if any(word in text for word in SPECIAL_WORDS) or text.lower() != text:
        return
    ids = SUBWORDS.encode_batch([text])[0]
    assert SUBWORDS.decode(ids) == text
    assert ids.min() > 3


def test_the_unknown_word_is_read_and_written_as_a_word() -> None:
    texts = ["<unk> dog", "the <unk>", "the <unk> dog", "<unk>", "the <unk> <unk> runs"]
    rows = SUBWORDS.encode_batch(texts)
    assert [int((row == 3).sum()) for row in rows] == [1, 1, 1, 1, 2]
    assert [SUBWORDS.decode(row) for row in rows] == texts
    other = SUBWORDS.encode_batch(["the _UNK dog", "the [UNK] dog"])
    assert all(np.array_equal(row, rows[2]) for row in other)
    assert 3 not in SUBWORDS.encode_batch(["the_UNK dog", "a<unk>b"])[0]


def test_special_words_in_text_are_unknown() -> None:
    assert SUBWORDS.encode_batch(["the <eos> dog <pad>"])[0].min() == 3


def test_writing_stops_at_the_end_and_skips_what_is_not_text() -> None:
    the, dog = SUBWORDS.encode_batch(["the dog"])[0]
    assert SUBWORDS.decode([1, the, 0, dog, 2, dog]) == "the dog"


def test_case_is_folded_as_for_words() -> None:
    assert SUBWORDS.lower_case and np.array_equal(*SUBWORDS.encode_batch(["The DOG", "the dog"]))
    cased = learnt(["The dog barks", "the dog"])
    assert not cased.lower_case
    assert cased.decode(cased.encode_batch(["The DOG"])[0]) == "The DOG"


def test_white_space_does_not_matter_and_is_never_written() -> None:
    assert np.array_equal(*SUBWORDS.encode_batch([" the \t dog\n", "the dog"]))
    written = {SUBWORDS.decode([number]) for number in range(4, len(SUBWORDS))}
    assert not any(c in text for text in written for c in "\t\n\r\v\f")


def test_the_same_text_gives_the_same_tokeniser_also_after_saving(tmp_path: Path) -> None:
    assert learnt().hash == SUBWORDS.hash != learnt(TEXT[:1]).hash
    SUBWORDS.save(tmp_path / "tokenizer.json")
    again = Vocabulary.load(tmp_path / "tokenizer.json")
    assert again.hash == SUBWORDS.hash and again.words == SUBWORDS.words
    assert again.decode(again.encode_batch(["the <unk> barks"])[0]) == "the <unk> barks"


def test_text_of_unknown_words_alone_is_refused() -> None:
    with pytest.raises(ZentenceError, match="no word but the unknown one"):
        build_subwords({"<unk>": 3, "_UNK": 1}, SETTINGS)


def test_the_ledger_counts_words_subwords_and_bytes(tmp_path: Path) -> None:
    train, valid = tmp_path / "train.txt", tmp_path / "valid.txt"
    train.write_text("\n".join(TEXT) + "\n", encoding="utf-8")
    valid.write_text("the zebra\n", encoding="utf-8")
    corpus = prepare(SETTINGS, [train], [valid])
    ledger = corpus.splits["valid"].ledger
    assert (ledger.words, ledger.bytes, ledger.unknown) == (2, len("the zebra\n"), 0)
    assert ledger.tokens == len(corpus.vocabulary.encode_batch(["the zebra"])[0]) > 2
    assert ledger.predicted == 3  # words and <eos>: what a perplexity per word divides by
    assert corpus.splits["train"].ledger.unknown == 4
    words = prepare(CorpusSettings(), [train], [valid])
    assert words.vocabulary.hash != corpus.vocabulary.hash
    assert words.splits["train"].ledger.words == corpus.splits["train"].ledger.words
