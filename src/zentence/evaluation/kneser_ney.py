"""An n-gram language model: small, exact and the same each time, to judge samples by what can be learnt from them."""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence

from zentence.types import BOS, EOS

LEAST_DISCOUNT, MOST_DISCOUNT = 0.1, 0.9  # where the counts of counts say nothing, as for one sentence repeated
Counts = dict[tuple[int, ...], dict[int, int]]  # context → word → count


class KneserNey:
    """Interpolated Kneser–Ney (Chen and Goodman, 1999), one discount an order, down to the uniform distribution.

    p(w|h) = max(c(hw) − D, 0) / c(h·) + D N(h·) / c(h·) p(w|h'), h' the context without its first word, N(h·) the
    number of different words after h; D = n_1 / (n_1 + 2 n_2) of the order's counts. Counts are those of the text for
    n-grams of the full order and for those that begin a sentence, else the number of different words before.
    Outcomes are all words of the vocabulary, `<unk>` and `<eos>` among them, but for `<pad>` and `<bos>`.
    """

    def __init__(self, sentences: Iterable[Iterable[int]], vocabulary_size: int, order: int = 3) -> None:
        self.order = order
        self.outcomes = vocabulary_size - 2
        counts: list[Counts] = [defaultdict(lambda: defaultdict(int)) for _ in range(order)]
        for sentence in sentences:
            self._count(counts, [BOS, *map(int, sentence), EOS])
        self._rows = [
            {context: (row, sum(row.values())) for context, row in contexts.items()} for contexts in counts
        ]  # fmt: skip
        self._discounts = [_discount(contexts) for contexts in counts]

    def _count(self, counts: list[Counts], tokens: list[int]) -> None:
        for place in range(1, len(tokens)):
            word = tokens[place]
            for n in range(min(self.order, place + 1), 0, -1):
                row = counts[n - 1][tuple(tokens[place - n + 1 : place])]
                row[word] += 1
                if row[word] > 1:  # this n-gram has been seen: it adds no new left neighbour to shorter ones
                    break

    def probability(self, word: int, context: Sequence[int]) -> float:
        """Return p(word | context), the context beginning with `<bos>` if it is the whole beginning of a sentence."""
        p = 1.0 / self.outcomes
        for n in range(1, min(self.order, len(context) + 1) + 1):
            found = self._rows[n - 1].get(tuple(context[len(context) - n + 1 :]))
            if found is None:
                break
            (row, total), discount = found, self._discounts[n - 1]
            p = (max(row.get(word, 0) - discount, 0.0) + discount * len(row) * p) / total
        return p

    def nats(self, sentence: Iterable[int]) -> float:
        """Return −log p of a sentence's words and its `<eos>`."""
        tokens = [BOS, *map(int, sentence), EOS]
        places = range(1, len(tokens))
        return -sum(math.log(self.probability(tokens[i], tokens[max(0, i - self.order + 1) : i])) for i in places)


def _discount(contexts: Counts) -> float:
    ones = sum(count == 1 for row in contexts.values() for count in row.values())
    twos = sum(count == 2 for row in contexts.values() for count in row.values())
    estimate = ones / (ones + 2 * twos) if ones else 0.0
    return min(max(estimate, LEAST_DISCOUNT), MOST_DISCOUNT)
