"""The n-gram model against its definition."""

import math

import numpy as np
import pytest

from zentence.evaluation.kneser_ney import LEAST_DISCOUNT, KneserNey
from zentence.special import BOS, EOS


def random_text(count: int = 200, vocabulary: int = 12, seed: int = 0) -> list[list[int]]:
    random = np.random.default_rng(seed)
    return [(3 + random.geometric(0.3, random.integers(0, 8)).clip(max=vocabulary - 4)).tolist() for _ in range(count)]


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_probabilities_sum_to_one_after_any_context(order: int) -> None:
    model = KneserNey(random_text(), 12, order)
    for context in ([BOS], [BOS, 4], [4, 5], [9, 9, 9], [11], [BOS, 4, 4, 4], []):
        total = sum(model.probability(word, context) for word in range(2, 12))
        assert total == pytest.approx(1.0, abs=1e-12)
        assert all(model.probability(word, context) > 0.0 for word in range(2, 12))


def test_bigrams_worked_by_hand() -> None:
    """Text: a b, a c, a b; words a = 4, b = 5, c = 6.

    Bigrams <bos>a 3, ab 2, ac 1, b<eos> 2, c<eos> 1: n_1 = 2, n_2 = 2, D_2 = 2 / 6.
    Left neighbours: a 1, b 1, c 1, <eos> 2: n_1 = 3, n_2 = 1, D_1 = 3 / 5; 5 in all, of 4 kinds.
    """
    model = KneserNey([[4, 5], [4, 6], [4, 5]], 8, order=2)
    uniform, d1, d2 = 1 / 6, 3 / 5, 1 / 3
    one = dict.fromkeys((4, 5, 6), (1 - d1) / 5 + d1 * 4 / 5 * uniform)
    assert model.probability(5, [4]) == pytest.approx((2 - d2) / 3 + d2 * 2 / 3 * one[5])
    assert model.probability(6, [4]) == pytest.approx((1 - d2) / 3 + d2 * 2 / 3 * one[6])
    assert model.probability(7, [4]) == pytest.approx(d2 * 2 / 3 * (d1 * 4 / 5 * uniform))
    assert model.probability(4, [BOS]) == pytest.approx((3 - d2) / 3 + d2 * 1 / 3 * one[4])
    end = (2 - d1) / 5 + d1 * 4 / 5 * uniform
    assert model.probability(EOS, [7]) == pytest.approx(end), "after a word never seen, the order below"
    expected = [model.probability(4, [BOS]), model.probability(6, [4]), model.probability(EOS, [6])]
    assert model.nats([4, 6]) == pytest.approx(-sum(map(math.log, expected)))


def test_lower_orders_count_left_neighbours_but_beginnings_as_they_are() -> None:
    """A brute-force twin of the counts of a trigram model's bigrams."""
    sentences = random_text(60, seed=1)
    model = KneserNey(sentences, 12, order=3)
    padded = [[BOS, *s, EOS] for s in sentences]
    before: dict[tuple[int, int], set[int]] = {}
    begins: dict[tuple[int, int], int] = {}
    for s in padded:
        begins[s[0], s[1]] = begins.get((s[0], s[1]), 0) + 1
        for a, b, c in zip(s, s[1:], s[2:], strict=False):
            before.setdefault((b, c), set()).add(a)
    expected = {**{pair: len(words) for pair, words in before.items()}, **begins}
    found = {(a, b): n for (a,), (row, _) in model._rows[1].items() for b, n in row.items()}
    assert found == expected


def test_one_sentence_repeated_still_leaves_something_for_others() -> None:
    model = KneserNey([[4, 5]] * 100, 9)
    assert model._discounts[2] == LEAST_DISCOUNT
    assert 0.0 < model.nats([4, 5]) < model.nats([5, 4]) < math.inf
    assert math.isfinite(KneserNey([], 9).nats([4])) and KneserNey([], 9).nats([4]) == pytest.approx(2 * math.log(7))


def test_text_of_the_same_kind_is_cheaper() -> None:
    train, same = random_text(2000), random_text(200, seed=5)
    other = np.random.default_rng(0).integers(4, 12, (200, 5)).tolist()
    model = KneserNey(train, 12)
    per_token = [sum(map(model.nats, s)) / sum(len(x) + 1 for x in s) for s in (same, other)]
    assert per_token[0] < per_token[1] - 0.3
