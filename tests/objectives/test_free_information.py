"""Free bits that are information only: the mismatch of a batch's codes and the prior is charged from the first nat."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributions import MultivariateNormal, Normal, kl_divergence

from zentence.build import build_objective
from zentence.distributions import DiagonalGaussian, Rate, rate
from zentence.errors import ZentenceError
from zentence.objectives.rate_rules import FreeBits, batch_mismatch
from zentence.parts import Part, parse_options
from zentence.settings import StageSettings
from zentence.testing import random_batch

BATCH = random_batch([2, 3, 4, 5, 6])
STANDARD = DiagonalGaussian(torch.zeros(1, 3, dtype=torch.float64), torch.zeros(1, 3, dtype=torch.float64))


def posteriors(seed: int = 0, spread: float = 1.0) -> DiagonalGaussian:
    """Return q(z|x) of five sentences in three dimensions, whose means are correlated."""
    generator = torch.Generator().manual_seed(seed)
    mixed = torch.randn(5, 3, generator=generator, dtype=torch.float64)
    mean = spread * mixed @ torch.tensor([[1.0, 0.8, 0.0], [0.0, 0.5, 0.3], [0.2, 0.0, 0.6]], dtype=torch.float64) + 0.1
    log_scale = 0.3 * torch.randn(5, 3, generator=generator, dtype=torch.float64) - 0.2
    return DiagonalGaussian(mean.requires_grad_(), log_scale.requires_grad_())


def rule(**options: Any) -> FreeBits:
    content = {"on": "both", "mean": "batch", "mismatch_weight": 1.0, "target_per_dimension": 0.0, **options}
    return FreeBits(parse_options("rule", FreeBits.Options, content), 1.0, 10)


def slopes(value: Tensor, q: DiagonalGaussian) -> list[Tensor]:
    return list(torch.autograd.grad(value, [q.mean, q.log_scale]))


def population(count: int) -> DiagonalGaussian:
    """Return q(z|x) of many sentences of one source, in four correlated dimensions."""
    generator = torch.Generator().manual_seed(3)
    mixing = torch.tensor([[0.8, 0.3, 0.0, 0.0], [0.0, 0.5, 0.2, 0.0], [0.1, 0.0, 0.6, 0.2], [0.0, 0.0, 0.0, 0.4]])
    mean = torch.randn(count, 4, generator=generator, dtype=torch.float64) @ mixing.double() + 0.2
    return DiagonalGaussian(mean, 0.1 * torch.randn(count, 4, generator=generator, dtype=torch.float64) - 0.3)


def gaussian_mismatch(q: DiagonalGaussian) -> float:
    """Return the divergence from N(0, I) of the Gaussian with the moments of q(z)."""
    D = q.mean.shape[1]
    covariance = torch.cov(q.mean.t()) + q.scale.square().mean(0).diag()
    prior = MultivariateNormal(torch.zeros(D, dtype=torch.float64), torch.eye(D, dtype=torch.float64))
    return float(kl_divergence(MultivariateNormal(q.mean.mean(0), covariance), prior))


def test_the_mismatch_of_many_sentences_is_the_divergence_of_their_gaussian_from_the_prior() -> None:
    q = population(20_000)
    assert float(batch_mismatch(q, 0.0, BATCH)) == pytest.approx(gaussian_mismatch(q), abs=1e-3)


@pytest.mark.parametrize("size", [16, 64])
def test_small_batches_find_the_same_mismatch_on_average(size: int) -> None:
    """The plain estimate from 16 sentences is 60 % too large; ours is off by less than a fifth of that."""
    every = population(16_000)
    true = gaussian_mismatch(every)
    batches = [every.rows(rows) for rows in torch.arange(16_000).split(size)]
    plain = sum(gaussian_mismatch(q) for q in batches) / len(batches) - true
    # with −1 a dimension nothing is cut off at 0, which would let chance in again
    found = sum(float(batch_mismatch(q, -1.0, BATCH)) - 2 * 4 for q in batches) / len(batches) - true
    assert plain > 0.02
    assert abs(found) < 0.2 * plain


def test_each_dimension_may_differ_from_the_prior_and_repeat_others_by_its_target() -> None:
    """Equal, uncorrelated rows: the mismatch is what each dimension alone has above its target."""
    log_scale = torch.tensor([0.0, 0.1, 1.0], dtype=torch.float64)
    q = DiagonalGaussian(torch.zeros(5, 3, dtype=torch.float64), log_scale.expand(5, 3))
    alone = kl_divergence(Normal(torch.zeros(3), log_scale.exp()), Normal(torch.zeros(3), torch.ones(3)))
    assert float(alone[1]) < 0.05 < float(alone[2])
    assert batch_mismatch(q, 0.05, BATCH).item() == pytest.approx(float(alone[2]) - 0.05, abs=1e-12)


def test_rate_is_information_and_a_mismatch_that_the_gaussian_bounds_from_below() -> None:
    """In one dimension, by an integral: R = I + KL(q(z)‖p(z)) ≥ I + M."""
    q = DiagonalGaussian(
        torch.tensor([[-2.0], [0.5], [1.5]], dtype=torch.float64),
        torch.tensor([[-1.0], [-0.5], [-1.2]], dtype=torch.float64),
    )
    grid = torch.linspace(-12.0, 12.0, 200_001, dtype=torch.float64)
    each = q.log_prob(grid[:, None, None]).exp()  # [G, 3]
    aggregate, prior = each.mean(1), Normal(torch.zeros(()).double(), torch.ones(()).double()).log_prob(grid)
    mismatch = torch.trapezoid(aggregate * (aggregate.clamp(min=1e-300).log() - prior), grid)
    ratio = each.clamp(min=1e-300).log() - aggregate.clamp(min=1e-300).log()[:, None]
    information = torch.trapezoid((each * ratio).mean(1), grid)
    single = DiagonalGaussian(torch.zeros(1, 1).double(), torch.zeros(1, 1).double())
    assert rate(q, single).total.mean().item() == pytest.approx((information + mismatch).item(), abs=1e-8)
    gaussian = batch_mismatch(q.rows(torch.arange(3).repeat(2000)), 0.0, BATCH)
    assert 0.1 < gaussian.item() < mismatch.item() - 0.1


def test_below_the_target_only_the_mismatch_is_charged_and_moves() -> None:
    q = posteriors(spread=0.3)
    charge = rule(total_target=9.0)(rate(q, STANDARD), BATCH, 0)
    mismatch = batch_mismatch(q, 0.0, BATCH)
    assert charge.item() == pytest.approx(9.0 + mismatch.item(), abs=1e-12)
    for found, expected in zip(slopes(charge, q), slopes(mismatch, q), strict=True):
        assert torch.allclose(found, expected, atol=1e-12)
        assert float(found.abs().max()) > 1e-3


def test_above_the_target_the_rate_is_charged_and_nothing_else() -> None:
    q = posteriors(spread=2.0)
    found = rate(q, STANDARD)
    charge = rule(total_target=0.1)(found, BATCH, 0)
    assert charge.item() == pytest.approx(found.total.mean().item(), abs=1e-12)
    for slope, expected in zip(slopes(charge, q), slopes(rate(q, STANDARD).total.mean(), q), strict=True):
        assert torch.allclose(slope, expected, atol=1e-12)


@pytest.mark.parametrize("target", [0.1, 9.0])
def test_a_schedule_moves_from_free_rate_to_free_information(target: float) -> None:
    q, options = posteriors(), {"total_target": target, "target_per_dimension": 0.01}
    rising = rule(mismatch_weight={"name": "linear", "share": 1.0}, **options)
    values = [rising(rate(q, STANDARD), BATCH, step).item() for step in (0, 5, 10)]
    ends = [rule(mismatch_weight=weight, **options)(rate(q, STANDARD), BATCH, 0).item() for weight in (0.0, 1.0)]
    assert values == pytest.approx([ends[0], (ends[0] + ends[1]) / 2, ends[1]], abs=1e-12)
    assert (ends[1] - ends[0] > 0.1) == (target == 9.0)


def test_codes_that_repeat_each_other_are_no_information() -> None:
    """Two dimensions that say the same: the rate is twice that of one, and the second half of it is not free."""
    mean = torch.linspace(-1.5, 1.5, 5, dtype=torch.float64)[:, None].expand(5, 2)
    q = DiagonalGaussian(mean, torch.full((5, 2), -1.0, dtype=torch.float64))
    charge = rule(total_target=100.0)(rate(q, DiagonalGaussian(torch.zeros(1, 2), torch.zeros(1, 2))), BATCH, 0)
    alone = DiagonalGaussian(q.mean[:, :1], q.log_scale[:, :1])
    once = rule(total_target=100.0)(rate(alone, DiagonalGaussian(torch.zeros(1, 1), torch.zeros(1, 1))), BATCH, 0)
    assert charge.item() - 100.0 > 0.5 + 2.0 * (once.item() - 100.0)


def test_a_prior_that_is_no_standard_normal_is_measured_in_its_own_coordinates() -> None:
    q, target = posteriors(), rule(total_target=9.0)
    shift, scale = torch.tensor([[0.3, -0.2, 1.0]]).double(), torch.tensor([[0.5, -0.4, 0.1]]).double()
    moved = DiagonalGaussian(shift + q.mean * scale.exp(), q.log_scale + scale)
    there = target(rate(moved, DiagonalGaussian(shift, scale)), BATCH, 0)
    assert there.item() == pytest.approx(target(rate(q, STANDARD), BATCH, 0).item(), abs=1e-12)


def test_one_sentence_has_no_information() -> None:
    q = DiagonalGaussian(torch.ones(1, 3).double(), torch.full((1, 3), -0.7).double())
    one = random_batch([3])
    found = rate(q, STANDARD)
    charge = rule(total_target=2.0)(found, one, 0)
    assert charge.item() == pytest.approx(2.0 + found.total.item(), abs=1e-12)


def test_numbers_that_are_none_stay_none() -> None:
    """Training tells a loss that is no number from others; the decomposition of a matrix must not end it before."""
    q = DiagonalGaussian(torch.full((5, 3), float("nan")), torch.zeros(5, 3))
    assert torch.isnan(batch_mismatch(q, 0.1, BATCH))
    narrow = DiagonalGaussian(100.0 * torch.randn(5, 3), torch.full((5, 3), -12.0))
    assert torch.isfinite(batch_mismatch(narrow, 0.1, BATCH))
    assert batch_mismatch(narrow, 0.1, BATCH).dtype == torch.float32


@pytest.mark.parametrize("options", [{"mean": "sentence"}, {"on": "per_dimension", "total_target": None}], ids=str)
def test_information_of_single_sentences_or_dimensions_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ZentenceError, match="the mismatch is that of a batch"):
        rule(**{"total_target": 1.0, "target_per_dimension": 0.1, **options})


def test_a_sampled_rate_is_refused() -> None:
    with pytest.raises(ZentenceError, match="closed-form"):
        rule(total_target=1.0)(Rate(torch.ones(5), None), BATCH, 0)
    objective = build_objective(StageSettings(objective=Part.model_validate(OBJECTIVE)), 1.0, 1)
    assert objective.needs_closed_form == "charging the mismatch"
    assert objective.whole_batch == "free bits on the batch mean"


OBJECTIVE = {
    "name": "elbo",
    "rate_rule": {"name": "free_bits", "on": "total", "mean": "batch", "mismatch_weight": 1.0, "total_target": 1.0},
}
