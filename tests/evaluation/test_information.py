import math

import numpy as np
import pytest
import torch
from scipy import stats

from zentence.distributions import DiagonalGaussian, pairwise_log_prob
from zentence.evaluation.information import active_units, derangement, mutual_information, neighbour_entropy
from zentence.noise import Noise


def linear_gaussian(count: int, signal: float, noise: float, seed: int = 0) -> DiagonalGaussian:
    """q(z|x) = N(x, noise²) for x ~ N(0, signal²): I(x; z) = ½ log(1 + signal²/noise²) per dimension."""
    x = torch.randn(count, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)) * signal
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


def test_lower_and_upper_bounds_enclose_the_information_of_the_source() -> None:
    """Few sentences tell little of a source: the pair of bounds says how little, on average over samples of it."""
    closed_form = 2 * 0.5 * math.log(1.0 + 16.0)
    pairs = []
    for seed in range(40):
        q = linear_gaussian(60, 1.0, 0.25, seed)
        z, log_q = q.rsample_and_log_prob(1, Noise(seed, torch.arange(60)))
        found = mutual_information(q, z[0], log_q[0])
        assert found.upper is not None and float(found.values.mean()) == pytest.approx(found.value)
        pairs.append((found.value, found.upper))
    lower, upper = np.mean(pairs, axis=0)
    assert lower + 0.1 < closed_form < upper - 0.1


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


@pytest.mark.parametrize(("size", "scale"), [(1, 0.1), (2, 1.0), (4, 3.0)])
def test_entropy_of_gaussian_codes(size: int, scale: float) -> None:
    codes = torch.from_numpy(np.random.default_rng(0).normal(size=(4000, size)) * scale + 50.0)
    value, error = neighbour_entropy(codes, k=5, chunk=700)
    closed_form = size * (0.5 * math.log(2.0 * math.pi * math.e) + math.log(scale))
    assert error is not None and value == pytest.approx(closed_form, abs=4.0 * error + 0.03)


def test_codes_that_coincide_have_no_density() -> None:
    codes = torch.randn(50, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    codes[10:16] = codes[3]
    assert neighbour_entropy(codes, k=5) == (-math.inf, None)
    assert math.isfinite(neighbour_entropy(codes, k=7)[0])  # seven equal ones have a seventh neighbour elsewhere
    with pytest.raises(ValueError, match="no 5-th"):
        neighbour_entropy(codes[:5])


@pytest.mark.parametrize("count", [2, 3, 100])
def test_shuffling_leaves_no_code_in_its_place(count: int) -> None:
    other = derangement(count, 0)
    assert sorted(other) == list(range(count)) and (other != np.arange(count)).all()
    assert derangement(100, 1).tolist() != derangement(100, 2).tolist()
