from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from zentence.corpora.vocabulary import Vocabulary, build_vocabulary
from zentence.errors import ZentenceError
from zentence.settings import CorpusSettings
from zentence.special import BOS, EOS, PAD, SPECIAL_WORDS, UNK


def build(text: str, **settings: object) -> Vocabulary:
    return build_vocabulary(Counter(text.split()), CorpusSettings(**settings))


def ids(vocabulary: Vocabulary, text: str) -> list[int]:
    return vocabulary.encode_batch([text])[0].tolist()


def test_words_stand_by_falling_count_then_alphabetically() -> None:
    vocabulary = build("b b a c c d")
    assert vocabulary.words == (*SPECIAL_WORDS, "b", "c", "a", "d")
    assert len(vocabulary) == 8
    assert ids(vocabulary, "a zebra b") == [6, UNK, 4]
    assert vocabulary.encode_batch(["a", "", "b c"])[1].dtype == np.int64


def test_min_count_and_max_vocabulary() -> None:
    assert build("a a b b c", min_count=2).words[4:] == ("a", "b")
    assert build("a a b b c", max_vocabulary=5).words[4:] == ("a",)
    with pytest.raises(ZentenceError, match="No word of the training text occurs 3 times or more: lower min_count"):
        build("a a b", min_count=3)


def test_unknown_words_never_enter_the_vocabulary() -> None:
    vocabulary = build("a _UNK _UNK <unk> [UNK] _unk")
    assert vocabulary.words[4:] == ("a",)
    assert ids(vocabulary, "_UNK <unk> [UNK] a") == [UNK, UNK, UNK, 4]
    assert "_unk" in build("A _UNK _unk").words  # as spelt, where case matters


@pytest.mark.parametrize("lower_case", ["yes", "no"])
def test_text_that_spells_special_words_is_unknown(lower_case: str) -> None:
    vocabulary = build("a <eos> <bos> <pad> <EOS> A", lower_case=lower_case, unknown_words=())
    assert not {"<eos>", "<bos>", "<pad>"} & set(vocabulary.words[4:])
    assert set(ids(vocabulary, "<eos> <bos> <pad> <unk>")) == {UNK}
    if lower_case == "yes":
        assert set(ids(vocabulary, "<EOS> <BOS> <Pad>")) == {UNK}


def test_lower_casing() -> None:
    assert build("one _UNK").lower_case
    assert not build("one Two").lower_case
    assert not build("one", lower_case="no").lower_case
    vocabulary = build("One one ONE two", lower_case="yes")
    assert vocabulary.words[4:] == ("one", "two")
    assert ids(vocabulary, "oNE TWO") == [4, 5]


def test_lower_casing_is_the_same_in_counting_and_in_encoding() -> None:
    words = "ΑΣ İstanbul STRASSE ẞ Ǆ"  # a final sigma, a letter that becomes two, …
    assert UNK not in ids(build(words, lower_case="yes"), words)


def test_decode_stops_at_eos_and_skips_padding() -> None:
    vocabulary = build("a a b")
    assert vocabulary.decode([BOS, 4, PAD, UNK, 5, EOS, 4]) == "a <unk> b"
    assert vocabulary.decode(np.array([EOS])) == ""
    assert vocabulary.decode(vocabulary.encode_batch(["b a b"])[0]) == "b a b"


def test_save_and_load(tmp_path: Path) -> None:
    vocabulary = build("one two two", lower_case="yes")
    path = tmp_path / "tokenizer.json"
    vocabulary.save(path)
    loaded = Vocabulary.load(path)
    assert loaded.words == vocabulary.words
    assert loaded.hash == vocabulary.hash
    assert loaded.lower_case
    assert build("one two two", lower_case="no").hash != vocabulary.hash


def test_damaged_and_foreign_files(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"

    def message() -> str:
        with pytest.raises(ZentenceError) as caught:
            Vocabulary.load(path)
        assert "\n" not in str(caught.value)
        return str(caught.value)

    assert message() == f"No such file: {path}"
    path.write_text("{ broken")
    assert message().startswith(f"{path} is not a tokeniser: ")
    path.write_bytes(b"\xff\xfe")
    assert message().startswith(f"{path} is not a tokeniser: ")
    Tokenizer(models.WordLevel({"<unk>": 0, "a": 1}, unk_token="<unk>")).save(str(path))
    assert message() == f"{path}: The tokeniser's ids 0 to 3 must be <pad> <bos> <eos> <unk>"
    special = {word: number for number, word in enumerate(SPECIAL_WORDS)}
    Tokenizer(models.WordLevel({**special, "a": 9}, unk_token="<unk>")).save(str(path))
    assert "without gaps" in message()
    Tokenizer(models.WordLevel({**special, "a": 4}, unk_token="a")).save(str(path))
    assert "unknown word must be <unk>" in message()


def test_a_sub_word_tokeniser_fits_behind_the_same_interface() -> None:
    table = {word: number for number, word in enumerate((*SPECIAL_WORDS, "Ġ", "a", "b", "ab"))}
    tokenizer = Tokenizer(models.BPE(table, [("a", "b")], unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(SPECIAL_WORDS))
    tokenizer.enable_padding(pad_id=0, pad_token="<pad>")
    vocabulary = Vocabulary(tokenizer)
    rows = vocabulary.encode_batch(["abb a", "a<eos>"])
    assert [row.tolist() for row in rows] == [[7, 6, 4, 5], [5, UNK]]
    assert vocabulary.decode([BOS, *rows[0], EOS]) == "abb a"


def test_text_that_is_not_unicode_is_refused_in_one_line() -> None:
    with pytest.raises(ZentenceError, match="not Unicode text"):
        build("a").encode_batch(["a \udc80"])
