"""Bounds against numerical integration on a two-dimensional code."""

import math
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

from zentence.distributions import DiagonalGaussian
from zentence.evaluation import likelihood
from zentence.evaluation.likelihood import bounds, exact_nll
from zentence.model import LatentLM
from zentence.noise import Noise
from zentence.testing import random_batch, tiny_model
from zentence.types import Batch


@cache
def small() -> tuple[LatentLM, Batch]:
    """Return a model whose posterior is wrong enough to be told from the prior, and three sentences."""
    return tiny_model(["posterior.size=2"], spread=0.7), random_batch([2, 4, 3])


@cache
def integrated() -> torch.Tensor:
    """Return log p(x) [B] by the trapezoidal rule over a grid of codes."""
    model, batch = small()
    axis = torch.linspace(-7.0, 7.0, 141, dtype=torch.float64)
    grid = torch.cartesian_prod(axis, axis)  # [N, 2]
    z = grid[:, None].expand(-1, batch.size, -1)
    with torch.no_grad():
        log_joint = model.log_likelihood(z, batch) + model.prior_density().log_prob(z)
    cell = math.log(float(axis[1] - axis[0]) ** 2)
    return torch.logsumexp(log_joint, 0) + cell


def test_importance_weighting_converges_to_the_integral() -> None:
    model, batch = small()
    found = bounds(model, batch, 20_000, Noise(1, batch.index))
    assert torch.allclose(-found.importance_weighted, integrated(), atol=0.02)


def test_elbo_is_the_integral_of_its_definition() -> None:
    """−ELBO − (−log p(x)) = KL(q‖p(z|x)), integrated on the grid."""
    model, batch = small()
    q, p = model.infer(batch.source), model.prior_density()
    axis = torch.linspace(-9.0, 9.0, 361, dtype=torch.float64)
    z = torch.cartesian_prod(axis, axis)[:, None].expand(-1, batch.size, -1)
    with torch.no_grad():
        log_q = q.log_prob(z)
        log_posterior = model.log_likelihood(z, batch) + p.log_prob(z) - integrated()
        gap = (log_q.exp() * (log_q - log_posterior)).sum(0) * float(axis[1] - axis[0]) ** 2
        found = bounds(model, batch, 20_000, Noise(1, batch.index))
    assert torch.allclose(found.elbo + integrated(), gap, atol=0.03)


def test_bounds_are_ordered_in_expectation() -> None:
    model, batch = small()
    repeats = 200

    def bound(samples: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the mean bound and its standard error."""
        rows = [bounds(model, batch, samples, Noise(seed, batch.index)).importance_weighted for seed in range(repeats)]
        values = torch.stack(rows)
        return values.mean(0).numpy(), values.std(0).numpy() / math.sqrt(repeats)

    (one, _), (five, _), (fifty, error) = bound(1), bound(5), bound(50)
    exact = -integrated().numpy()
    assert (one > five).all() and (five > fifty).all() and (fifty > exact - 4.0 * error).all()


@pytest.mark.parametrize("samples", [1, 7, 64])
def test_memory_chunks_do_not_change_the_figures(samples: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model, batch = small()
    options: dict[str, Any] = {"keep_weights": True, "priors": {"own": model.prior_density()}}
    whole = bounds(model, batch, samples, Noise(1, batch.index), **options)
    monkeypatch.setattr(likelihood, "TOKEN_SAMPLES", 3 * batch.target.ids.numel())
    parts = bounds(model, batch, samples, Noise(1, batch.index), **options)
    for one, other in zip(whole[:-1], parts[:-1], strict=True):
        assert isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor)
        assert torch.allclose(one, other, atol=1e-9)
    assert torch.allclose(parts.under_priors["own"].bound, whole.importance_weighted, atol=1e-9)
    assert torch.allclose(math.log(samples) - parts.log_weights.logsumexp(0), whole.importance_weighted, atol=1e-9)


def test_any_proposal_gives_the_same_likelihood() -> None:
    model, batch = small()
    wide = DiagonalGaussian(torch.zeros(3, 2, dtype=torch.float64), torch.full((3, 2), 0.2, dtype=torch.float64))
    found = bounds(model, batch, 20_000, Noise(1, batch.index), wide)
    assert torch.allclose(-found.importance_weighted, integrated(), atol=0.02)


def test_the_share_of_eos_is_the_last_tokens() -> None:
    model, batch = small()
    found = bounds(model, batch, 30, Noise(1, batch.index))
    with torch.no_grad():
        z = model.infer(batch.source).rsample_and_log_prob(30, Noise(1, batch.index))[0]
        tokens = model.token_log_prob(z, batch)
    last = torch.stack([tokens[:, row, length - 1] for row, length in enumerate(batch.target.lengths)], dim=1)
    assert torch.allclose(found.eos, -last.mean(0))


def test_effective_samples_lie_between_one_and_all() -> None:
    model, batch = small()
    found = bounds(model, batch, 40, Noise(1, batch.index)).effective_samples
    assert (found >= 1.0).all() and (found <= 40.0 + 1e-9).all()
    assert float(bounds(model, batch, 1, Noise(1, batch.index)).effective_samples.max()) == pytest.approx(1.0)


def test_language_model_likelihood_is_exact() -> None:
    model, batch = tiny_model(language_model=True, spread=0.5), random_batch([3, 1])
    with torch.no_grad():
        expected = -model.log_likelihood(None, batch)[0]
    assert torch.allclose(exact_nll(model, batch), expected)
