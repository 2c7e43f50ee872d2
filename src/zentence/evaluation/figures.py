"""Per-sentence figures of a model on a split, from which all measurements are made."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from zentence import distributed
from zentence.corpora import TokenStore, stored_batch
from zentence.errors import ZentenceError
from zentence.evaluation.journal import Arrays, Journal
from zentence.evaluation.likelihood import Bounds, bounds, eos_of
from zentence.evaluation.policy import SamplePolicy
from zentence.evaluation.proposal import explore, rows_of
from zentence.evaluation.weights import curve_points, expected_bounds, pareto_tail
from zentence.machine import give_back_memory
from zentence.model import LatentLM
from zentence.noise import Noise, derive_key
from zentence.types import Batch, LatentDistribution

BATCH_TOKENS = 4096
KEPT_WEIGHTS = 1 << 22  # sentence × code pairs whose weights are held at once: 32 MB
Progress = Callable[[int, int], None]  # sentences done, sentences in all
Priors = Mapping[str, LatentDistribution]

_PARTS = ("features", "centers")  # of sentences whose information is measured
_SUMS = ("per_dimension", "curve")  # of a batch, not of a sentence


@dataclass(frozen=True)
class Figures:
    """Arrays over the sentences of a split, in its order."""

    values: dict[str, np.ndarray]  # each [N] float64, nats
    tokens: np.ndarray  # [N] predicted tokens: words + <eos>
    features: Tensor | None = None  # [M, H] of the first M sentences, for the aggregate posterior
    centers: Tensor | None = None  # [M, D]
    per_dimension: np.ndarray | None = None  # [D] the rate's mean parts, where it has a closed form
    curve: list[tuple[int, float]] = field(default_factory=list)  # (k, mean bound with at most k codes a sentence)
    drawn: int | None = None  # codes a sentence for the distortion
    adapted: float = 0.0  # share of sentences whose codes for importance weights came from an adapted posterior


def evaluation_batches(
    store: TokenStore, limit: int | None = None, tokens: int | None = None, rows: int | None = None
) -> Iterator[Batch]:
    """Yield this process's batches: every sentence (or the first `limit`) exactly once, sorted by length."""
    tokens = tokens or BATCH_TOKENS
    order = np.asarray(store.order)
    if limit is not None:
        order = order[order < limit]
    first = number = 0
    while first < len(order):
        most = max(1, tokens // (store.length(int(order[first])) + 1))
        count = most if rows is None else min(most, rows)
        while count > 1 and (store.length(int(order[min(first + count, len(order)) - 1])) + 1) * count > tokens:
            count -= 1  # the sentences grow longer along the batch
        chosen = order[first : first + count]
        if number % distributed.world() == distributed.rank():
            yield stored_batch(store, chosen)
        first += count
        number += 1


def compute_figures(
    model: LatentLM,
    store: TokenStore,
    *,
    policy: SamplePolicy,
    seed: int,
    limit: int | None = None,
    information_sentences: int = 0,
    priors: Priors | None = None,
    weights: bool = True,
    diagnose: bool = False,
    journal: Journal | None = None,
    device: torch.device | None = None,
    progress: Progress | None = None,
) -> Figures:
    """Run a model over a split. Noise is keyed by sentence, so figures do not depend on batches or processes.

    Without `weights` a pilot's importance-weighted bound is left out. With `diagnose` weights are looked at: their
    tails, and the bound that fewer of them would give. `priors` are further densities of codes: the figure of a
    prior's name is the bound under it, from the same codes.
    """
    count = len(store) if limit is None else min(limit, len(store))
    if count == 0:
        raise ZentenceError("There is no sentence to evaluate on")
    device = device or next(model.parameters()).device
    work = _Work(model, policy, derive_key(seed, "evaluation"), information_sentences, priors or {}, weights, diagnose)
    journal = journal or Journal()
    rows: list[Arrays] = []
    done = 0
    for number, batch in enumerate(evaluation_batches(store, limit, rows=work.most_rows)):
        name = f"figures-{number}"
        found = journal.get(name)
        if found is None or not np.array_equal(found.get("index", ()), batch.index.numpy()):
            found = {
                "index": batch.index.numpy(),
                "tokens": batch.target.lengths.numpy(),
                **{key: value.cpu().numpy() for key, value in work(batch.to(device)).items()},
            }
            journal.put(name, found)
        rows.append(found)
        done += batch.size * distributed.world()
        if progress is not None:
            progress(min(done, count), count)
    return _join(count, rows, work.points)


@dataclass(frozen=True)
class _Work:
    """What is computed of a batch."""

    model: LatentLM
    policy: SamplePolicy
    key: int
    information: int  # sentences whose features are kept
    priors: Priors
    weights: bool
    diagnose: bool

    @property
    def points(self) -> list[int]:
        """Numbers of codes for which a bound is wanted."""
        return curve_points(self.policy.most) if self.diagnose and self.model.has_code else []

    @property
    def most_rows(self) -> int | None:
        """Sentences whose weights can be held at once."""
        return max(1, KEPT_WEIGHTS // self.policy.most) if self.diagnose and self.model.has_code else None

    @torch.no_grad()
    def __call__(self, batch: Batch) -> dict[str, Tensor]:
        if not self.model.has_code:
            tokens = self.model.token_log_prob(None, batch).double()
            return {"nll": -tokens.squeeze(0).sum(-1), "eos": -eos_of(tokens, batch).squeeze(0)}
        features = self.model.encoder(batch.source)
        q: LatentDistribution = self.model.posterior(features)
        values = self._fixed(batch, q) if self.policy.samples is not None else self._chosen(batch, q)
        wanted = batch.index < self.information
        kept = {"features": features[wanted], "centers": q.center[wanted], "kept": batch.index[wanted]}
        return {**values, **kept}

    def _fixed(self, batch: Batch, q: LatentDistribution) -> dict[str, Tensor]:
        K = self.policy.samples
        assert K is not None
        noise = Noise(self.key, batch.index)
        found = bounds(self.model, batch, K, noise, q, keep_weights=self.diagnose, priors=self.priors)
        drawn = {"drawn": torch.full_like(found.rate, K)}
        return {**_of_posterior(found), **self._of_weights(found, K), **drawn}

    def _chosen(self, batch: Batch, q: LatentDistribution) -> dict[str, Tensor]:
        """Let a pilot choose proposals and numbers of codes; sentences with the same number go together."""
        noise = Noise(derive_key(self.key, "pilot"), batch.index)
        pilot = explore(self.model, batch, q, noise, self.policy if self.weights else None, self.priors)
        values = {**_of_posterior(pilot.bounds), "adapted": pilot.adapted.double()}
        values["drawn"] = torch.full_like(values["rate"], pilot.drawn)
        if not self.weights:
            return values
        parts: list[dict[str, Tensor]] = []
        places: list[Tensor] = []
        for K in sorted(set(pilot.samples.tolist())):
            place = (pilot.samples == K).nonzero().squeeze(1)
            part, proposal = rows_of(batch, place), pilot.proposal(place)
            noise = Noise(self.key, part.index)
            found = bounds(self.model, part, K, noise, proposal, keep_weights=self.diagnose, priors=self.priors)
            parts.append(self._of_weights(found, K))
            places.append(place)
            give_back_memory()
        back = torch.cat(places).argsort()
        for name in parts[0]:
            if name in _SUMS:
                values[name] = torch.stack([part[name] for part in parts]).sum(0)
            else:
                values[name] = torch.cat([part[name] for part in parts])[back]
        return values

    def _of_weights(self, found: Bounds, K: int) -> dict[str, Tensor]:
        values = {
            "iw_nll": found.importance_weighted,
            "effective_samples": found.effective_samples,
            **{name: weighted.bound for name, weighted in found.under_priors.items()},
            **{f"{name}_effective": weighted.effective_samples for name, weighted in found.under_priors.items()},
        }
        if self.diagnose:
            values["samples"] = torch.full_like(found.importance_weighted, K)
            values["pareto_k"] = pareto_tail(found.log_weights)
            values["curve"] = expected_bounds(found.log_weights, self.points).sum(1)
        return values


def _of_posterior(found: Bounds) -> dict[str, Tensor]:
    values = {"distortion": found.distortion, "rate": found.rate, "elbo_nll": found.elbo, "eos": found.eos}
    if found.per_dimension is not None:
        values["per_dimension"] = found.per_dimension.double().sum(0)
    return values


def _join(count: int, rows: list[Arrays], points: list[int]) -> Figures:
    """Join all processes' batches in the split's order."""
    every = [row for part in distributed.gather(rows) for row in part]
    index = np.concatenate([row["index"] for row in every])
    back = np.argsort(index)
    if len(index) != count or not np.array_equal(index[back], np.arange(count)):
        raise AssertionError("every sentence must be evaluated exactly once")
    apart = {"index", "tokens", "kept", *_PARTS, *_SUMS}
    values = {name: np.concatenate([row[name] for row in every])[back] for name in every[0] if name not in apart}
    tokens = np.concatenate([row["tokens"] for row in every])[back]
    sums = {name: sum(row[name] for row in every) / count for name in _SUMS if name in every[0]}
    curve = [(k, float(value)) for k, value in zip(points, sums["curve"], strict=True)] if points else []
    curve = [point for point in curve if point[0] <= values["samples"].max()]
    if "kept" not in every[0]:
        return Figures(values, tokens)
    first = np.argsort(np.concatenate([row["kept"] for row in every]))
    joined = [torch.from_numpy(np.concatenate([row[part] for row in every])[first]) for part in _PARTS]
    drawn, adapted = int(values.pop("drawn").max()), values.pop("adapted", np.zeros(1))
    return Figures(values, tokens, joined[0], joined[1], sums.get("per_dimension"), curve, drawn, float(adapted.mean()))
