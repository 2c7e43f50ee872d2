"""Ranking answers without fine-tuning (paper 1, §4.6).

Q^k is the question, " ? " and answer k; Q^unk the same with each word of the answer unknown. An answer that fits is
one whose words, once known, move the code little.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from zentence.distributions import LOG_2_PI
from zentence.errors import NotInvertibleError, ZentenceError
from zentence.latent import LatentSpace
from zentence.noise import Noise, derive_key
from zentence.tasks.normalise import Normaliser
from zentence.tasks.questions import (
    Candidate,
    check_space,
    is_deterministic,
    share_unknown,
    trained_as_autoencoder,
    with_answer,
    with_unknown_answer,
)
from zentence.types import LatentDistribution

Scores = NDArray[np.float64]  # [R, N]: runs, candidates
Progress = Callable[[int], None]  # candidates done


@dataclass(frozen=True)
class Figures:
    """P@1 and mean reciprocal rank over questions: means over runs; errors are of the mean over questions."""

    p_at_1: float
    mrr: float
    p_at_1_error: float
    mrr_error: float


@dataclass(frozen=True)
class Ranking:
    """How well each score ranks the right answers; None: the model has no such score."""

    questions: int  # ranked
    skipped: int  # without a right answer
    scores: dict[str, Figures | None]
    chance: Figures
    unknown_words: float  # share of the answers' words
    seed: int
    repeats: int

    def to_dict(self) -> dict[str, Any]:
        """Return what `zentence rank --json` prints."""
        return {
            "task": "rank",
            "questions": self.questions,
            "scores": {n: f and {"p_at_1": f.p_at_1, "mrr": f.mrr} for n, f in self.scores.items()},
            "standard_errors": {
                n: f and {"p_at_1": f.p_at_1_error, "mrr": f.mrr_error} for n, f in self.scores.items()
            },
            "chance": {"p_at_1": self.chance.p_at_1, "mrr": self.chance.mrr},
            "skipped": self.skipped,
            "unknown_words": self.unknown_words,
            "seed": self.seed,
            "repeats": self.repeats,
        }


def rank_answers(
    space: LatentSpace,
    candidates: Sequence[Candidate],
    *,
    seed: int = 0,
    repeats: int = 1,
    batch_size: int = 64,
    progress: Progress | None = None,
) -> Ranking:
    """Rank each question's answers by four scores; questions without a right answer are skipped and counted.

    `repeats` draws codes so many times from the same posteriors; figures are means over these runs.
    """
    check_space(space)
    answered = {c.key for c in candidates if c.right}
    kept = [c for c in candidates if c.key in answered]
    skipped = len({c.key for c in candidates} - answered)
    if not kept:
        raise ZentenceError("No question has a right answer (label 1): there is nothing to rank")
    numbers: dict[str, int] = {}
    groups = np.array([numbers.setdefault(c.key, len(numbers)) for c in kept])
    right = np.array([c.right for c in kept])
    write = Normaliser(space.vocabulary, space.settings.corpus)
    questions, answers = [write(c.question) for c in kept], [write(c.answer) for c in kept]
    by_words = tfidf_scores([c.question for c in kept], [c.answer for c in kept])
    options: dict[str, Any] = {"seed": seed, "repeats": repeats, "batch_size": batch_size, "progress": progress}
    scores = {**latent_scores(space, questions, answers, **options), "tfidf": by_words}
    figures = {
        name: None if values is None else ranking_figures(groups, right, values, seed)
        for name, values in scores.items()
    }
    unknown = share_unknown(space, answers)
    return Ranking(len(numbers), skipped, figures, chance_figures(groups, right), unknown, seed, repeats)


@torch.no_grad()
def latent_scores(
    space: LatentSpace,
    questions: Sequence[str],
    answers: Sequence[str],
    *,
    seed: int = 0,
    repeats: int = 1,
    batch_size: int = 64,
    progress: Progress | None = None,
) -> dict[str, Scores | None]:
    """Return scores [R, N] of answers to questions, larger for better ones.

    `paper`: −‖(z^unk − z^k) / σ^unk‖, z^k ~ q(z|Q^k), z^unk ~ q(z|Q^unk), σ^unk the scale of the latter; σ = 1 for
    auto-encoders, and for those trained on posterior means z is the mean and q(z|x) = N(mean, I). `cosine`: of z^unk
    and z^k. `log_q`: log q(z^k|Q^unk), None where the posterior has no density at other codes than its own samples.
    Noise follows from the seed and the candidate's number, so that the batch size does not matter.
    """
    lengths = [len(ids) for ids in space.vocabulary.encode_batch(list(answers))]
    known = [with_answer(q, a) for q, a in zip(questions, answers, strict=True)]
    unknown = [with_unknown_answer(q, n) for q, n in zip(questions, lengths, strict=True)]
    order = np.argsort([len(ids) for ids in space.vocabulary.encode_batch(unknown)], kind="stable")
    found = {name: np.empty((repeats, len(known))) for name in ("paper", "cosine", "log_q")}
    density = True
    for first in range(0, len(order), batch_size):
        rows = order[first : first + batch_size]
        places, q = _infer(space, [known[i] for i in rows])
        z = _draw(space, q, rows[places], repeats, derive_key(seed, "rank", "known"))
        z = z[:, np.argsort(places)]  # as in `rows`
        places, q = _infer(space, [unknown[i] for i in rows])
        z, rows = z[:, places], rows[places]
        z_unknown = _draw(space, q, rows, repeats, derive_key(seed, "rank", "unknown"))
        scale = 1.0 if trained_as_autoencoder(space) else q.scale.double()
        found["paper"][:, rows] = (-((z_unknown - z) / scale).norm(dim=-1)).cpu().numpy()
        found["cosine"][:, rows] = torch.cosine_similarity(z_unknown, z, dim=-1).cpu().numpy()
        if density:
            try:
                found["log_q"][:, rows] = _log_density(space, q, z).cpu().numpy()
            except NotInvertibleError:
                density = False
        if progress is not None:
            progress(first + len(rows))
    return {name: values if name != "log_q" or density else None for name, values in found.items()}


def _infer(space: LatentSpace, texts: Sequence[str]) -> tuple[NDArray[np.int64], LatentDistribution]:
    """Return q(z|x) of texts in one batch, and the text that each of its rows belongs to."""
    places, q, _ = next(space.posteriors(texts, batch_size=len(texts)))
    return places, q


def _draw(space: LatentSpace, q: LatentDistribution, rows: NDArray[np.int64], runs: int, key: int) -> Tensor:
    """Return codes [R, B, D] for the candidates `rows`: samples, or the mean if the model was trained on means."""
    if is_deterministic(space):
        return q.center.double().expand(runs, -1, -1)
    noise = Noise(key, torch.from_numpy(rows).to(space.device))
    return q.rsample_and_log_prob(runs, noise)[0].double()


def _log_density(space: LatentSpace, q: LatentDistribution, z: Tensor) -> Tensor:
    if is_deterministic(space):
        return -0.5 * ((z - q.center.double()).square() + LOG_2_PI).sum(-1)
    return q.log_prob(z.to(q.center.dtype)).double()


def tfidf_scores(questions: Sequence[str], answers: Sequence[str]) -> Scores:
    """Return the cosine of questions and answers as bags of words [1, N]; rare words of this very text weigh more."""
    try:
        from sklearn.feature_extraction.text import TfidfVectorizer
    except ImportError as error:
        raise ZentenceError("Ranking by words needs scikit-learn: pip install scikit-learn") from error
    # sentences often differ in one-letter words and marks only, so every run of word characters is a word
    vectorizer = TfidfVectorizer(token_pattern=r"\w+|[^\w\s]+")
    vectorizer.fit([*dict.fromkeys(questions), *answers])
    product = vectorizer.transform(questions).multiply(vectorizer.transform(answers))
    scores: Scores = np.asarray(product.sum(axis=1), dtype=np.float64).reshape(1, -1)
    return scores.round(12)  # equal bags in another order of words are ties


def ranking_figures(groups: NDArray[np.int64], right: NDArray[np.bool_], scores: Scores, seed: int) -> Figures:
    """Return P@1 and MRR of scores [R, N], larger is better, for candidates of the questions `groups` [N].

    A question with several right answers counts the best placed one. Equal scores are put into a random order, drawn
    anew in each run: the place in the file must not decide, since the right answer may always come first there.
    """
    random = np.random.default_rng(derive_key(seed, "ties"))
    reciprocal = np.stack([1.0 / _ranks(groups, right, row, random) for row in scores])  # [R, questions]
    first = reciprocal == 1.0
    return Figures(float(first.mean()), float(reciprocal.mean()), _error(first.mean(0)), _error(reciprocal.mean(0)))


def _ranks(
    groups: NDArray[np.int64], right: NDArray[np.bool_], scores: NDArray[np.float64], random: np.random.Generator
) -> NDArray[np.int64]:
    """Return the rank, from 1, of each question's best placed right answer."""
    order = np.lexsort((random.random(len(scores)), -scores, groups))
    starts = np.flatnonzero(np.diff(groups[order], prepend=-1))
    place = np.arange(len(order)) - np.repeat(starts, np.diff(starts, append=len(order))) + 1
    ranks: NDArray[np.int64] = np.minimum.reduceat(np.where(right[order], place, len(order) + 1), starts)
    return ranks


def _error(values: NDArray[Any]) -> float:
    return float(values.std(ddof=1) / math.sqrt(len(values))) if len(values) > 1 else 0.0


def chance_figures(groups: NDArray[np.int64], right: NDArray[np.bool_]) -> Figures:
    """Return what a random order gets on average: exactly."""
    counts = np.bincount(groups)
    rights = np.bincount(groups, right).astype(int)
    expected = [_expected_reciprocal(int(n), int(r)) for n, r in zip(counts, rights, strict=True)]
    return Figures(float((rights / counts).mean()), float(np.mean(expected)), 0.0, 0.0)


def _expected_reciprocal(count: int, right: int) -> float:
    """Return E[1/rank of the first of `right` among `count`]: P(rank = k) = C(count−k, right−1) / C(count, right)."""
    ways = (math.comb(count - k, right - 1) / k for k in range(1, count - right + 2))
    return sum(ways) / math.comb(count, right)
