"""The shape of the space: whether near codes mean near sentences, and whether sentences keep to their own codes."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from zentence.distributions import DiagonalGaussian
from zentence.errors import NotInvertibleError
from zentence.evaluation.measurement import mean_and_error
from zentence.evaluation.passes import ROWS, Encoded, batches, considered, encode_split, texts, write
from zentence.evaluation.recorder import Recorder
from zentence.evaluation.subject import Subject
from zentence.evaluation.text import edit_distances, why_not
from zentence.noise import derive_key

PAIRS = 100_000  # of sentences, for the correlation of distances (paper 4)
LINES = 200  # pairs of sentences whose codes are joined
POINTS = 11  # decoded on a line, ends included: τ = 0, 0.1 … 1
OTHERS = 10  # other sentences whose posterior is asked for the density of a code
FLOW_SENTENCES = 500  # flows must be inverted for that, which costs much
BINS = 40
METRIC_NAMES = ("smoothness", "interpolation_smoothness", "log_likelihood_pairs", "log_posterior_pairs")


def geometry(subject: Subject, recorder: Recorder) -> None:
    """Record how distances of codes and of sentences go together, along lines and over pairs."""
    refusal = None
    if not subject.model.has_code:
        refusal = "a language model has no codes"
    elif considered(subject) < 2:
        refusal = "needs at least two sentences"
    if refusal is not None:
        for name in METRIC_NAMES:
            recorder.refuse(name, refusal)
        return
    encoded = encode_split(subject, "geometry")
    for name, compute in (("smoothness", _smoothness), ("interpolation_smoothness", _interpolation)):
        if missing := why_not("rapidfuzz"):
            recorder.refuse(name, missing)
        elif subject.wants(name):
            compute(subject, recorder, encoded)
    if subject.wants("log_likelihood_pairs"):
        _likelihood_pairs(subject, recorder, encoded)
    if subject.wants("log_posterior_pairs"):
        _posterior_pairs(subject, recorder, encoded)


def choose_pairs(count: int, most: int, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return all pairs of different sentences if there are at most `most`, else as many drawn with replacement."""
    if count * (count - 1) // 2 <= most:
        one, other = np.triu_indices(count, 1)
        return one.astype(np.int64), other.astype(np.int64)
    random = np.random.default_rng(derive_key(seed, "pairs"))
    first = random.integers(0, count, most)
    return first, (first + random.integers(1, count, most)) % count


def pearson(x: NDArray[Any], y: NDArray[Any]) -> tuple[float, float] | None:
    """Return the correlation r and its standard error (1 − r²) / √(n − 3); None if either side does not vary.

    The error is that of Fisher's z = artanh r, which is 1 / √(n − 3), carried back to r.
    """
    x, y = x.astype(np.float64), y.astype(np.float64)
    x, y = x - x.mean(), y - y.mean()
    spread = np.sqrt((x @ x) * (y @ y))
    if len(x) < 4 or spread <= 1e-12 * len(x):
        return None
    r = float(np.clip((x @ y) / spread, -1.0, 1.0))
    return r, (1.0 - r * r) / float(np.sqrt(len(x) - 3))


def _smoothness(subject: Subject, recorder: Recorder, encoded: Encoded) -> None:
    """Correlate ℓ2 distances of posterior means with word edit distances over pairs of sentences (paper 4, Table 5)."""
    sentences = list(texts(subject, subject.store, considered(subject)))
    one, other = choose_pairs(len(sentences), PAIRS, subject.seed)
    centers = encoded.centers.double().numpy()
    apart = np.concatenate(
        [
            np.linalg.norm(centers[one[first : first + 8192]] - centers[other[first : first + 8192]], axis=1)
            for first in range(0, len(one), 8192)
        ]
    )
    edits = edit_distances([sentences[i] for i in one], [sentences[j] for j in other])
    found = pearson(apart, edits)
    if found is None:
        recorder.refuse("smoothness", "all codes, or all sentences, are equally far from each other")
        return
    details = {"pairs": len(one), "from": "mean", "error_note": "as if pairs shared no sentence"}
    recorder.add("smoothness", found[0], "estimate", len(sentences), found[1], None, **details)


@torch.no_grad()
def _interpolation(subject: Subject, recorder: Recorder, encoded: Encoded) -> None:
    """Decode along straight lines between posterior means; compare the way with the distance of its ends.

    For the sentences x_0 … x_M written greedily at τ = 0, 1/M … 1 the way is Σ d(x_t, x_{t+1}) ≥ d(x_0, x_M) by the
    triangle inequality, d the word edit distance. Their ratio is 1 where every step changes only what has to change,
    and falls as sentences wander. A single jump is direct too: `largest_step`, the mean of max_t d(x_t, x_{t+1}) over
    d(x_0, x_M), tells (1/M: even steps). Lines on which all sentences are equal have no ratio and are only counted.
    """
    random = np.random.default_rng(derive_key(subject.seed, "lines"))
    count = considered(subject)
    shuffled = random.permutation(count)[: 2 * min(LINES, count // 2)].reshape(-1, 2)
    starts, ends = encoded.centers[shuffled[:, 0]], encoded.centers[shuffled[:, 1]]
    along = torch.linspace(0.0, 1.0, POINTS, dtype=starts.dtype)[:, None, None]
    codes = ((1.0 - along) * starts + along * ends).transpose(0, 1).reshape(-1, starts.shape[1])  # line by line
    written: list[str] = []
    for first in range(0, len(codes), ROWS):
        z = codes[first : first + ROWS].to(subject.device)
        written += write(subject, z[None], torch.arange(first, first + len(z), device=subject.device), "greedy")
        subject.progress("interpolations", len(written), len(codes))
    lines = [written[first : first + POINTS] for first in range(0, len(written), POINTS)]
    direct = edit_distances([line[0] for line in lines], [line[-1] for line in lines])
    steps = edit_distances([a for line in lines for a in line[:-1]], [b for line in lines for b in line[1:]])
    steps = steps.reshape(len(lines), POINTS - 1)
    way = steps.sum(1)
    moving = way > 0
    if not moving.any():
        recorder.refuse("interpolation_smoothness", "the decoder writes one sentence along each line")
        return
    apart = direct > 0
    recorder.add_mean(
        "interpolation_smoothness",
        direct[moving] / way[moving],
        "estimate",
        points=POINTS,
        lines=len(lines),
        constant=int((~moving).sum()),
        largest_step=float((steps[apart].max(1) / direct[apart]).mean()) if apart.any() else None,
        mean_distance=float(direct.mean()),
    )


def other_sentences(count: int, shifts: int, seed: int) -> NDArray[np.int64]:
    """Return for each sentence the numbers of others [shifts, count]: neighbours around a random circle of all."""
    around = np.random.default_rng(derive_key(seed, "others")).permutation(count)
    shifts = min(shifts, count - 1)
    others = np.empty((shifts, count), dtype=np.int64)
    for shift in range(shifts):
        others[shift, around] = np.roll(around, -(shift + 1))
    return others


def histogram(values: NDArray[np.float64], edges: NDArray[np.float64]) -> dict[str, list[float]]:
    """Return counts between edges, as plain numbers."""
    counts, _ = np.histogram(values, edges)
    return {"edges": [float(edge) for edge in edges], "counts": [int(count) for count in counts]}


def _record_pairs(recorder: Recorder, name: str, same: NDArray[np.float64], other: NDArray[np.float64]) -> None:
    """Record mean(same) − mean(other) for same [N] and other [S, N], with both histograms over common edges."""
    if not (np.isfinite(same).all() and np.isfinite(other).all()):
        recorder.refuse(name, "a log-density is not finite")
        return
    edges = np.histogram_bin_edges(np.concatenate((same, other.reshape(-1))), BINS)
    difference, error = mean_and_error(same - other.mean(0))
    recorder.add(
        name,
        difference,
        "estimate",
        len(same),
        error,
        1,
        same=histogram(same, edges),
        other=histogram(other.reshape(-1), edges),
        mean_same=float(same.mean()),
        mean_other=float(other.mean()),
        others=len(other),
    )


@torch.no_grad()
def _likelihood_pairs(subject: Subject, recorder: Recorder, encoded: Encoded) -> None:
    """log p(x_i|z_j), z_j ~ q(z|x_j), for j = i and for one other j (paper 1, Fig. 3a)."""
    count = considered(subject)
    (other,) = other_sentences(count, 1, subject.seed)
    values = np.empty((2, count))
    for batch in batches(subject, "likelihood of pairs"):
        index = batch.index.cpu().numpy()
        for row, chosen in enumerate((index, other[index])):
            z = encoded.codes[chosen].transpose(0, 1).to(subject.device)
            values[row, index] = subject.model.token_log_prob(z, batch)[0].double().sum(-1).cpu().numpy()
    _record_pairs(recorder, "log_likelihood_pairs", values[0], values[1:])


@torch.no_grad()
def _posterior_pairs(subject: Subject, recorder: Recorder, encoded: Encoded) -> None:
    """log q(z_i|x_j), z_i ~ q(z|x_i), for j = i and for other j (paper 1, Fig. 3b); one code a sentence."""
    count = considered(subject)
    if not isinstance(subject.model.posterior(encoded.features[:1].to(subject.device)), DiagonalGaussian):
        count = min(count, FLOW_SENTENCES)
    others = other_sentences(count, OTHERS, subject.seed)
    codes = encoded.codes[:, 0]
    same, other = np.empty(count), np.empty((len(others), count))
    try:
        for first in range(0, count, ROWS):
            rows = slice(first, min(first + ROWS, count))
            q = subject.model.posterior(encoded.features[rows].to(subject.device))
            chosen = np.concatenate((np.arange(count)[None, rows], others[:, rows]))
            found = q.log_prob(codes[chosen].to(subject.device)).double().cpu().numpy()
            same[rows], other[:, rows] = found[0], found[1:]
            subject.progress("densities of pairs", rows.stop, count)
    except NotInvertibleError:
        recorder.refuse("log_posterior_pairs", "this posterior knows its density at its own samples only")
        return
    _record_pairs(recorder, "log_posterior_pairs", same, other)
