import math

import pytest
import torch
from scipy import integrate, stats

from zentence.distributions import DiagonalGaussian, gaussian_kl, rate
from zentence.errors import ZentenceError
from zentence.noise import Noise

torch.set_default_dtype(torch.float32)


def gaussian(rows: int = 3, size: int = 2, seed: int = 0) -> DiagonalGaussian:
    generator = torch.Generator().manual_seed(seed)
    mean, log_scale = torch.randn(2, rows, size, generator=generator, dtype=torch.float64)
    return DiagonalGaussian(mean, 0.5 * log_scale)


def test_log_prob_agrees_with_scipy() -> None:
    q = gaussian()
    z = torch.randn(5, 3, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    expected = stats.norm.logpdf(z.numpy(), q.mean.numpy(), q.scale.numpy()).sum(-1)
    assert q.log_prob(z).numpy() == pytest.approx(expected, abs=1e-12)


def test_sampled_log_prob_is_the_density_at_the_sample() -> None:
    q = gaussian()
    z, log_q = q.rsample_and_log_prob(7, Noise(1, torch.arange(3)))
    assert torch.allclose(log_q, q.log_prob(z), atol=1e-10)


def test_samples_have_the_mean_and_the_scale() -> None:
    q = gaussian()
    z, _ = q.rsample_and_log_prob(20_000, Noise(1, torch.arange(3)))
    assert torch.allclose(z.mean(0), q.mean, atol=0.05)
    assert torch.allclose(z.std(0), q.scale, rtol=0.03)


def test_closed_form_rate_is_the_integral() -> None:
    q, p = gaussian(1, 1, 3), gaussian(1, 1, 4)

    def integrand(x: float) -> float:
        z = torch.tensor([[[x]]], dtype=torch.float64)
        log_q, log_p = float(q.log_prob(z)), float(p.log_prob(z))
        return math.exp(log_q) * (log_q - log_p)

    value, _ = integrate.quad(integrand, -30, 30, limit=200)
    assert float(rate(q, p).total) == pytest.approx(value, abs=1e-8)


def test_monte_carlo_rate_agrees_with_the_closed_form() -> None:
    q, p = gaussian(4, 3, 5), DiagonalGaussian(torch.zeros(1, 3).double(), torch.zeros(1, 3).double())
    drawn = q.rsample_and_log_prob(50_000, Noise(1, torch.arange(4)))

    class Opaque:  # hides that it is Gaussian, so that no closed form is found
        center, scale = q.center, q.scale
        rsample_and_log_prob, log_prob = q.rsample_and_log_prob, q.log_prob

    estimate = rate(Opaque(), p, drawn)
    assert estimate.per_dimension is None
    assert torch.allclose(estimate.total, rate(q, p).total, atol=0.05)
    with pytest.raises(ZentenceError, match="no closed-form rate"):
        rate(Opaque(), p)


def test_gradient_of_the_rate_vanishes_where_posterior_and_prior_agree() -> None:
    mean = torch.zeros(2, 3, dtype=torch.float64, requires_grad=True)
    log_scale = torch.zeros(2, 3, dtype=torch.float64, requires_grad=True)
    prior = DiagonalGaussian(torch.zeros(1, 3).double(), torch.zeros(1, 3).double())
    gaussian_kl(DiagonalGaussian(mean, log_scale), prior).sum().backward()
    assert mean.grad is not None and log_scale.grad is not None
    assert mean.grad.abs().max() == 0.0
    assert log_scale.grad.abs().max() == 0.0
