from collections import Counter

import pytest

from zentence.corpora.vocabulary import build_vocabulary
from zentence.settings import CorpusSettings
from zentence.tasks.normalise import Normaliser

TOKENISED = "what do you think ? i do n't know , it 's `` fine '' . ( yes ) ... u.s. dr. boys ' ca wo not can 5 % $"


def normaliser(words: str, **settings: object) -> Normaliser:
    corpus = CorpusSettings(**settings)  # type: ignore[arg-type]
    return Normaliser(build_vocabulary(Counter(words.split()), corpus), corpus)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("What do you think?", "what do you think ?"),
        ("I don't  KNOW,it", "i do n't know,it"),
        ('"It\'s" (fine).', "`` it 's '' ( fine ) ."),
        ("“Yes,” it’s…", "`` yes , '' it 's"),  # this corpus has no …
        ("Can't, cannot, won't!", "ca n't , can not , wo n't"),
        ("yes.. yes....", "yes ... yes ..."),
        ("the U.S. Dr. and etc.", "the u.s. dr. and etc ."),
        ("the boys' $5 5%", "the boys ' $ 5 5 %"),
        ("_UNK [unk] <UNK> xyz", "<unk> <unk> <unk> xyz"),
        ("!!!", "<unk>"),
    ],
)
def test_text_is_written_as_a_tokenised_lower_case_corpus(text: str, expected: str) -> None:
    write = normaliser(TOKENISED)
    assert write.lower_case and write.tokenised
    assert write(text) == expected
    assert write(expected) == expected


def test_a_corpus_without_contractions_keeps_them() -> None:
    assert normaliser("i don't know , do you ?")("I don't, isn't it?") == "i don't , isn't it ?"


def test_text_of_an_untokenised_cased_corpus_is_left_alone() -> None:
    write = normaliser("Well, I think so. Do you? No, thanks! Yes; fine , . ?")
    assert not write.lower_case and not write.tokenised
    assert write("Hello,  World?  _UNK") == "Hello, World? <unk>"


def test_a_few_capitals_do_not_make_a_corpus_cased() -> None:
    words = " ".join(f"word{number}" for number in range(200))
    write = normaliser(f"{words} N")
    assert write("WORD7 N Other") == "word7 N other"
    assert not normaliser(words + " A B C D").lower_case


def test_words_are_lower_cased_where_the_settings_say_so() -> None:
    assert normaliser("The Cat sat , ok", lower_case="yes")("The DOG") == "the dog"
