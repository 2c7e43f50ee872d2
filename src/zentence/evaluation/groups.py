"""Likelihood, information and the priors swapped in: what is recorded of the figures that they share."""

import math
from typing import Any

import numpy as np
import torch

from zentence import distributed
from zentence.evaluation.figures import Figures, evaluation_batches
from zentence.evaluation.information import (
    ACTIVE_VARIANCE,
    ENTROPY_SENTENCES,
    NEIGHBOUR,
    active_units,
    derangement,
    draw_codes,
    estimate_information,
    neighbour_entropy,
)
from zentence.evaluation.measurement import Kind, mean_and_error, ratio_and_error
from zentence.evaluation.recorder import Recorder
from zentence.evaluation.subject import NO_CODE, Subject
from zentence.evaluation.weights import UNRELIABLE

BINS = 30


def source(subject: Subject, recorder: Recorder) -> None:
    """Record what the text costs under its true source, where that is known."""
    values = None if subject.source_nll is None else np.fromiter(subject.source_nll, dtype=np.float64)
    if values is not None and np.isfinite(values).all():
        recorder.add_mean("source_nll", values, "exact", note="−log p of this split under its true source")


def likelihood(subject: Subject, recorder: Recorder) -> None:
    """Record −log p(x), exact or bounded, its parts, and what it is per word and per byte."""
    figures = subject.figures()
    if subject.model.has_code:
        recorder.refuse("nll", "this model has a code: see iw_nll")
        if subject.wants("iw_nll"):
            _importance_weighted(subject, recorder, figures)
        _parts(subject, recorder, figures)
        _per_word(subject, recorder, "iw_nll", "upper_bound")
    else:
        for name in ("iw_nll", "elbo_nll", "distortion", "rate"):
            recorder.refuse(name, NO_CODE)
        nll = figures.values["nll"]
        recorder.add_mean("nll", nll, "exact", histogram=histogram(nll))
        _per_word(subject, recorder, "nll", "exact")


def histogram(values: np.ndarray) -> dict[str, list[float]]:
    """Return counts of values between even edges."""
    counts, edges = np.histogram(values, BINS)
    return {"edges": [float(edge) for edge in edges], "counts": [int(count) for count in counts]}


def _weight_samples(figures: Figures) -> int | None:
    """Return the number of codes a sentence: K, or where it was chosen the rounded mean; None without a code."""
    return round(float(figures.values["samples"].mean())) if "samples" in figures.values else None


def _importance_weighted(subject: Subject, recorder: Recorder, figures: Figures) -> None:
    values = figures.values
    effective, tails = values["effective_samples"], values["pareto_k"]
    recorder.add_mean(
        "iw_nll",
        values["iw_nll"],
        "upper_bound",
        _weight_samples(figures),
        stochastic=True,
        **_policy(subject, figures),
        effective_samples=float(effective.mean()),
        effective_samples_min=float(effective.min()),
        monte_carlo_error=monte_carlo_error(figures),
        # sentences that a pilot found easy have too few codes for a tail, and are no cause for doubt
        unreliable_share=float((tails > UNRELIABLE).mean()) if np.isfinite(tails).any() else None,
        k_curve=[list(point) for point in figures.curve],
        histogram=histogram(values["iw_nll"]),
    )


def _parts(subject: Subject, recorder: Recorder, figures: Figures) -> None:
    values, L = figures.values, subject.model.averaged_codes
    shape = histogram(values["elbo_nll"])
    if L == 1:
        recorder.add_mean("elbo_nll", values["elbo_nll"], "upper_bound", figures.drawn, histogram=shape)
    else:
        note = f"charges one of the {L} codes whose hidden states are averaged; iw_nll charges all"
        recorder.add_mean(
            "elbo_nll", values["elbo_nll"], "not_a_bound", figures.drawn, averaged_codes=L, note=note, histogram=shape
        )
    recorder.add_mean("distortion", values["distortion"], "estimate", figures.drawn)
    parts = figures.per_dimension
    split: dict[str, Any] = {} if parts is None else {"per_dimension": [round(float(part), 6) for part in parts]}
    recorder.add_mean("rate", values["rate"], "estimate", **split)


def _policy(subject: Subject, figures: Figures) -> dict[str, Any]:
    samples, policy = figures.values["samples"], subject.policy
    details: dict[str, Any] = {"policy": policy.name, "samples_max": int(samples.max())}
    if policy.samples is None:
        details |= {
            "tolerance": policy.tolerance,
            "samples_mean": float(samples.mean()),
            "adapted_share": figures.adapted,
        }
    return details


def monte_carlo_error(figures: Figures) -> float:
    """Return the mean over sentences of the standard error that the choice of codes leaves in a sentence's bound.

    To first order it is √(v/K), and v = K/(effective samples) − 1 the weights' variance over their squared mean.
    """
    values = figures.values
    per_code = np.maximum(1.0 / values["effective_samples"] - 1.0 / values["samples"], 0.0)
    return float(np.sqrt(per_code).mean())


def _per_word(subject: Subject, recorder: Recorder, name: str, kind: Kind) -> None:
    """Record perplexities with and without `<eos>`, and bits per byte; errors by the delta method on the ratios."""
    figures, ledger = subject.figures(), subject.store.ledger
    samples = _weight_samples(figures)
    whole = subject.count == len(subject.store)
    if ledger.tokens != ledger.words and not whole:
        for metric in ("ppl", "ppl_without_eos"):
            recorder.refuse(metric, "the words of a part of a split in sub-words are not counted: leave --limit out")
    else:
        words = (figures.tokens - 1.0) * (ledger.words / ledger.tokens)  # of sub-words: in proportion
        counts: dict[str, Any] = {"words": round(float(words.sum())), "unknown": ledger.unknown if whole else None}
        if subject.wants("ppl"):
            value, error = _perplexity(figures.values[name], words + 1.0)
            details = {
                "of": name,
                "eos": subject.count,
                **counts,
                **({} if name == "nll" else _policy(subject, figures)),
            }
            recorder.add("ppl", value, kind, subject.count, error, samples, **details)
        samples_without: int | None
        kind_without: Kind
        if name == "nll":
            of, samples_without, kind_without = name, None, kind
        else:
            of, samples_without, kind_without = "distortion", figures.drawn, "not_a_bound"
            counts["note"] = "of the distortion alone: what the code costs is left out"
        value, error = _perplexity(figures.values[of] - figures.values["eos"], words)
        recorder.add(
            "ppl_without_eos", value, kind_without, subject.count, error, samples_without, of=of, eos=0, **counts
        )
    _per_subword(subject, recorder, name, kind, samples)
    if subject.wants("bits_per_byte"):
        _bits_per_byte(subject, recorder, name, kind, samples)


def _per_subword(subject: Subject, recorder: Recorder, name: str, kind: Kind, samples: int | None) -> None:
    """Record perplexities per sub-word with two, and with none, special tokens a sentence in the denominator."""
    figures, ledger = subject.figures(), subject.store.ledger
    tokens = figures.tokens - 1.0
    for metric, special in (("ppl_per_bpe_with_bos_eos", 2), ("ppl_per_bpe_without_bos_eos", 0)):
        if ledger.tokens == ledger.words:
            recorder.refuse(metric, "this model's tokens are words: see ppl")
        elif subject.wants(metric):
            value, error = _perplexity(figures.values[name], tokens + special)
            counts = {"tokens": round(float(tokens.sum())), "special_tokens": special * subject.count}
            recorder.add(metric, value, kind, subject.count, error, samples, of=name, **counts)


def _bits_per_byte(subject: Subject, recorder: Recorder, name: str, kind: Kind, samples: int | None) -> None:
    ledger = subject.store.ledger
    if subject.count < len(subject.store):
        recorder.refuse("bits_per_byte", "the bytes of a part of a split are not counted: leave --limit out")
        return
    per_sentence = ledger.bytes / len(subject.store) * math.log(2.0)
    mean, error = mean_and_error(subject.figures().values[name] / per_sentence)
    details: dict[str, Any] = {"of": name, "bytes": ledger.bytes, "unknown": ledger.unknown}
    recorder.add("bits_per_byte", mean, kind, subject.count, error, samples, **details)


def _perplexity(nats: np.ndarray, counts: np.ndarray) -> tuple[float, float | None]:
    per_token, error = ratio_and_error(nats, counts)
    value = math.exp(per_token)
    return value, None if error is None else value * error


def swapped_priors(subject: Subject, recorder: Recorder) -> None:
    """Record importance-weighted bounds under priors made of training sentences after training."""
    densities, refused = subject.swapped_priors()
    for name, reason in refused.items():
        recorder.refuse(name, reason)
    for name in densities:
        details: dict[str, Any] = {"stochastic": True, **_policy(subject, subject.figures())}
        details["note"] = "codes are adapted to the model's own prior: `evaluate --prior` gives a tighter bound"
        details["training_sentences"] = min(subject.prior_sentences, len(subject.training or ()))
        if name == "mixture_prior_nll":
            details["components"] = min(subject.prior_components, details["training_sentences"])
        values = subject.figures().values[name]
        details["effective_samples"] = float(subject.figures().values[f"{name}_effective"].mean())
        recorder.add_mean(name, values, "upper_bound", _weight_samples(subject.figures()), **details)


def information(subject: Subject, recorder: Recorder) -> None:
    """Record what codes tell about sentences, and what the decoder makes of them."""
    names = ("mutual_information", "marginal_kl", "active_units", "shuffled_code_gap", "code_entropy")
    if not subject.model.has_code:
        for name in names:
            recorder.refuse(name, NO_CODE)
        return
    figures = subject.figures()
    assert figures.features is not None
    assert figures.centers is not None
    M = len(figures.features)
    if M < 2:
        for name in names:
            recorder.refuse(name, "one sentence is not enough")
        return
    features = figures.features.to(subject.device)
    if subject.wants("mutual_information", "marginal_kl"):
        _mutual_information(subject, recorder, features)
    active, variances = active_units(figures.centers)
    spectrum = [round(float(v), 6) for v in variances]
    size = subject.model.code_size
    recorder.add("active_units", active, "estimate", M, of=size, threshold=ACTIVE_VARIANCE, variances=spectrum)
    if subject.wants("shuffled_code_gap"):
        values, shuffled = shuffled_code_gap(subject, features)
        recorder.add_mean("shuffled_code_gap", values, "estimate", 1, shuffled_distortion=shuffled)
    if subject.wants("code_entropy"):
        _code_entropy(subject, recorder, features)


def _mutual_information(subject: Subject, recorder: Recorder, features: torch.Tensor) -> None:
    estimate = estimate_information(subject.model, features, subject.seed)
    if estimate is None:
        for name in ("mutual_information", "marginal_kl"):
            recorder.refuse(name, "not available for this posterior: it knows its density at its own codes only")
        return
    found, M = estimate
    recorder.add(
        "mutual_information",
        found.value,
        "estimate",
        M,
        found.standard_error,
        1,
        M=M,
        log_M=found.ceiling,
        saturated=found.saturated,
        lower=found.value,
        upper=found.upper,
    )
    rates = subject.figures().values["rate"][:M]
    recorder.add_mean("marginal_kl", rates - found.values.cpu().numpy(), "estimate", 1, M=M, rate=float(rates.mean()))


@torch.no_grad()
def shuffled_code_gap(subject: Subject, features: torch.Tensor) -> tuple[np.ndarray, float]:
    """Return −log p(x|z of another sentence) + log p(x|z) [M], and the mean of the first term.

    Each sentence has one code (or group of codes) from q; a permutation without fixed points deals them out again.
    """
    model, M = subject.model, len(features)
    z = draw_codes(model.posterior(features), M, subject.seed, model.averaged_codes)[0]  # [L, M, D]
    other = torch.from_numpy(derangement(M, subject.seed)).to(z.device)
    rows, done = [], 0
    for batch in evaluation_batches(subject.store, M):
        moved = batch.to(subject.device)
        costs = [
            -model.token_log_prob(z[:, index], moved)[0].double().sum(-1) for index in (moved.index, other[moved.index])
        ]
        rows.append((batch.index.numpy(), *(cost.cpu().numpy() for cost in costs)))
        done += batch.size * distributed.world()
        subject.progress("shuffled codes", min(done, M), M)
    every = [row for part in distributed.gather(rows) for row in part]
    back = np.argsort(np.concatenate([row[0] for row in every]))
    own, shuffled = (np.concatenate([row[k] for row in every])[back] for k in (1, 2))
    return shuffled - own, float(shuffled.mean())


@torch.no_grad()
def _code_entropy(subject: Subject, recorder: Recorder, features: torch.Tensor) -> None:
    features = features[:ENTROPY_SENTENCES]
    if len(features) <= NEIGHBOUR:
        recorder.refuse("code_entropy", f"needs more than {NEIGHBOUR} sentences")
        return
    q = subject.model.posterior(features)
    objective = subject.settings.stages[-1].objective
    means = objective.name == "autoencoder" and objective.options.get("code") == "mean"
    codes = q.center if means else draw_codes(q, len(features), subject.seed)[0][0]
    value, error = neighbour_entropy(codes)
    if not math.isfinite(value):
        recorder.refuse("code_entropy", "codes coincide: they have no density")
        return
    normal = 0.5 * subject.model.code_size * (math.log(2.0 * math.pi) + 1.0)
    details: dict[str, Any] = {"k": NEIGHBOUR, "normal": normal, "codes": "means" if means else "samples"}
    recorder.add("code_entropy", value, "estimate", len(features), error, None if means else 1, **details)
