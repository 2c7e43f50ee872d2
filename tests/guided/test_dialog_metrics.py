"""Smoothed sentence BLEU and its precision, recall and F1, against cases worked by hand."""

import math

import numpy as np
import pytest

from zentence.guided.dialog_metrics import ResponseScores, modified_precision, score_responses, sentence_bleu


def test_modified_precision_counts_a_word_as_often_as_it_was_said() -> None:
    assert modified_precision(["the", "cat"], ["the", "the", "the"], 1) == (1, 3)
    assert modified_precision(["a", "b", "c", "d"], ["a", "b", "d", "c"], 2) == (1, 3)
    assert modified_precision(["a", "b"], ["a"], 3) == (0, 1)  # no 3-gram: the denominator is 1


def test_a_perfect_response() -> None:
    """All precisions are 1: 4/3 below the first becomes (2+1+1)/3, then (4/3+1+1)/3, (10/9+1+1)/3."""
    words = ["i", "am", "very", "well", "thank", "you"]
    expected = math.exp((math.log(4 / 3) + math.log(10 / 9) + math.log(28 / 27)) / 3)
    assert sentence_bleu(words, words) == pytest.approx(expected)


def test_zeros_are_filled_and_neighbours_averaged() -> None:
    """Reference `a b c d`, written `a x y b c z` (6 words).

    p1 = 3/6; p2 = 1/5 (b c); p3 = 0 → ln 6/(2 · 5)/4; order 5: 0 of 2. Not shorter: no brevity penalty.
    """
    p = [3 / 6, 1 / 5, math.log(6) / (2 * 5) / 4]
    first = (p[0] + 1 + p[0] + p[1]) / 3
    second = (first + p[1] + p[2]) / 3
    third = (second + p[2] + 0.0) / 3
    expected = (first * second * third) ** (1 / 3)
    assert sentence_bleu(["a", "b", "c", "d"], ["a", "x", "y", "b", "c", "z"]) == pytest.approx(expected)


def test_two_zeros_and_brevity() -> None:
    """Reference of 4 words, written `a d`: p1 = 1, p2 = 0 → ln 2/(2 · 5)/1, p3 = 0 → ln 2/(4 · 5)/1; e^(1 − 4/2)."""
    p = [1.0, math.log(2) / 10, math.log(2) / 20]
    first = (2.0 + 1.0 + p[1]) / 3
    second = (first + p[1] + p[2]) / 3
    third = (second + p[2] + 0.0) / 3
    expected = math.exp(-1.0) * (first * second * third) ** (1 / 3)
    assert sentence_bleu(["a", "b", "c", "d"], ["a", "d"]) == pytest.approx(expected)


def test_one_word_has_no_logarithm_to_fill_with() -> None:
    """ln 1 = 0: zeros stay, and only the averages are left: 1, then (1 + 0 + 0)/3, then (1/3 + 0 + 0)/3."""
    assert sentence_bleu(["yes"], ["yes"]) == pytest.approx((1.0 * (1 / 3) * (1 / 9)) ** (1 / 3))


def test_nothing_in_common_and_nothing_said() -> None:
    assert sentence_bleu(["yes"], ["no"]) == 0.0
    assert sentence_bleu(["yes"], []) == 0.0


def test_precision_recall_and_f1() -> None:
    """Two contexts with BLEU .2/.6 and .1/.3: recall (.6+.3)/2, precision (.4+.2)/2, F1 their harmonic mean."""
    scores = ResponseScores(np.array([[0.2, 0.6], [0.1, 0.3]]), np.array([1.0, 0.5]))
    assert scores.recall.mean() == pytest.approx(0.45) and scores.precision.mean() == pytest.approx(0.3)
    assert scores.f1 == pytest.approx(2 * 0.45 * 0.3 / 0.75)
    found = scores.to_dict()
    assert (found["contexts"], found["responses"]) == (2, 2)
    assert found["recall"]["error"] == pytest.approx(0.15) and found["precision"]["error"] == pytest.approx(0.1)
    assert found["distinct"]["value"] == 0.75
    assert ResponseScores(np.zeros((1, 3)), np.ones(1)).f1 == 0.0
    assert ResponseScores(np.zeros((1, 3)), np.ones(1)).to_dict()["f1"]["error"] is None


def test_the_error_of_f1_is_that_of_many_repetitions() -> None:
    random = np.random.default_rng(0)

    def draw() -> ResponseScores:
        quality = random.beta(2, 5, size=(400, 1))
        return ResponseScores(quality * random.uniform(size=(400, 10)), np.ones(400))

    spread = np.std([draw().f1 for _ in range(400)])
    assert draw().to_dict()["f1"]["error"] == pytest.approx(spread, rel=0.15)


def test_scores_of_sentences() -> None:
    scores = score_responses(["i am well", "no"], [["i am well", "i am well"], ["yes", "no"]])
    words = ["i", "am", "well"]
    assert scores.bleu[0].tolist() == [sentence_bleu(words, words)] * 2
    assert scores.bleu[1, 0] == 0.0 and scores.bleu[1, 1] > 0.0
    assert scores.distinct.tolist() == [0.5, 1.0]
