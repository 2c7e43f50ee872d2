"""All measurements of a model on a split."""

import hashlib
import json
import subprocess
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from zentence.corpora import TokenStore
from zentence.distributions import DiagonalGaussian
from zentence.errors import NotInvertibleError
from zentence.evaluation.figures import Figures, Progress, compute_figures
from zentence.evaluation.information import ACTIVE_VARIANCE, Information, active_units, mutual_information
from zentence.evaluation.measurement import Kind, Measurement, describe_machine
from zentence.evaluation.recorder import Recorder
from zentence.model import LatentLM
from zentence.noise import Noise, derive_key
from zentence.settings import Settings

FLOW_SENTENCES = 500  # for the information of flows, whose densities at all pairs of codes and sentences cost much


@cache
def source_commit() -> str | None:
    """Return the commit of the zentence sources in use, if they are a checkout."""
    here = Path(__file__).parent
    command = ["git", "-C", str(here), "log", "-1", "--format=%H", "--", str(here.parent)]
    try:
        found = subprocess.run(command, capture_output=True, text=True, check=False, timeout=5)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return found.stdout.strip() or None


def provenance_of(settings: Settings) -> dict[str, Any]:
    """Return what a figure depends on beside the split: version, commit, settings, machine."""
    content = json.dumps(settings.model_dump(mode="json"), sort_keys=True)
    digest = hashlib.sha256(content.encode()).hexdigest()[:16]
    return {**describe_machine(), "commit": source_commit(), "settings": digest, "trained_seed": settings.training.seed}


def evaluate_split(
    model: LatentLM,
    store: TokenStore,
    settings: Settings,
    *,
    split: str,
    samples: int,
    seed: int = 0,
    limit: int | None = None,
    source_nll: Iterable[float] | None = None,
    progress: Progress | None = None,
) -> list[Measurement]:
    """Measure a model on a split: likelihood, information, and the true source's figure where it is known."""
    sentences = settings.evaluation.information_sentences
    figures = compute_figures(
        model,
        store,
        samples=samples,
        seed=seed,
        limit=limit,
        information_sentences=sentences,
        progress=progress,
    )
    recorder = Recorder(split, seed, provenance_of(settings))
    if model.has_code:
        _latent_figures(recorder, model, figures, samples)
    else:
        recorder.add_mean("nll", figures.values["nll"], "exact")
        _perplexity(recorder, figures, "nll", "exact", None)
    if source_nll is not None:
        values = np.fromiter(source_nll, dtype=np.float64)
        if np.isfinite(values).all():
            recorder.add_mean("source_nll", values, "exact", note="−log p of this split under its true source")
    return recorder.measurements


def _perplexity(recorder: Recorder, figures: Figures, name: str, kind: Kind, samples: int | None) -> None:
    """Add exp(nats / token) over words and one `<eos>` per sentence; its error by the delta method on the ratio."""
    nats, tokens = figures.values[name], figures.tokens.astype(np.float64)
    per_token = nats.sum() / tokens.sum()
    value = float(np.exp(per_token))
    residual = nats - per_token * tokens
    error = None
    if len(nats) > 1:
        error = float(value * residual.std(ddof=1) / np.sqrt(len(nats)) / tokens.mean())
    words = int(tokens.sum()) - len(tokens)
    recorder.add("ppl", value, kind, len(nats), error, samples, of=name, words=words, eos=len(tokens))


def _latent_figures(recorder: Recorder, model: LatentLM, figures: Figures, samples: int) -> None:
    values, L = figures.values, model.averaged_codes
    if L == 1:
        recorder.add_mean("elbo_nll", values["elbo_nll"], "upper_bound", samples)
    else:
        note = f"charges one of the {L} codes whose hidden states are averaged; iw_nll charges all"
        recorder.add_mean("elbo_nll", values["elbo_nll"], "not_a_bound", samples, averaged_codes=L, note=note)
    effective = values["effective_samples"]
    recorder.add_mean(
        "iw_nll",
        values["iw_nll"],
        "upper_bound",
        samples,
        stochastic=True,
        effective_samples=float(effective.mean()),
        effective_samples_min=float(effective.min()),
    )
    _perplexity(recorder, figures, "iw_nll", "upper_bound", samples)
    recorder.add_mean("rate", values["rate"], "estimate")
    recorder.add_mean("distortion", values["distortion"], "estimate", samples)
    if figures.features is None or figures.centers is None:
        return
    device = next(model.parameters()).device
    information_of(recorder, model, figures.features.to(device), recorder.seed)
    active, variances = active_units(figures.centers)
    recorder.add(
        "active_units",
        active,
        "estimate",
        len(figures.centers),
        of=model.code_size,
        threshold=ACTIVE_VARIANCE,
        variances=[round(float(v), 6) for v in variances],
    )


@torch.no_grad()
def estimate_information(model: LatentLM, features: torch.Tensor, seed: int) -> tuple[Information, int] | None:
    """Return the mutual information under the aggregate posterior of sentences with features [M, H], and M.

    None if there are fewer than two, or if the posterior does not know its density at other sentences' codes. Of flows
    the first 500 sentences are taken.
    """
    q = model.posterior(features)
    if not isinstance(q, DiagonalGaussian):
        features = features[:FLOW_SENTENCES]
        q = model.posterior(features)
    M = features.shape[0]
    if M < 2:
        return None
    index = torch.arange(M, device=features.device)
    z, log_q = q.rsample_and_log_prob(1, Noise(derive_key(seed, "information"), index))
    try:
        return mutual_information(q, z[0], log_q[0]), M
    except NotInvertibleError:
        return None


def information_of(recorder: Recorder, model: LatentLM, features: torch.Tensor, seed: int) -> None:
    """Add the mutual information of the sentences with these features [M, H], where it can be known."""
    estimate = estimate_information(model, features, seed)
    if estimate is None:
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
    )
