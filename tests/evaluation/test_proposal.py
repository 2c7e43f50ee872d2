"""The pilot: adapted proposals against a model whose posterior is known, and bounds that hold in expectation."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from zentence.distributions import DiagonalGaussian
from zentence.evaluation.figures import _Work
from zentence.evaluation.likelihood import bounds
from zentence.evaluation.policy import LEAST, MOST, SamplePolicy
from zentence.evaluation.proposal import FEW, FIRST, adapt, explore
from zentence.model import LatentLM
from zentence.noise import Noise
from zentence.testing import random_batch, tiny_model
from zentence.types import Batch


class Linear(nn.Module):
    """p(z) = N(0, I); log p(x|z) = log N(y | z, s² I) for one observation y [D] a sentence: p(z|x) is Gaussian."""

    averaged_codes, has_code = 1, True

    def __init__(self, observed: Tensor, spread: float) -> None:
        super().__init__()
        self.observed, self.spread = observed, spread
        self.weight = nn.Parameter(torch.ones(1, dtype=torch.float64))

    def prior_density(self) -> DiagonalGaussian:
        zero = torch.zeros_like(self.observed[:1])
        return DiagonalGaussian(zero, zero)

    def token_log_prob(self, z: Tensor, batch: Batch) -> Tensor:
        y = self.observed[batch.index] * self.weight
        scale = torch.full_like(y, math.log(self.spread))
        first = torch.zeros(*z.shape[:2], batch.target.ids.shape[1], dtype=z.dtype)
        return (
            first
            + nn.functional.one_hot(torch.tensor(0), first.shape[2]) * DiagonalGaussian(y, scale).log_prob(z)[..., None]
        )

    def evidence(self) -> Tensor:
        total = torch.full_like(self.observed, 0.5 * math.log(1.0 + self.spread**2))
        return DiagonalGaussian(torch.zeros_like(self.observed), total).log_prob(self.observed[None])[0]


def linear() -> tuple[Linear, Batch, DiagonalGaussian]:
    """Return the model, its batch, and a posterior that is wrong in mean and scale."""
    generator = torch.Generator().manual_seed(0)
    batch = random_batch([2, 3, 1, 3])
    y = torch.randn(4, 3, dtype=torch.float64, generator=generator)
    return Linear(y, 0.8), batch, DiagonalGaussian(0.3 * y + 0.2, torch.full_like(y, -0.7))


def test_adaptation_finds_a_gaussian_posterior() -> None:
    """p(z|x) = N(y / (1 + s²), s² / (1 + s²)); weights at codes from it are all p(x)."""
    model, batch, q = linear()
    _, found = adapt(model, batch, q, Noise(1, batch.index))  # type: ignore[arg-type]
    share = 1.0 / (1.0 + model.spread**2)
    assert torch.allclose(found.mean, model.observed * share, atol=1e-9)
    assert torch.allclose(found.scale, torch.full_like(found.mean, math.sqrt(model.spread**2 * share)), atol=1e-9)
    weighted = bounds(model, batch, 5, Noise(2, batch.index), found)  # type: ignore[arg-type]
    assert torch.allclose(-weighted.importance_weighted, model.evidence(), atol=1e-9)
    assert torch.allclose(weighted.effective_samples, torch.tensor(5.0, dtype=torch.float64), atol=1e-6)
    assert model.weight.requires_grad and model.weight.grad is None


def test_the_pilots_own_figures_are_those_of_the_posterior() -> None:
    """Distortion and rate come from q, whatever is proposed: against a long run and the closed form."""
    model, batch, q = linear()
    rows = [explore(model, batch, q, Noise(seed, batch.index), None).bounds for seed in range(100)]  # type: ignore[arg-type]
    long = bounds(model, batch, 20_000, Noise(5, batch.index), q)  # type: ignore[arg-type]
    distortion = torch.stack([row.distortion for row in rows])
    error = distortion.std(0) / math.sqrt(len(rows))
    assert ((distortion.mean(0) - long.distortion).abs() < 4.0 * error + 0.02).all()
    assert torch.allclose(rows[0].rate, long.rate, atol=1e-12)


def test_easy_sentences_get_few_codes_and_hard_ones_many() -> None:
    policy = SamplePolicy(None, 0.1)
    needed = policy.needed(torch.tensor([0.0, 0.08, 0.09, 0.32, 0.33, 1.0, 1e9, math.nan]))
    assert needed.tolist() == [LEAST, 8, 12, 32, 48, 128, MOST, MOST]


def test_sentences_beyond_any_number_of_codes_get_few() -> None:
    """Codes a thousand times narrower than p(z|x): in 40 dimensions log-weights vary by about 20, in 4 by about 2."""
    for size, hopeless in ((40, True), (4, False)):
        y = torch.randn(4, size, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        model, batch = Linear(y, 0.8), random_batch([2, 3, 1, 3])
        q = DiagonalGaussian(y / 1.64, torch.full_like(y, -7.0))
        pilot = explore(model, batch, q, Noise(1, batch.index), SamplePolicy())  # type: ignore[arg-type]
        assert (pilot.samples.tolist() == [FEW] * 4) == hopeless


def small(overrides: list[str] | None = None, spread: float = 0.9) -> tuple[LatentLM, Batch]:
    return tiny_model(["posterior.size=2", *(overrides or [])], spread=spread), random_batch([2, 4, 3, 7])


def automatic(model: LatentLM, batch: Batch, seed: int, tolerance: float) -> dict[str, Tensor]:
    work = _Work(model, SamplePolicy(None, tolerance), seed, 0, {}, True, True)
    return work(batch)


@pytest.mark.parametrize(("overrides", "spread"), [([], 0.7), (["averaged_codes=2"], 0.6)])
def test_chosen_numbers_of_codes_give_the_bound_of_very_many(overrides: list[str], spread: float) -> None:
    """Over many seeds the mean is an upper bound of −log p(x), and near it; the spread is what was asked for."""
    model, batch = small(overrides, spread)
    truth = bounds(model, batch, 10_000, Noise(7, batch.index)).importance_weighted.numpy()
    found = [automatic(model, batch, seed, 0.1) for seed in range(40)]
    values = np.stack([row["iw_nll"].numpy() for row in found])
    error = values.std(0, ddof=1) / math.sqrt(len(values))
    assert (values.mean(0) >= truth - 4.0 * error - 0.02).all()
    assert np.abs(values.mean(0) - truth).max() < 0.08
    assert values.std(0, ddof=1).max() < 0.2  # twice the tolerance: the pilot sees the spread through few codes
    assert len(set(np.stack([row["samples"].numpy() for row in found]).ravel().tolist())) > 2


def test_flows_are_proposed_as_they_are() -> None:
    model, batch = small(["posterior.name=iaf"], 0.05)
    with torch.no_grad():
        q = model.infer(batch.source)
        pilot = explore(model, batch, q, Noise(0, batch.index), SamplePolicy(None, 0.5))
    assert pilot.density is q and not pilot.adapted.any() and pilot.drawn == FIRST


def test_adapted_codes_weigh_more_than_those_of_the_posterior() -> None:
    model, batch = small()
    with torch.no_grad():
        q = model.infer(batch.source)
        plain = bounds(model, batch, 2000, Noise(3, batch.index), q).effective_samples
        for seed in range(5):
            density = explore(model, batch, q, Noise(seed, batch.index), SamplePolicy(None, 0.1)).density
            assert bounds(model, batch, 2000, Noise(3, batch.index), density).effective_samples.mean() > plain.mean()
