import math

import numpy as np
import pytest
import torch
from scipy import stats

from zentence.distributions import DiagonalGaussian, pairwise_log_prob
from zentence.evaluation.information import active_units, mutual_information
from zentence.noise import Noise


def linear_gaussian(count: int, signal: float, noise: float) -> DiagonalGaussian:
    """q(z|x) = N(x, noise²) for x ~ N(0, signal²): I(x; z) = ½ log(1 + signal²/noise²) per dimension."""
    x = torch.randn(count, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * signal
    return DiagonalGaussian(x, torch.full_like(x, math.log(noise)))


def estimate(q: DiagonalGaussian) -> tuple[float, float, float, bool]:
    z, log_q = q.rsample_and_log_prob(1, Noise(1, torch.arange(len(q.mean))))
    found = mutual_information(q, z[0], log_q[0], chunk=100)
    assert found.standard_error is not None
    return found.value, found.standard_error, found.ceiling, found.saturated


def test_mutual_information_of_a_linear_gaussian_model() -> None:
    value, error, ceiling, saturated = estimate(linear_gaussian(3000, 1.0, 0.5))
    closed_form = 2 * 0.5 * math.log(1.0 + 4.0)
    assert value == pytest.approx(closed_form, abs=4 * error + 0.02)
    assert ceiling == pytest.approx(math.log(3000)) and not saturated


def test_no_estimate_passes_its_ceiling() -> None:
    value, _, ceiling, saturated = estimate(linear_gaussian(200, 1.0, 1e-4))
    assert value == pytest.approx(ceiling, abs=1e-6) and value <= ceiling + 1e-9 and saturated


def test_a_collapsed_posterior_has_no_information() -> None:
    zero = torch.zeros(100, 3, dtype=torch.float64)
    value, *_ = estimate(DiagonalGaussian(zero, zero))
    assert value == pytest.approx(0.0, abs=1e-12)


def test_pairwise_densities_are_the_densities() -> None:
    q = linear_gaussian(5, 1.0, 0.3)
    z = torch.randn(4, 2, dtype=torch.float64)
    expected = stats.norm.logpdf(z.numpy()[:, None], q.mean.numpy()[None], q.scale.numpy()[None]).sum(-1)
    assert pairwise_log_prob(q, z).numpy() == pytest.approx(expected, abs=1e-9)


def test_active_units_on_constructed_codes() -> None:
    random = np.random.default_rng(0)
    spread = np.array([0.0, 0.05, 0.2, 1.0])  # variances 0, 0.0025, 0.04, 1
    centers = torch.from_numpy(random.normal(size=(5000, 4)) * spread + 3.0)
    count, variances = active_units(centers)
    assert count == 2
    assert variances.numpy() == pytest.approx(spread**2, abs=0.05)
    assert active_units(centers[:1])[0] == 0
