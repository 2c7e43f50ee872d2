"""Diagnostics of importance weights: the tail's index, and bounds of fewer codes."""

import math

import numpy as np
import pytest
import torch

from zentence.evaluation.weights import curve_points, expected_bounds, pareto_tail


@pytest.mark.parametrize("index", [0.1, 0.5, 1.0, 1.5])
def test_tails_of_pareto_weights_have_their_index(index: float) -> None:
    """w = U^−k, U uniform, is Pareto's distribution with tail index k."""
    uniform = np.random.default_rng(0).uniform(size=(20_000, 12))
    found = pareto_tail(torch.from_numpy(-index * np.log(uniform))).numpy()
    assert found.mean() == pytest.approx(index, abs=0.06)
    assert np.abs(found - index).max() < 0.4


def test_light_and_bounded_tails() -> None:
    random = np.random.default_rng(0)
    exponential = pareto_tail(torch.from_numpy(np.log(random.exponential(size=(20_000, 8))))).numpy()
    assert exponential.mean() == pytest.approx(0.0, abs=0.1)
    bounded = pareto_tail(torch.from_numpy(np.log(random.uniform(size=(20_000, 8))))).numpy()
    assert bounded.mean() == pytest.approx(-1.0, abs=0.25)  # a uniform tail, shrunk a little


def test_shifting_log_weights_changes_no_tail() -> None:
    log_weights = torch.randn(400, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(pareto_tail(log_weights), pareto_tail(log_weights - 900.0), atol=1e-9)


def test_few_weights_have_no_tail_and_equal_ones_are_reliable() -> None:
    assert pareto_tail(torch.zeros(24, 2)).isnan().all()
    equal = pareto_tail(torch.zeros(100, 2, dtype=torch.float64))
    assert (equal < 0.7).all()


def test_points_of_the_curve() -> None:
    assert curve_points(1) == [1]
    assert curve_points(7) == [1, 2, 5, 7]
    assert curve_points(100) == [1, 2, 5, 10, 20, 50, 100]


def test_bounds_of_fewer_codes_are_unbiased() -> None:
    """Against bounds of draws of their own, for log-normal weights; and by hand for three draws."""
    random = np.random.default_rng(0)
    drawn = torch.from_numpy(random.normal(size=(40, 20_000)))
    found = expected_bounds(drawn, [1, 5, 40]).numpy()
    for row, k in zip(found, (1, 5, 40), strict=True):
        fresh = math.log(k) - torch.from_numpy(random.normal(size=(k, 200_000))).logsumexp(0).numpy()
        error = math.hypot(row.std() / math.sqrt(len(row)), fresh.std() / math.sqrt(len(fresh)))
        assert row.mean() == pytest.approx(fresh.mean(), abs=4.0 * error)
    three = torch.tensor([[0.0], [1.0], [5.0]], dtype=torch.float64)
    one, two, all_, more = expected_bounds(three, [1, 2, 3, 9])[:, 0].tolist()
    assert one == pytest.approx(-2.0)
    assert two == pytest.approx(-math.log((1.0 + math.e) / 2.0))  # the third draw is left over
    assert all_ == more == pytest.approx(-math.log((1.0 + math.e + math.exp(5.0)) / 3.0))
