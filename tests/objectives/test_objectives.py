"""Objectives against hand-worked numbers, against each other, and the parameters that each of their terms moves."""

import itertools
import math
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from zentence.build import build_objective
from zentence.corpora import collate
from zentence.distributions import DiagonalGaussian, Flow
from zentence.model import LatentLM
from zentence.noise import Noise
from zentence.objectives import OBJECTIVES, Objective
from zentence.parts import Part
from zentence.settings import StageSettings
from zentence.testing import random_batch, tiny_model
from zentence.types import Batch, Terms

BATCH = random_batch([3, 5, 2, 4])
NOISE = Noise(7, BATCH.index)
MIXTURE = ["prior.name=mixture", "prior.components=3"]
IAF = ["posterior.name=iaf", "posterior.context_size=8"]
PARTS = ("encoder", "posterior", "prior", "decoder")


def objective(name: str, **options: Any) -> Objective:
    return build_objective(StageSettings(objective=Part.model_validate({"name": name, **options})), 1.0, 1)


def gradients(made: Objective, model: LatentLM) -> dict[str, Tensor]:
    loss = made(model, BATCH, 0, NOISE).loss
    names, parameters = zip(*model.named_parameters(), strict=True)
    found = torch.autograd.grad(loss, parameters, allow_unused=True)
    return {
        name: torch.zeros_like(parameter) if gradient is None else gradient
        for name, parameter, gradient in zip(names, parameters, found, strict=True)
    }


def moved(gradient: dict[str, Tensor]) -> set[str]:
    """Return the parts of which every parameter has a gradient; none of the others' may have any."""
    parts = set()
    for part in PARTS:
        touched = [bool((g.abs() > 1e-12).any()) for name, g in gradient.items() if name.startswith(f"{part}.")]
        assert all(touched) or not any(touched), part
        if touched and all(touched):
            parts.add(part)
    return parts


class Known:
    """Stands in for a model: one code a sentence with a known density, and a known likelihood."""

    averaged_codes = 1

    def infer(self, source: Any) -> Any:
        drawn = torch.tensor([[[1.0]]], dtype=torch.float64), torch.tensor([[-2.0]], dtype=torch.float64)
        return SimpleNamespace(rsample_and_log_prob=lambda count, noise: drawn)

    def prior_density(self) -> DiagonalGaussian:
        return DiagonalGaussian(torch.zeros(1, 1).double(), torch.zeros(1, 1).double())

    def log_likelihood(self, z: Tensor, batch: Batch) -> Tensor:
        return torch.tensor([[-10.0]], dtype=torch.float64)


LOG_P = -0.5 - 0.5 * math.log(2.0 * math.pi)  # log N(1; 0, 1)
BY_HAND = {
    "mim": 10.0 - 0.5 * (-2.0 + LOG_P),
    "elbo": 10.0 + (-2.0 - LOG_P),
    "autoencoder": 10.0,
    "iwae": 10.0 + (-2.0 - LOG_P),
}


@pytest.mark.parametrize("name", BY_HAND)
def test_loss_is_the_one_worked_out_by_hand(name: str) -> None:
    """log p(x|z) = −10, log q(z|x) = −2, z = 1 under N(0, 1); A-MIM: Algorithm 1, line 3."""
    options = {"num_codes": 1} if name == "iwae" else {}
    terms = objective(name, **options)(Known(), random_batch([3]), 0, Noise(0, torch.arange(1)))
    assert float(terms.loss) == pytest.approx(BY_HAND[name], abs=1e-12)
    assert float(terms.values["distortion"]) == 10.0
    assert float(terms.values["rate"]) == pytest.approx(-2.0 - LOG_P, abs=1e-12)


def test_amim_follows_the_sample_that_it_scores() -> None:
    model = tiny_model(IAF + MIXTURE, spread=0.5)
    q, p = model.infer(BATCH.source), model.prior_density()
    z, log_q = q.rsample_and_log_prob(1, NOISE)
    expected = -model.log_likelihood(z, BATCH)[0] - 0.5 * (log_q + p.log_prob(z))[0]
    terms = objective("mim")(model, BATCH, 0, NOISE)
    assert float(terms.loss.detach()) == pytest.approx(float(expected.mean().detach()), abs=1e-12)
    assert objective("mim").selection == "loss"


@pytest.mark.parametrize("overrides", [IAF, MIXTURE, IAF + MIXTURE], ids=["iaf", "mixture", "both"])
def test_iwae_with_one_sample_is_the_elbo_with_a_sampled_rate(overrides: list[str]) -> None:
    model = tiny_model(overrides, spread=0.5)
    one, elbo = objective("iwae", num_codes=1), objective("elbo")
    a, b = (made(model, BATCH, 0, NOISE) for made in (one, elbo))
    assert float(a.loss.detach()) == pytest.approx(float(b.loss.detach()), abs=1e-12)
    for name in ("distortion", "rate"):
        assert torch.allclose(a.values[name], b.values[name], atol=1e-12)
    first, second = gradients(one, model), gradients(elbo, model)
    for name, gradient in first.items():
        assert torch.allclose(gradient, second[name], atol=1e-12), name


def test_more_samples_make_the_iwae_bound_tighter() -> None:
    """ELBO ≥ IW_4 ≥ IW_32 in expectation, as losses; the margins are several standard errors."""
    model = tiny_model(spread=0.9).requires_grad_(False)
    rows = [BATCH.target.ids[i, : BATCH.target.lengths[i] - 1].numpy() for i in range(4)]
    batch = collate(rows * 64, range(256))

    def mean(K: int) -> tuple[float, float]:
        made = objective("iwae", num_codes=K)
        losses = torch.stack([made(model, batch, 0, Noise(key, batch.index)).loss for key in range(8)])
        return float(losses.mean()), float(losses.std() / math.sqrt(len(losses)))

    found = [mean(K) for K in (1, 4, 32)]
    for (looser, error_1), (tighter, error_2) in itertools.pairwise(found):
        assert looser - tighter > 3.0 * math.hypot(error_1, error_2)


def test_several_codes_average_the_bound() -> None:
    model = tiny_model(IAF, spread=0.5)
    q = model.infer(BATCH.source)
    z, log_q = q.rsample_and_log_prob(3, NOISE)
    terms = objective("elbo", num_codes=3)(model, BATCH, 0, NOISE)
    distortion, rate = -model.log_likelihood(z, BATCH).mean(0), (log_q - model.prior_density().log_prob(z)).mean(0)
    assert torch.allclose(terms.values["distortion"], distortion, atol=1e-12)
    assert torch.allclose(terms.values["rate"], rate, atol=1e-12)
    assert float(terms.loss.detach()) == pytest.approx(float((distortion + rate).mean().detach()), abs=1e-12)


@pytest.mark.parametrize("samples", [1, 2, 50])
def test_samples_of_the_rate_are_apart_from_those_of_the_distortion(samples: int) -> None:
    model = tiny_model(MIXTURE, spread=0.5)
    few, many = (objective("elbo", num_codes=2, rate_samples=n)(model, BATCH, 0, NOISE) for n in (2, samples))
    z, log_q = model.infer(BATCH.source).rsample_and_log_prob(samples, NOISE)
    assert torch.equal(few.values["distortion"], many.values["distortion"])
    expected = (log_q - model.prior_density().log_prob(z)).mean(0)
    assert torch.allclose(many.values["rate"], expected, atol=1e-12)


def test_closed_form_rate_needs_no_samples() -> None:
    model = tiny_model(spread=0.5)
    a, b = (objective("elbo", rate_samples=n)(model, BATCH, 0, NOISE) for n in (None, 50))
    assert torch.equal(a.values["rate"], b.values["rate"])
    assert torch.equal(a.loss, b.loss)


def test_true_rate_is_reported_apart_from_the_charge() -> None:
    model = tiny_model(spread=0.5)
    rule = {"name": "free_bits", "total_target": 50.0}
    plain, free = objective("elbo")(model, BATCH, 0, NOISE), objective("elbo", rate_rule=rule)(model, BATCH, 0, NOISE)
    assert torch.equal(plain.values["rate"], free.values["rate"])
    assert plain.scalars["charge"] == pytest.approx(float(plain.values["rate"].mean()), abs=1e-9)
    assert free.scalars["charge"] == pytest.approx(50.0, abs=1e-9)
    assert float((free.loss - plain.loss).detach()) == pytest.approx(50.0 - plain.scalars["charge"], abs=1e-9)


def test_elbo_hands_each_update_on_to_its_rule() -> None:
    model = tiny_model(spread=0.5)
    rule = {"name": "minimum_rate", "target": 9.0, "optimizer": "sgd", "learning_rate": 0.1, "initial": 1.0}
    made = objective("elbo", rate_rule=rule)
    terms = made(model, BATCH, 0, NOISE)
    slack = 9.0 - float(terms.values["rate"].mean())
    assert terms.scalars["slack"] == pytest.approx(slack, abs=1e-9)
    made.after_update(terms)
    assert made(model, BATCH, 1, NOISE).scalars["multiplier"] == pytest.approx(1.0 + 0.1 * slack, abs=1e-9)


@pytest.mark.parametrize(
    ("name", "options", "selection"),
    [
        ("elbo", {"rate_rule": {"name": "plain", "weight": {"name": "linear"}}}, "elbo_nll"),
        ("elbo", {"rate_rule": {"name": "free_bits", "total_target": 1.0}}, "iw_nll"),
        ("elbo", {"rate_rule": {"name": "soft_free_bits", "target": 1.0}}, "iw_nll"),
        ("info_vae", {"rate_rule": {"name": "minimum_rate", "target": 1.0}}, "iw_nll"),
        ("info_vae", {}, "elbo_nll"),
        ("iwae", {}, "iw_nll"),
        ("mim", {}, "loss"),
        ("autoencoder", {}, "distortion"),
        ("likelihood", {}, "nll"),
    ],
)
def test_selection_is_never_an_annealed_or_targeted_bound(name: str, options: Any, selection: str) -> None:
    assert objective(name, **options).selection == selection


def difference(model: LatentLM, made: Objective, without: Objective) -> dict[str, Tensor]:
    """Return the gradient of the terms that one objective has beyond another."""
    first, second = gradients(made, model), gradients(without, model)
    return {name: first[name] - second[name] for name in first}


CODED = {"encoder", "posterior"}
TERMS = {
    "distortion": ("autoencoder", None, CODED | {"decoder"}, False),
    "rate": ("elbo", "autoencoder", CODED, True),
    "MMD": ("info_vae", "elbo", CODED, True),
    "A-MIM's densities": ("mim", "autoencoder", CODED, True),
    "IWAE": ("iwae", None, CODED | {"decoder"}, True),
}


@pytest.mark.parametrize("prior", ["standard_normal", "mixture"])
@pytest.mark.parametrize(("name", "without", "parts", "reaches_prior"), TERMS.values(), ids=TERMS.keys())
def test_each_term_moves_the_parts_it_should_and_no_others(
    name: str, without: str | None, parts: set[str], reaches_prior: bool, prior: str
) -> None:
    model = tiny_model(MIXTURE if prior == "mixture" else [], spread=0.5)
    made = objective(name)
    found = gradients(made, model) if without is None else difference(model, made, objective(without))
    expected = parts | ({"prior"} if prior == "mixture" and reaches_prior else set())
    assert moved(found) == expected


def test_likelihood_moves_the_whole_language_model() -> None:
    model = tiny_model(language_model=True, spread=0.5)
    assert moved(gradients(objective("likelihood"), model)) == {"decoder"}


@pytest.mark.parametrize("code", ["sample", "mean"])
def test_autoencoder_decodes_the_code_it_is_told(code: str) -> None:
    model = tiny_model(IAF, spread=0.5)
    q = model.infer(BATCH.source)
    z = q.rsample_and_log_prob(1, NOISE)[0] if code == "sample" else q.center[None]
    terms = objective("autoencoder", code=code)(model, BATCH, 0, NOISE)
    assert torch.allclose(terms.values["distortion"], -model.log_likelihood(z, BATCH)[0], atol=1e-12)


@pytest.mark.parametrize("name", [name for name in OBJECTIVES if name != "likelihood"])
def test_the_mean_of_a_flow_is_not_computed_for_the_log(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def center(self: Flow) -> Tensor:
        raise AssertionError("64 samples for a log line")

    gaussian, flow = tiny_model(spread=0.5), tiny_model(IAF, spread=0.5)
    monkeypatch.setattr(Flow, "center", property(center))
    assert objective(name)(flow, BATCH, 0, NOISE).center is None
    logged = objective(name)(gaussian, BATCH, 0, NOISE).center
    assert logged is not None and torch.equal(logged, gaussian.infer(BATCH.source).center)


@pytest.mark.parametrize("name", [name for name in OBJECTIVES if name != "likelihood"])
def test_what_is_logged_has_no_gradient_and_one_value_a_sentence(name: str) -> None:
    terms: Terms = objective(name)(tiny_model(MIXTURE, spread=0.5), BATCH, 0, NOISE)
    assert {"distortion", "rate"} <= set(terms.values)
    assert all(not value.requires_grad and value.shape == (4,) for value in terms.values.values())
    assert all(isinstance(value, float) for value in terms.scalars.values())
    assert terms.loss.requires_grad and terms.loss.shape == ()


def test_losses_do_not_depend_on_the_order_of_the_sentences() -> None:
    model = tiny_model(MIXTURE, spread=0.5)
    order = [2, 0, 3, 1]
    rows: Sequence[Tensor] = [BATCH.target.ids[i, : BATCH.target.lengths[i] - 1] for i in order]
    other = collate([row.numpy() for row in rows], order)
    for name in ("elbo", "iwae", "info_vae", "mim", "autoencoder"):
        made = objective(name)
        a = made(model, BATCH, 0, NOISE).loss
        b = made(model, other, 0, Noise(7, other.index)).loss
        assert float(a.detach()) == pytest.approx(float(b.detach()), abs=1e-10), name
