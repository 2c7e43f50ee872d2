"""Conversions between units of likelihood: worked by hand, and back again."""

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers

from zentence.errors import ZentenceError
from zentence.evaluation.convert import Conversion, Counts, convert, count_text, parse_per, parse_specials


def test_a_case_worked_by_hand() -> None:
    """2 sentences, 6 words, 8 tokens, 40 bytes; perplexity 4 per token with <bos> and <eos> counted.

    n = 8 + 2 · 2 = 12 and T = 12 log 4 = 24 log 2.
    """
    found = convert(4.0, "token", Counts(2, 6, 8, 40), specials=("bos", "eos"), eos_nats=2.0 * math.log(2.0))
    assert found.counted == 12
    assert found.total_nats == pytest.approx(24.0 * math.log(2.0))
    assert found.nats_per_sentence == pytest.approx(12.0 * math.log(2.0))
    assert found.ppl == pytest.approx(8.0)  # 24 bits over 6 + 2
    assert found.ppl_words_only == pytest.approx(16.0)  # over 6
    assert found.ppl_without_eos == pytest.approx(2.0 ** (20.0 / 6.0))  # 2 <eos> of 2 bits are gone
    assert found.ppl_per_token == pytest.approx(2.0 ** (24.0 / 10.0))  # over 8 + 2
    assert found.bits_per_byte == pytest.approx(24.0 / 40.0)


@pytest.mark.parametrize(("specials", "n"), [((), 8), (("eos",), 10), (("bos",), 10), (("bos", "eos"), 12)])
def test_what_is_counted_changes_the_nats(specials: tuple[str, ...], n: int) -> None:
    found = convert(4.0, "token", Counts(2, 6, 8), specials=specials)  # type: ignore[arg-type]
    assert found.counted == n and found.total_nats == pytest.approx(n * math.log(4.0))


def test_the_penn_treebank_figure_of_optimus() -> None:
    """23.58 per BPE with <bos> and <eos> counted is about 57.4 per word (78,669 words in 3,761 sentences).

    That follows from 1.247 BPE a word; then a sentence has 88.8 nats, below the 91.31 of the paper's −ELBO.
    """
    found = convert(23.58, "token", Counts(3761, 78_669, round(1.247 * 78_669)), specials=("bos", "eos"))
    assert found.ppl == pytest.approx(57.4, abs=0.1)
    assert found.nats_per_sentence == pytest.approx(88.8, abs=0.1)
    naive = convert(23.58, "token", Counts(3761, 78_669, round(1.247 * 78_669)), specials=())
    assert naive.ppl is not None and naive.ppl < 45.0  # forgetting what was counted is no small matter


def test_paper_four_s_language_model() -> None:
    """101.04 nats a sentence and a perplexity of 100.47 belong together on that text, words and <eos> counted."""
    found = convert(101.04, "sentence", Counts(3761, 78_669))
    assert found.ppl == pytest.approx(100.47, abs=0.1)


@pytest.mark.parametrize("counts", [Counts(10, 100), Counts(10, 100, 120, 600)])
def test_missing_counts_give_no_figures(counts: Counts) -> None:
    found = convert(50.0, "word", counts)
    assert found.ppl == pytest.approx(50.0) and found.ppl_without_eos is None
    assert (found.ppl_per_token is None) == (counts.tokens is None)
    assert (found.bits_per_byte is None) == (counts.bytes is None)


positive = st.integers(1, 10**7)
figures = st.tuples(
    st.floats(1.0, 200.0),
    st.builds(Counts, positive, positive, positive, positive),
    st.sampled_from(["eos", "bos,eos"]),
)


@given(figures)
def test_there_and_back(case: tuple[float, Counts, str]) -> None:
    nats, counts, specials = case
    assert counts.sentences is not None and counts.words is not None and counts.tokens is not None
    # words and tokens of at least the number of sentences keep the perplexities finite
    counts = Counts(counts.sentences, counts.words + counts.sentences, counts.tokens + counts.sentences, counts.bytes)
    first = convert(nats, "sentence", counts)
    for value, per in (
        (first.ppl, "word"), (first.ppl_per_token, "token"), (first.bits_per_byte, "byte"),
        (first.nats_per_sentence, "sentence"),
    ):  # fmt: skip
        assert value is not None
        same(convert(value, per, counts), first)  # type: ignore[arg-type]
    assert first.ppl_words_only is not None
    same(convert(first.ppl_words_only, "word", counts, specials=()), first)
    n = counts.tokens + len(specials.split(",")) * counts.sentences  # type: ignore[operator]
    published = math.exp(first.total_nats / n)
    same(convert(published, "token", counts, specials=parse_specials(specials)), first)


def same(found: Conversion, expected: Conversion) -> None:
    for name in ("total_nats", "nats_per_sentence", "ppl", "ppl_words_only", "ppl_per_token", "bits_per_byte"):
        assert getattr(found, name) == pytest.approx(getattr(expected, name), rel=1e-6), name


@pytest.mark.parametrize("unit", ["ppl", "nats", "bits"])
def test_units(unit: str) -> None:
    value = {"ppl": 8.0, "nats": 3.0 * math.log(2.0), "bits": 3.0}[unit]
    assert convert(value, "word", Counts(1, 9), unit=unit).total_nats == pytest.approx(30 * math.log(2.0))  # type: ignore[arg-type]


def test_counting_a_text(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("Ein  kleiner Käse .\n\nja\n", encoding="utf-8")
    counts = count_text(tmp_path / "text.txt")
    assert counts == Counts(2, 5, None, len("Ein kleiner Käse .\nja\n".encode()))
    tokenizer = Tokenizer(models.WordPiece({c: n for n, c in enumerate("?EinklerKäs.ja")} | letters(), unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.enable_truncation(3)  # must not hold here
    tokenizer.enable_padding(length=50)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    assert count_text(tmp_path / "text.txt", tmp_path / "tokenizer.json").tokens == 3 + 7 + 4 + 1 + 2  # letters


def letters() -> dict[str, int]:
    return {f"##{letter}": 100 + n for n, letter in enumerate("abcdefghijklmnopqrstuvwxyzä")}


def test_names() -> None:
    assert [parse_per(name) for name in ("bpe", "token", "wordpiece", "word")] == ["token", "token", "token", "word"]
    assert parse_specials("bos, eos") == {"bos", "eos"} and parse_specials("none") == frozenset()


@pytest.mark.parametrize(
    ("case", "message"),
    [
        (lambda: convert(0.5, "word", Counts(1, 1)), "at least 1"),
        (lambda: convert(math.nan, "word", Counts(1, 1)), "at least 1"),
        (lambda: convert(-1.0, "sentence", Counts(1, 1)), "at least 0"),
        (lambda: convert(5.0, "token", Counts(1, 1)), "per token needs --tokens N, or --text FILE --tokenizer FILE"),
        (lambda: convert(5.0, "word", Counts(words=1)), "Counting <eos> needs --sentences"),
        (lambda: convert(5.0, "byte", Counts(1, 1)), "needs --bytes"),
        (lambda: convert(5.0, "sentence", Counts(1, 1), eos_nats=6.0), "cannot cost more than its sentence"),
        (lambda: convert(1e6, "sentence", Counts(1, 1)), "check the counts"),
        (lambda: parse_per("wrod"), "Did you mean 'word'?"),
        (lambda: parse_specials("eos,pad"), "'pad' is none of"),
    ],
)
def test_mistakes(case: object, message: str) -> None:
    with pytest.raises(ZentenceError) as caught:
        case()  # type: ignore[operator]
    assert message in str(caught.value)
