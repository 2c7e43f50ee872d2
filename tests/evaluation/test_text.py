"""Distances, BLEU and variety against plain dynamic programming, sacrebleu's own API and cases worked by hand."""

import math

import numpy as np
import pytest
from sacrebleu.metrics import BLEU

from zentence.errors import ZentenceError
from zentence.evaluation import text
from zentence.evaluation.text import (
    Speller,
    corpus_bleu,
    distinct,
    edit_distances,
    nearest,
    same_places,
    self_bleu,
    sentence_bleu1,
    translation_edit_rate,
)


def plain_distance(one: list[str], other: list[str]) -> int:
    """Levenshtein's table, row by row."""
    row = list(range(len(other) + 1))
    for i, a in enumerate(one, start=1):
        before, row = row, [i]
        for j, b in enumerate(other, start=1):
            row.append(min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (a != b)))
    return row[-1]


def random_sentences(count: int, words: int = 12, longest: int = 90, seed: int = 0) -> list[str]:
    random = np.random.default_rng(seed)
    return [" ".join(f"w{n}" for n in random.integers(0, words, random.integers(1, longest))) for _ in range(count)]


def test_edit_distances_are_those_of_the_plain_table() -> None:
    one, other = random_sentences(60), random_sentences(60, seed=1)
    expected = [plain_distance(a.split(), b.split()) for a, b in zip(one, other, strict=True)]
    assert edit_distances(one, other).tolist() == expected
    assert edit_distances(["a b c", "a b", ""], ["a x c d", "a b", "a b"]).tolist() == [2, 0, 2]
    assert edit_distances([], []).shape == (0,)


def test_words_count_and_not_their_letters() -> None:
    assert edit_distances(["abcdefgh xyz"], ["abcdefgi xyz"]).tolist() == [1]


def test_too_many_different_words_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "MOST_WORDS", 3)
    speller = Speller()
    assert len(set(speller.spell("a b c"))) == 3 and len(set(speller.spell_known("a x y"))) == 2
    with pytest.raises(ZentenceError, match="different words"):
        speller.spell("d")


def test_edit_rates_are_clipped_at_one() -> None:
    assert translation_edit_rate(np.array([1, 9, 0]), np.array([4, 3, 5])).tolist() == [0.25, 1.0, 0.0]


@pytest.mark.parametrize("searched", [7, 1000])
def test_the_nearest_sentence_is_that_of_brute_force(searched: int) -> None:
    samples, training = random_sentences(15, longest=20), random_sentences(100, words=15, longest=30, seed=2)
    samples += [training[3], "never seen words"]
    edits = np.array([[plain_distance(a.split(), b.split()) for b in training] for a in samples])
    lengths = np.array([len(b.split()) for b in training])
    found = nearest(samples, iter(training), searched)
    assert found.distance.tolist() == edits.min(1).tolist()
    assert found.number.tolist() == edits.argmin(1).tolist()
    assert found.ter == pytest.approx(np.minimum(edits / lengths, 1.0).min(1))
    assert found.distance[15] == 0 and found.ter[15] == 0.0
    assert found.distance[16] >= 3 and found.ter[16] == 1.0, "words that no sample has must not equal each other"


@pytest.mark.parametrize("order", [1, 4])
def test_corpus_bleu_is_sacrebleus(order: int) -> None:
    references = random_sentences(40, longest=25)
    hypotheses = [" ".join([*r.split()[: 1 + len(r.split()) * 2 // 3], "w1"]) for r in references[:-1]] + [""]
    scorer = BLEU(tokenize="none", force=True, max_ngram_order=order)
    expected = scorer.corpus_score(hypotheses, [references]).score
    found = corpus_bleu(hypotheses, references, order)
    assert found.value == expected
    assert found.signature.startswith("nrefs:1|case:mixed|eff:no|tok:none|smooth:exp|version:")
    assert found.signature.endswith(f"|order:{order}")


def test_bleu_worked_by_hand() -> None:
    """the cat sat on the mat / the cat on the mat: 5 of 5 words, 3 of 4 pairs, 1 of 3, 0 of 2 (smoothed to ½)."""
    hypothesis, reference = "the cat on the mat", "the cat sat on the mat"
    brevity = math.exp(1.0 - 6.0 / 5.0)
    expected = 100.0 * brevity * (1.0 * 3.0 / 4.0 * 1.0 / 3.0 * 0.5 / 2.0) ** 0.25
    assert corpus_bleu([hypothesis], [reference], 4).value == pytest.approx(expected)
    assert corpus_bleu([hypothesis], [reference], 1).value == pytest.approx(100.0 * brevity)
    assert corpus_bleu([hypothesis], [reference], 1).error is None
    assert corpus_bleu(["", ""], ["a", "b c"], 4).value == 0.0


def test_the_error_of_bleu_shrinks_with_the_corpus() -> None:
    references = random_sentences(400, longest=20)
    hypotheses = random_sentences(400, longest=20, seed=3)
    few, many = corpus_bleu(hypotheses[:25], references[:25], 1).error, corpus_bleu(hypotheses, references, 1).error
    assert few is not None and many is not None and 2.0 < few / many < 8.0


def test_sentence_bleu1_worked_by_hand() -> None:
    found = sentence_bleu1(["a a b", "a", "a b c d", "", "x"], ["a b c", "a b", "a b", "a", "a"])
    assert found == pytest.approx([2.0 / 3.0, math.exp(-1.0), 0.5, 0.0, 0.0])


def test_words_at_their_places() -> None:
    hits, words = same_places(["a b c", "b a", "a b c d"], ["a x c", "a b c", "a b"])
    assert hits.tolist() == [2, 0, 2] and words.tolist() == [3, 3, 2]


def test_self_bleu_is_sacrebleus_against_all_others() -> None:
    sentences = [*random_sentences(12, words=5, longest=9), "w1 w1 w1", "w1 w1 w1", "w2", ""]
    scorer = BLEU(tokenize="none", force=True, effective_order=True)
    expected = [
        scorer.sentence_score(sentence, sentences[:i] + sentences[i + 1 :]).score
        for i, sentence in enumerate(sentences)
    ]
    assert self_bleu(sentences) == pytest.approx(expected)
    assert self_bleu(["a b c d e"] * 3) == pytest.approx([100.0] * 3)
    assert self_bleu(["a"]).tolist() == [0.0]


def test_distinct_ngrams_over_all() -> None:
    assert distinct(["a b a", "a b"], 1) == 2 / 5
    assert distinct(["a b a", "a b"], 2) == 2 / 3
    assert distinct(["a"], 2) == 0.0
