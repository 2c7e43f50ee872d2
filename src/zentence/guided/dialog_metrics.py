"""How near responses come to what was really said: sentence BLEU with smoothing 7, its precision, recall and F1.

Protocol: Gu et al. (2019), which Optimus follows: several responses a context; recall is the best BLEU among them,
precision their mean, both averaged over contexts; F1 is the harmonic mean of the two averages.
"""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

ORDERS = 3
_LAST_ORDER = 5  # whose precision stands for that of order n + 1 beyond the last: NLTK's choice, whatever n is
_K = 5.0  # Chen and Cherry's constant


def modified_precision(reference: Sequence[str], written: Sequence[str], order: int) -> tuple[int, int]:
    """Return matched n-grams (each at most as often as in the reference), and the n-grams written, at least 1."""
    found, expected = _ngrams(written, order), _ngrams(reference, order)
    return sum(min(count, expected[gram]) for gram, count in found.items()), max(1, len(written) - order + 1)


def _ngrams(words: Sequence[str], order: int) -> Counter[tuple[str, ...]]:
    return Counter(tuple(words[first : first + order]) for first in range(len(words) - order + 1))


def sentence_bleu(reference: Sequence[str], written: Sequence[str]) -> float:
    """Return BLEU, 0 to 1, of words against one reference: orders 1 to 3 with equal weights, smoothing 7.

    Smoothing 7 of Chen and Cherry (2014), as NLTK has it since 3.6: the k-th precision of zero becomes
    ln(length) / (2^k · 5) / n-grams (4), then each precision the mean of its neighbours' and its own, the one below
    smoothed already, below the first 1 + p_1 (5). So a value above 1 can occur, as it can there. NLTK before 3.6 filled
    zeros with values of up to 5/ln(length), so that figures published until 2021 are higher. No common word gives 0.
    """
    counts = [modified_precision(reference, written, order) for order in range(1, ORDERS + 1)]
    if not counts[0][0]:
        return 0.0
    precisions, zeros = [], 0
    for matched, total in counts:
        if matched == 0 and len(written) > 1:
            zeros += 1
            precisions.append(math.log(len(written)) / (2.0**zeros * _K) / total)
        else:
            precisions.append(matched / total)
    matched, total = modified_precision(reference, written, _LAST_ORDER)
    following = [*precisions[1:], matched / total]
    below, mean = precisions[0] + 1.0, 0.0
    for own, above in zip(precisions, following, strict=True):
        below = (below + own + above) / 3.0
        mean += math.log(below) / ORDERS
    brevity = 1.0 if len(written) > len(reference) else math.exp(1.0 - len(reference) / len(written))
    return brevity * math.exp(mean)


class ResponseScores(NamedTuple):
    """BLEU of R responses to each of N contexts, [N, R], and how many of the R are distinct, as shares [N]."""

    bleu: NDArray[np.float64]
    distinct: NDArray[np.float64]

    @property
    def recall(self) -> NDArray[np.float64]:
        """The best BLEU of each context, [N]."""
        best: NDArray[np.float64] = self.bleu.max(1)
        return best

    @property
    def precision(self) -> NDArray[np.float64]:
        """The mean BLEU of each context, [N]."""
        mean: NDArray[np.float64] = self.bleu.mean(1)
        return mean

    @property
    def f1(self) -> float:
        """Harmonic mean of the averages of recall and precision."""
        recall, precision = float(self.recall.mean()), float(self.precision.mean())
        return 2.0 * recall * precision / (recall + precision) if recall + precision > 0.0 else 0.0

    def f1_influence(self) -> NDArray[np.float64]:
        """Return what each context adds to F1 to first order, [N]: their spread gives F1's standard error."""
        recall, precision = float(self.recall.mean()), float(self.precision.mean())
        scale = 2.0 / (recall + precision) ** 2 if recall + precision > 0.0 else 0.0
        return scale * (precision**2 * (self.recall - recall) + recall**2 * (self.precision - precision))

    def to_dict(self) -> dict[str, Any]:
        """Return the figures with their standard errors, for JSON."""
        return {
            "contexts": len(self.bleu),
            "responses": int(self.bleu.shape[1]),
            "recall": _figure(self.recall),
            "precision": _figure(self.precision),
            "f1": {"value": self.f1, "error": _error(self.f1_influence())},
            "distinct": _figure(self.distinct),
        }


def score_responses(references: Sequence[str], responses: Sequence[Sequence[str]]) -> ResponseScores:
    """Score the responses to each context against what was said there; words are what white space separates."""
    rows = [
        [sentence_bleu(reference.split(), text.split()) for text in written]
        for reference, written in zip(references, responses, strict=True)
    ]
    shares = [len(set(written)) / len(written) for written in responses]
    return ResponseScores(np.array(rows, dtype=np.float64), np.array(shares, dtype=np.float64))


def _figure(values: NDArray[np.float64]) -> dict[str, float | None]:
    return {"value": float(values.mean()), "error": _error(values)}


def _error(values: NDArray[np.float64]) -> float | None:
    """Return the standard error of a mean; none of a single value."""
    return float(values.std(ddof=1) / math.sqrt(len(values))) if len(values) > 1 else None
