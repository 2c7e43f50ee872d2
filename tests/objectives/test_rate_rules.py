"""Rate rules against hand-worked numbers: charges, gradients on both sides of each threshold, and state."""

from typing import Any

import pytest
import torch
from torch import Tensor

from zentence.checkpoint import load_into, tensors_of
from zentence.distributions import Rate
from zentence.errors import ZentenceError
from zentence.objectives import RATE_RULES
from zentence.objectives.rate_rules import MinimumRate, RateRule, SoftFreeBits
from zentence.parts import parse_options
from zentence.schedules import SCHEDULES
from zentence.testing import random_batch

RATES = [[0.5, 2.5], [1.0, 0.0]]  # two sentences, two dimensions: totals 3 and 1, mean 2; mean by dimension 0.75, 1.25
BATCH = random_batch([2, 3])
LINEAR = {"name": "linear", "start": 0.0, "end": 1.0}


def rule(name: str, steps: int = 100, **options: Any) -> RateRule:
    chosen = RATE_RULES[name]
    return chosen(parse_options("rule", chosen.Options, options), 10.0, steps)


def charge(made: RateRule, rates: Any = RATES, step: int = 0) -> tuple[float, Tensor]:
    """Return the charge, and its gradient with respect to the rate of each sentence and dimension."""
    values = torch.tensor(rates, dtype=torch.float64, requires_grad=True)
    found = made(Rate(values.sum(1), values), BATCH, step)
    (gradient,) = torch.autograd.grad(found, values)
    return float(found.detach()), gradient


def test_plain_charges_the_weighted_mean() -> None:
    value, gradient = charge(rule("plain", weight=0.25))
    assert value == pytest.approx(0.25 * 2.0, abs=1e-12)
    assert torch.equal(gradient, torch.full((2, 2), 0.125, dtype=torch.float64))


@pytest.mark.parametrize(("step", "beta"), [(0, 0.0), (30, 0.3), (100, 1.0), (1000, 1.0)])
@pytest.mark.parametrize("name", ["plain", "free_bits"])
def test_a_schedule_multiplies_the_whole_charge(name: str, step: int, beta: float) -> None:
    options: dict[str, Any] = {} if name == "plain" else {"total_target": 2.0}
    full = charge(rule(name, **options))
    value, gradient = charge(made := rule(name, weight=LINEAR, **options), step=step)
    assert value == pytest.approx(beta * full[0], abs=1e-12)
    assert torch.allclose(gradient, beta * full[1], atol=1e-12)
    assert made.scalars(step) == {"beta": pytest.approx(beta)}


@pytest.mark.parametrize("schedule", [0.5, *({"name": name} for name in SCHEDULES)], ids=str)
def test_every_schedule_can_be_a_weight(schedule: Any) -> None:
    made = rule("plain", weight=schedule)
    values = [charge(made, step=step)[0] for step in range(0, 120, 10)]
    assert values == pytest.approx([2.0 * made.scalars(step)["beta"] for step in range(0, 120, 10)], abs=1e-12)
    assert max(values) > 0.0


def both(**options: Any) -> dict[str, Any]:
    return {"on": "both", **options}


FREE_BITS = {
    # hinge on: (options, charge, gradient by sentence and dimension, times 2 = the batch size)
    "sentence total": ({"on": "total", "total_target": 1.5}, (3.0 + 1.5) / 2, [[1, 1], [0, 0]]),
    "batch total, above": ({"on": "total", "mean": "batch", "total_target": 1.5}, 2.0, [[1, 1], [1, 1]]),
    "batch total, below": ({"on": "total", "mean": "batch", "total_target": 2.5}, 2.5, [[0, 0], [0, 0]]),
    # a total of 1.6 over two dimensions: 0.8 each
    "sentence, divided": ({"total_target": 1.6}, (0.8 + 2.5 + 1.0 + 0.8) / 2, [[0, 1], [1, 0]]),
    "sentence, undivided": ({"target_per_dimension": 0.8}, (0.8 + 2.5 + 1.0 + 0.8) / 2, [[0, 1], [1, 0]]),
    "batch, divided": ({"mean": "batch", "total_target": 2.0}, 1.0 + 1.25, [[0, 1], [0, 1]]),
    "batch, undivided": ({"mean": "batch", "target_per_dimension": 2.0}, 4.0, [[0, 0], [0, 0]]),
    # first each dimension's hinge, then that of their sum
    "sentence, both": (both(total_target=3.2, target_per_dimension=0.8), (3.3 + 3.2) / 2, [[0, 1], [0, 0]]),
    "batch, both, above": (both(mean="batch", total_target=2.0, target_per_dimension=1.0), 2.25, [[0, 1], [0, 1]]),
    "batch, both, below": (both(mean="batch", total_target=2.5, target_per_dimension=0.1), 2.5, [[0, 0], [0, 0]]),
}


@pytest.mark.parametrize(("options", "value", "gradient"), FREE_BITS.values(), ids=FREE_BITS.keys())
def test_free_bits_charge_at_least_the_target(options: Any, value: float, gradient: Any) -> None:
    """Below its threshold a hinge charges the target, not nothing, and has no gradient; above, that of the rate."""
    found, slope = charge(rule("free_bits", **options))
    assert found == pytest.approx(value, abs=1e-12)
    assert torch.equal(slope, torch.tensor(gradient, dtype=torch.float64) / 2)


def test_free_bits_per_dimension_refuse_a_sampled_rate() -> None:
    with pytest.raises(ZentenceError, match="closed-form"):
        rule("free_bits", total_target=1.0)(Rate(torch.ones(2), None), BATCH, 0)


@pytest.mark.parametrize(
    ("rate", "additive", "multiplicative"),
    [(3.0, 0.6, 0.55), (2.5, 0.5, 0.5), (2.2, 0.5, 0.5), (2.0, 0.5, 0.5), (1.9, 0.4, 0.45)],
)
def test_soft_free_bits_move_the_weight_outside_the_corridor(
    rate: float, additive: float, multiplicative: float
) -> None:
    """r = 2, corridor [1, 1.25] r, α = 0.1, β = 0.5: Eq. 26, and β · (1 ± α)."""
    for form, expected in (("additive", additive), ("multiplicative", multiplicative)):
        made = rule("soft_free_bits", target=2.0, form=form, step=0.1, lower=1.0, upper=1.25, initial=0.5)
        value, gradient = charge(made, [[rate, 0.0], [rate, 0.0]])
        assert value == pytest.approx(0.5 * rate, abs=1e-12)
        assert torch.equal(gradient, torch.full((2, 2), 0.25, dtype=torch.float64))
        made.after_update()
        assert made.scalars(0) == {"beta": pytest.approx(expected, abs=1e-12)}


def test_soft_free_bits_stay_between_zero_and_one() -> None:
    made = rule("soft_free_bits", target=2.0, step=0.4, initial=0.9)
    seen = []
    for rate in [9.0, 9.0, 0.0, 0.0, 0.0, 0.0]:
        charge(made, [[rate, 0.0]])
        made.after_update()
        seen.append(made.scalars(0)["beta"])
    assert seen == pytest.approx([1.0, 1.0, 0.6, 0.2, 0.0, 0.0], abs=1e-12)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("soft_free_bits", {"target": 2.0, "lower": 1.2, "upper": 1.1}, "lower must not exceed upper"),
        ("soft_free_bits", {"target": 2.0, "form": "multiplicative", "initial": 0.0}, "does not move"),
        ("soft_free_bits", {}, "'rule.target' is missing"),
        ("minimum_rate", {"target": 2.0, "initial": 3.0, "cap": 2.0}, "must not exceed the cap"),
        ("minimum_rate", {"target": 0.0}, "greater than 0"),
        ("free_bits", {"on": "total", "target_per_dimension": 1.0}, "need total_target"),
    ],
)
def test_senseless_options_are_refused_in_one_line(name: str, options: Any, message: str) -> None:
    with pytest.raises(ZentenceError, match=message) as refused:
        rule(name, **options)
    assert "\n" not in str(refused.value)


def test_minimum_rate_charges_the_lagrangian() -> None:
    """R = 2, r = 5, u = 1.5: 2 + 1.5 · 3 = 6.5; the rate's gradient has weight 1 − u = −0.5 (Eq. 25)."""
    made = rule("minimum_rate", target=5.0, initial=1.5)
    value, gradient = charge(made)
    assert value == pytest.approx(6.5, abs=1e-12)
    assert torch.equal(gradient, torch.full((2, 2), -0.25, dtype=torch.float64))
    assert made.scalars(0) == {"beta": -0.5, "multiplier": 1.5, "slack": pytest.approx(3.0)}


def moves(made: RateRule, rates: list[float]) -> list[float]:
    """Return the multiplier after each of a series of batches with these rates."""
    seen = []
    for rate in rates:
        charge(made, [[rate, 0.0]] * 2)
        made.after_update()
        seen.append(made.scalars(0)["multiplier"])
    return seen


def test_multiplier_rises_while_the_rate_is_too_small_and_falls_to_zero_otherwise() -> None:
    """u ← max(0, u + ρ (r − R)) with r = 2, ρ = 0.1: not as Eq. 27 is printed."""
    made = rule("minimum_rate", target=2.0, optimizer="sgd", learning_rate=0.1, initial=0.5)
    assert moves(made, [0.0, 1.0, 2.0, 3.0, 9.0, 4.0, 0.0]) == pytest.approx(
        [0.7, 0.8, 0.8, 0.7, 0.0, 0.0, 0.2], abs=1e-12
    )


def test_multiplier_stays_below_its_cap() -> None:
    made = rule("minimum_rate", target=2.0, optimizer="sgd", learning_rate=0.5, initial=0.5, cap=1.2)
    assert moves(made, [0.0, 0.0, 1.8]) == pytest.approx([1.2, 1.2, 1.2], abs=1e-12)


def test_a_huge_rate_moves_the_multiplier_no_more_than_told() -> None:
    made = rule("minimum_rate", target=2.0, optimizer="sgd", learning_rate=0.1, initial=0.9, largest_slack=2.0)
    assert moves(made, [500.0, 0.0, 3.0]) == pytest.approx([0.7, 0.9, 0.8], abs=1e-12)
    charge(made, [[500.0, 0.0]])
    assert made.scalars(0)["slack"] == -248.0  # of the log: as it is


def test_sentences_of_small_batches_move_the_multiplier_no_more_than_others() -> None:
    made = rule("minimum_rate", target=2.0, optimizer="sgd", learning_rate=0.1, initial=0.5)
    made(Rate(torch.ones(2), None), BATCH._replace(weight=0.5), 0)
    made.after_update()
    assert made.scalars(0)["multiplier"] == pytest.approx(0.5 + 0.1 * 0.5 * 1.0)


def test_rmsprop_of_the_multiplier_is_torchs() -> None:
    rates = [0.5, 3.0, 1.0, 0.2, 6.0, 2.5, 1.9]
    made = rule("minimum_rate", target=2.0, learning_rate=0.01, initial=1.0)
    parameter = torch.nn.Parameter(torch.tensor(1.0, dtype=torch.float64))
    optimizer = torch.optim.RMSprop([parameter], lr=0.01)
    expected = []
    for rate in rates:
        parameter.grad = torch.tensor(rate - 2.0, dtype=torch.float64)  # of −u (r − R)
        optimizer.step()
        expected.append(float(parameter.detach()))
    assert moves(made, rates) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("name", ["soft_free_bits", "minimum_rate"])
def test_state_survives_a_round_trip_and_no_optimiser_sees_it(name: str) -> None:
    before, after = (rule(name, target=2.0) for _ in range(2))
    for rate in (0.5, 3.0, 1.0):
        charge(before, [[rate, 0.0]])
        before.after_update()
    load_into(after, tensors_of(before), "test")
    assert list(before.parameters()) == []
    for made in (before, after):
        charge(made, [[0.3, 0.0]])
        made.after_update()
    assert before.scalars(0) == after.scalars(0)
    assert tensors_of(before) == tensors_of(after)
    assert before.scalars(0) != rule(name, target=2.0).scalars(0)


def test_rules_are_float64_inside_and_keep_the_loss_in_its_own_precision() -> None:
    for made in (rule("soft_free_bits", target=2.0), rule("minimum_rate", target=2.0)):
        assert isinstance(made, SoftFreeBits | MinimumRate)
        assert made(Rate(torch.ones(2), None), BATCH, 0).dtype == torch.float32
        assert {buffer.dtype for buffer in made.buffers()} == {torch.float64}
