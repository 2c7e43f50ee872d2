"""Paper 1's MELBO: what a sentence costs if its code is one of N known ones (Eq. 16)."""

import math
from typing import Any

import numpy as np
import torch

from zentence.corpora import TokenStore
from zentence.evaluation.figures import evaluation_batches
from zentence.evaluation.recorder import Recorder
from zentence.evaluation.subject import Subject
from zentence.model import LatentLM
from zentence.noise import derive_key

LEAST_TRIALS = 500  # sets of sentences a point of the curve (paper 1, Fig. 5: max(N − n, 500))


def melbo_curve(distortion: np.ndarray, seed: int) -> list[tuple[int, float, float]]:
    """Return (n, mean, standard deviation) of MELBO over sets of n of the N sentences with these distortions [N].

    The sets are max(N − n, 500) windows of shuffled sentences.
    """
    N = len(distortion)
    random = np.random.default_rng(derive_key(seed, "sets of sentences"))
    sizes = sorted({*np.unique(np.geomspace(1, N, 25).round().astype(int)).tolist(), N})
    points = []
    for n in sizes:
        trials, found = max(N - n, LEAST_TRIALS), list[np.ndarray]()
        while sum(map(len, found)) < trials:
            values = distortion[random.permutation(N)]
            sums = np.concatenate(([0.0], np.cumsum(np.concatenate((values, values[:n])))))
            found.append((sums[n : n + N] - sums[:N]) / n)
        means = np.concatenate(found)[:trials] + math.log(n)
        points.append((int(n), float(means.mean()), float(means.std())))
    return points


def extrapolate(curve: list[tuple[int, float, float]]) -> dict[str, float]:
    """Return slope and intercept of MELBO against log n, by least squares over the curve's points."""
    if len(curve) < 2:
        return {"slope": 1.0, "intercept": curve[0][1] - math.log(curve[0][0])}
    slope, intercept = np.polyfit([math.log(n) for n, _, _ in curve], [mean for _, mean, _ in curve], 1)
    return {"slope": float(slope), "intercept": float(intercept)}


def meeting_point(extrapolation: dict[str, float], nll: float) -> float | None:
    """Return the number of sentences at which MELBO would be a rival's nats per sentence; None beyond e^300."""
    exponent = (nll - extrapolation["intercept"]) / extrapolation["slope"]
    return math.exp(exponent) if abs(exponent) < 300.0 else None


@torch.no_grad()
def mean_code_distortion(model: LatentLM, store: TokenStore, limit: int | None = None) -> float:
    """Return −log p(x|z) at the codes' means, nats per sentence: what an auto-encoder with z = mean pays."""
    device, total, count = next(model.parameters()).device, 0.0, 0
    for batch in evaluation_batches(store, limit):
        moved = batch.to(device)
        z = model.infer(moved.source).center.expand(model.averaged_codes, -1, -1)
        total -= float(model.token_log_prob(z, moved).double().sum())
        count += batch.size
    return total / count


def melbo(subject: Subject, recorder: Recorder) -> None:
    """Record MELBO: distortion + log N. It bounds −log p(x) only under a prior made of the N evaluated sentences."""
    if not subject.model.has_code:
        recorder.refuse("melbo_nll", "this is a language model: it has no code")
        return
    figures = subject.figures()
    distortion, N = figures.values["distortion"], subject.count
    curve = melbo_curve(distortion, subject.seed)
    fitted = extrapolate(curve)
    details: dict[str, Any] = {"autoencoder": None}
    if subject.autoencoder is not None:
        found = mean_code_distortion(subject.autoencoder, subject.store, subject.limit)
        details["autoencoder"] = found + math.log(N)
    if subject.rival_nll is not None:
        details["meets"] = {"nll": subject.rival_nll, "n": meeting_point(fitted, subject.rival_nll)}
    recorder.add_mean(
        "melbo_nll",
        distortion + math.log(N),
        "not_a_bound",
        figures.drawn,
        N=N,
        floor=math.log(N),
        curve=[list(point) for point in curve],
        extrapolation=fitted,
        note="a bound only under a prior made of the evaluated sentences; grows with log N",
        **details,
    )
