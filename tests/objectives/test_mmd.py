"""The maximum mean discrepancy: unbiased, zero in expectation for equal sources, positive for others."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from zentence.build import build_objective
from zentence.noise import Noise
from zentence.objectives.info_vae import inverse_multiquadratic, mmd_squared, rbf
from zentence.parts import Part
from zentence.settings import StageSettings
from zentence.testing import random_batch, tiny_model

KERNELS = {"rbf": rbf, "inverse_multiquadratic": inverse_multiquadratic}
kernels = pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS.keys())


def normal(rows: int, size: int, seed: int) -> Tensor:
    return torch.randn(rows, size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def by_hand(x: Tensor, y: Tensor, k: Callable[[float], float]) -> float:
    """Return the estimate by double loops over all pairs."""

    def distance(a: Tensor, b: Tensor) -> float:
        return float(sum((a[d] - b[d]) ** 2 for d in range(len(a))))

    def mean(pairs: list[float]) -> float:
        return sum(pairs) / len(pairs)

    within = [mean([k(distance(a, b)) for i, a in enumerate(s) for j, b in enumerate(s) if i != j]) for s in (x, y)]
    return within[0] + within[1] - 2.0 * mean([k(distance(a, b)) for a in x for b in y])


@pytest.mark.parametrize("scale", [0.5, 3.0])
def test_estimate_is_the_double_loop(scale: float) -> None:
    x, y = normal(6, 3, 0), 0.5 + normal(4, 3, 1)
    assert float(mmd_squared(x, y, rbf(scale))) == pytest.approx(
        by_hand(x, y, lambda d: math.exp(-d / scale)), abs=1e-12
    )
    assert float(mmd_squared(x, y, inverse_multiquadratic(scale))) == pytest.approx(
        by_hand(x, y, lambda d: 2.0 * scale / (2.0 * scale + d)), abs=1e-12
    )


@kernels
def test_estimate_is_zero_in_expectation_for_equal_sources_and_positive_otherwise(
    kernel: Callable[[float], Callable[[Tensor], Tensor]],
) -> None:
    def estimates(shift: float, scale: float) -> Tensor:
        pairs = ((normal(8, 4, seed), shift + scale * normal(8, 4, 10_000 + seed)) for seed in range(2000))
        return torch.stack([mmd_squared(x, y, kernel(4.0)) for x, y in pairs])

    equal = estimates(0.0, 1.0)
    error = float(equal.std() / math.sqrt(len(equal)))
    assert abs(float(equal.mean())) < 3.0 * error < 0.01
    assert (equal < 0.0).any()  # unbiased: it must be able to be
    for other in (estimates(1.0, 1.0), estimates(0.0, 0.3)):
        assert float(other.mean()) > 20.0 * error


def test_expectation_is_that_of_the_gaussian_integral() -> None:
    """With k = exp(−d²/s), E k = Π (1 + 4 σ²/s)^(−½) for two draws of N(0, σ²) a dimension, and so on."""
    s, spread = 4.0, 0.3

    def expected(a: float, b: float) -> float:
        return float((1.0 + 2.0 * (a * a + b * b) / s) ** (-0.5 * 4))

    exact = expected(spread, spread) + expected(1.0, 1.0) - 2.0 * expected(spread, 1.0)
    pairs = ((spread * normal(8, 4, seed), normal(8, 4, 10_000 + seed)) for seed in range(4000))
    found = torch.stack([mmd_squared(x, y, rbf(s)) for x, y in pairs])
    assert float(found.mean()) == pytest.approx(exact, abs=4.0 * float(found.std()) / math.sqrt(4000))


@pytest.mark.parametrize("kernel", KERNELS)
def test_objective_adds_lambda_times_the_discrepancy(kernel: str) -> None:
    model, batch = tiny_model(spread=0.5), random_batch([3, 4, 5, 2, 6])
    noise = Noise(3, batch.index)
    options = {"kernel": kernel, "kernel_scale": 1.5, "mmd_weight": 7.0, "mmd_scale": 10.0}

    def terms(name: str, **given: object) -> tuple[float, dict[str, float]]:
        part = Part.model_validate({"name": name, **given})
        found = build_objective(StageSettings(objective=part), 1.0, 1)(model, batch, 0, noise)
        return float(found.loss.detach()), found.scalars

    loss, scalars = terms("info_vae", **options)
    z = model.infer(batch.source).rsample_and_log_prob(1, noise)[0][0].detach()
    y = model.prior_density().rsample_and_log_prob(1, noise.fork("draws from the prior"))[0][0]
    expected = float(mmd_squared(z, y, KERNELS[kernel](1.5 * 2)))
    assert scalars["mmd"] == pytest.approx(expected, abs=1e-12)
    assert loss - terms("elbo")[0] == pytest.approx(70.0 * expected, abs=1e-10)


def test_lambda_may_be_a_schedule_and_one_sentence_has_no_discrepancy() -> None:
    model = tiny_model(spread=0.5)
    part = Part.model_validate({"name": "info_vae", "mmd_weight": {"name": "linear", "end": 8.0}})
    made = build_objective(StageSettings(objective=part), 1.0, 100)
    batch = random_batch([3, 4])
    losses = [float(made(model, batch, step, Noise(0, batch.index)).loss.detach()) for step in (0, 50, 100)]
    assert losses[2] - losses[0] == pytest.approx(2.0 * (losses[1] - losses[0]), abs=1e-10)
    single = random_batch([3])
    assert "mmd" not in made(model, single, 100, Noise(0, single.index)).scalars
