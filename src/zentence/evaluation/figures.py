"""Per-sentence figures of a model on a split, from which all measurements are made."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from zentence import distributed
from zentence.corpora import TokenStore, collate
from zentence.errors import ZentenceError
from zentence.evaluation.likelihood import bounds, exact_nll
from zentence.model import LatentLM
from zentence.noise import Noise, derive_key
from zentence.types import Batch

BATCH_TOKENS = 4096
Progress = Callable[[int, int], None]  # sentences done, sentences in all


@dataclass(frozen=True)
class Figures:
    """Arrays over the sentences of a split, in its order."""

    values: dict[str, np.ndarray]  # each [N] float64, nats
    tokens: np.ndarray  # [N] predicted tokens: words + <eos>
    features: Tensor | None  # [M, H] of the first M sentences, for the aggregate posterior
    centers: Tensor | None  # [M, D]


def evaluation_batches(store: TokenStore, limit: int | None = None, tokens: int = BATCH_TOKENS) -> Iterator[Batch]:
    """Yield this process's batches: every sentence (or the first `limit`) exactly once, sorted by length."""
    order = np.asarray(store.order)
    if limit is not None:
        order = order[order < limit]
    first = number = 0
    while first < len(order):
        rows = max(1, tokens // (store.length(int(order[first])) + 1))
        while rows > 1 and (store.length(int(order[min(first + rows, len(order)) - 1])) + 1) * rows > tokens:
            rows -= 1  # the sentences grow longer along the batch
        chosen = order[first : first + rows]
        if number % distributed.world() == distributed.rank():
            labels = None if store.labels is None else store.labels[chosen]
            yield collate([store.sentence(int(i)) for i in chosen], chosen, labels)
        first += rows
        number += 1


@torch.no_grad()
def compute_figures(
    model: LatentLM,
    store: TokenStore,
    *,
    samples: int,
    seed: int,
    limit: int | None = None,
    information_sentences: int = 0,
    device: torch.device | None = None,
    progress: Progress | None = None,
) -> Figures:
    """Run a model over a split. Noise is keyed by sentence, so figures do not depend on batches or processes."""
    count = len(store) if limit is None else min(limit, len(store))
    if count == 0:
        raise ZentenceError("There is no sentence to evaluate on")
    device = device or next(model.parameters()).device
    key = derive_key(seed, "evaluation")
    rows: list[tuple[np.ndarray, dict[str, np.ndarray], np.ndarray]] = []
    features: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    done = 0
    for batch in evaluation_batches(store, limit):
        values, kept = _batch_figures(model, batch.to(device), samples, key, information_sentences)
        rows.append((batch.index.numpy(), values, batch.target.lengths.numpy()))
        if kept is not None:
            features.append(kept)
        done += batch.size * distributed.world()
        if progress is not None:
            progress(min(done, count), count)
    return _join(count, rows, features)


def _batch_figures(
    model: LatentLM, batch: Batch, samples: int, key: int, information_sentences: int
) -> tuple[dict[str, np.ndarray], tuple[np.ndarray, np.ndarray, np.ndarray] | None]:
    if not model.has_code:
        return {"nll": exact_nll(model, batch).cpu().numpy()}, None
    features = model.encoder(batch.source)
    found = bounds(model, batch, samples, Noise(key, batch.index), model.posterior(features))
    values = {
        "distortion": found.distortion,
        "rate": found.rate,
        "elbo_nll": found.elbo,
        "iw_nll": found.importance_weighted,
        "effective_samples": found.effective_samples,
    }
    wanted = batch.index < information_sentences
    kept = (
        batch.index[wanted].cpu().numpy(),
        features[wanted].cpu().numpy(),
        found.center[wanted].cpu().numpy(),
    )
    return {name: value.cpu().numpy() for name, value in values.items()}, kept


def _join(
    count: int,
    rows: list[tuple[np.ndarray, dict[str, np.ndarray], np.ndarray]],
    features: list[tuple[np.ndarray, np.ndarray, np.ndarray]],
) -> Figures:
    """Join all processes' batches in the split's order."""
    every = [row for part in distributed.gather(rows) for row in part]
    kept = [row for part in distributed.gather(features) for row in part]
    index = np.concatenate([row[0] for row in every])
    back = np.argsort(index)
    if len(index) != count or not np.array_equal(index[back], np.arange(count)):
        raise AssertionError("every sentence must be evaluated exactly once")
    values = {name: np.concatenate([row[1][name] for row in every])[back] for name in every[0][1]}
    tokens = np.concatenate([row[2] for row in every])[back]
    if not kept:
        return Figures(values, tokens, None, None)
    first = np.argsort(np.concatenate([row[0] for row in kept]))
    joined = [torch.from_numpy(np.concatenate([row[part] for row in kept])[first]) for part in (1, 2)]
    return Figures(values, tokens, joined[0], joined[1])
