"""The exact search for nearest codes.

Matrix products in float32 choose what can be among the k nearest, with a bound on their rounding; float64 decides
among these. So it is as quick as the products, and as exact as comparing all pairs in float64.
"""

from typing import Any, Literal, cast

import numpy as np
import torch
from numpy.typing import NDArray

from zentence.errors import ZentenceError
from zentence.latent.space import Codes

CHUNK_NUMBERS, QUERIES = 1 << 21, 128  # numbers of codes that are looked at together, and queries
METRICS = ("euclidean", "cosine")

Metric = Literal["euclidean", "cosine"]
Ids = NDArray[np.int64]
Scores = NDArray[np.float64]


def check_metric(metric: str) -> Metric:
    """Return a metric, or complain of its name."""
    if metric not in METRICS:
        raise ZentenceError(f"Unknown metric '{metric}': choose one of {', '.join(METRICS)}")
    return cast(Metric, metric)


def pair_scores(a: NDArray[Any], b: NDArray[Any], metric: Metric) -> Scores:
    """Return the scores [N] of the rows of two arrays [N, D]: euclidean distances, or cosines (of a zero code: 0)."""
    return _scores(_ranks(np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64), metric), metric)


def nearest(codes: Codes, queries: Codes, k: int, metric: Metric) -> tuple[Ids, Scores]:
    """Return the numbers [Q, k] of the codes [N, D] nearest to queries [Q, D], best first, and their scores [Q, k].

    Of equal ones the lower number comes first; k is at most N. Codes may be mapped: they are read in chunks.
    """
    parts = [_nearest(codes, queries[first : first + QUERIES], k, metric) for first in range(0, len(queries), QUERIES)]
    if not parts:
        return np.empty((0, k), dtype=np.int64), np.empty((0, k))
    return np.concatenate([ids for ids, _ in parts]), np.concatenate([scores for _, scores in parts])


def _nearest(codes: Codes, queries: Codes, k: int, metric: Metric) -> tuple[Ids, Scores]:
    """Go through all codes in chunks, and keep the best k of each query.

    A product's rank r̃ is within δ of the exact r. A code among the k nearest has r no larger than the k-th best r so
    far, so r̃ ≤ that + δ; and, in its chunk, r̃ ≤ the k-th smallest r̃ + 2δ.
    """
    Q, rows = len(queries), max(k, CHUNK_NUMBERS // codes.shape[1])
    ids, ranks = np.full((Q, k), -1, dtype=np.int64), np.full((Q, k), np.inf)
    buffer = np.empty((min(rows, len(codes)), codes.shape[1]), dtype=np.float32)
    asked = torch.from_numpy(np.array(queries, dtype=np.float32))
    for first in range(0, len(codes), rows):
        chunk = buffer[: min(rows, len(codes) - first)]
        chunk[:] = codes[first : first + len(chunk)]
        rough, slack, left_out = _rough_ranks(asked, torch.from_numpy(chunk), metric)
        limit = torch.from_numpy(ranks[:, -1] - left_out + slack).float()
        near = ~(rough > limit[:, None])  # not ≤: what overflowed is looked at as well
        if int(near.sum(1).max()) > 8 * k and len(chunk) > k:
            kth = rough.topk(k, dim=1, largest=False).values[:, -1].double() + torch.from_numpy(2.0 * slack)
            near = ~(rough > torch.fmin(limit, kth.float())[:, None])
        which, places = (found.numpy() for found in near.nonzero(as_tuple=True))
        ids, ranks = _merged(ids, ranks, which, places + first, _exact_ranks(queries, chunk, which, places, metric))
    return ids, _scores(ranks, metric)


def _rough_ranks(queries: torch.Tensor, codes: torch.Tensor, metric: Metric) -> tuple[torch.Tensor, Scores, Scores]:
    """Return ranks [Q, C] in float32, a bound [Q] on their error, and what [Q] they leave out of the exact rank.

    A product of n terms in any order errs by at most n u Σ|a||b| with u = 2⁻²⁴; the factor 2 covers what is of order
    u² and the rounding of the bound itself; 2⁻¹²⁰ covers what is flushed to zero.
    """
    unit = 2.0 * (codes.shape[1] + 8) * 2.0**-24
    if metric == "cosine":
        rough = -(_normalised(queries) @ _normalised(codes).T)
        return rough, np.full(len(queries), 3.0 * unit), np.zeros(len(queries))
    squares = codes.square().sum(1)
    length = np.linalg.norm(queries.numpy().astype(np.float64), axis=1)
    slack = unit * np.square(length + float(squares.max().double().sqrt())) + 2.0**-120
    return torch.addmm(squares[None], queries, codes.T, alpha=-2.0), slack, np.square(length)


def _normalised(codes: torch.Tensor) -> torch.Tensor:
    """Return codes [N, D] of length 1, zeros as they are; first scaled so that no square overflows or vanishes."""
    tiny = torch.finfo(codes.dtype).tiny
    scaled = codes / codes.abs().amax(1, keepdim=True).clamp_min(tiny)
    length: torch.Tensor = scaled.norm(dim=1, keepdim=True)
    return scaled / length.clamp_min(tiny)


def _exact_ranks(queries: Codes, codes: Codes, which: Ids, places: Ids, metric: Metric) -> Scores:
    """Return the ranks of pairs (queries[which], codes[places])."""
    found = np.empty(len(which))
    block = max(1, CHUNK_NUMBERS // queries.shape[1])
    for first in range(0, len(which), block):
        part = slice(first, first + block)
        a, b = queries[which[part]].astype(np.float64), codes[places[part]].astype(np.float64)
        found[part] = _ranks(a, b, metric)
    return found


def _ranks(a: Scores, b: Scores, metric: Metric) -> Scores:
    """Return what is to be small: squared distances, or minus cosines."""
    if metric == "euclidean":
        return cast(Scores, np.square(a - b).sum(1))
    norms = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    return cast(Scores, -(a * b).sum(1) / np.where(norms == 0.0, 1.0, norms))


def _scores(ranks: Scores, metric: Metric) -> Scores:
    return cast(Scores, np.sqrt(ranks) if metric == "euclidean" else 0.0 - ranks)


def _merged(ids: Ids, ranks: Scores, which: Ids, numbers: Ids, found: Scores) -> tuple[Ids, Scores]:
    """Return the best k of what each query had [Q, k] and what was found for it (three lists), ties by number."""
    Q, k = ids.shape
    all_which = np.concatenate((np.repeat(np.arange(Q), k), which))
    all_ids, all_ranks = np.concatenate((ids.reshape(-1), numbers)), np.concatenate((ranks.reshape(-1), found))
    order = np.lexsort((all_ids, all_ranks, all_which))
    starts = np.searchsorted(all_which[order], np.arange(Q))
    kept = order[starts[:, None] + np.arange(k)]
    return all_ids[kept], all_ranks[kept]
