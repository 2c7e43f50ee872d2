"""Priors: densities that integrate to one, gradients, samples, keyed noise, state, and priors made after training."""

import math

import pytest
import torch
from torch import Tensor, nn

from zentence.build import build_model, complete, with_lengths
from zentence.checkpoint import load_into, tensors_of
from zentence.distributions import DiagonalGaussian, Mixture, as_components, log_softplus, rate
from zentence.errors import NotInvertibleError, ZentenceError
from zentence.evaluation.likelihood import bounds
from zentence.model import LatentLM
from zentence.noise import Noise
from zentence.priors import PRIORS
from zentence.priors.aggregate import FixedPrior, aggregate_posterior, fit_mixture
from zentence.priors.mixture import MixturePrior
from zentence.priors.vamp import VampPrior
from zentence.testing import random_batch, tiny_model
from zentence.testing.tiny import tiny_settings

LENGTHS = ["prior.length_mean=4.0", "prior.length_spread=1.5"]
MODELS = {
    "standard_normal": [],
    "mixture": ["prior.name=mixture", "prior.components=7"],
    "vamp": ["prior.name=vamp", "prior.components=5", *LENGTHS],
    "vamp of iaf": [
        "prior.name=vamp",
        "prior.components=5",
        *LENGTHS,
        "posterior.name=iaf",
        "posterior.context_size=6",
    ],
}
priors = pytest.mark.parametrize("overrides", MODELS.values(), ids=MODELS.keys())
mixtures = pytest.mark.parametrize("overrides", list(MODELS.values())[1:], ids=list(MODELS)[1:])
ONE = torch.zeros(1, dtype=torch.int64)


def model_of(overrides: list[str]) -> LatentLM:
    return tiny_model(overrides, spread=0.5)


def codes(samples: int = 3, rows: int = 4, seed: int = 0) -> Tensor:
    return torch.randn(samples, rows, 2, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_every_prior_of_the_table_is_covered() -> None:
    assert {name.split()[0] for name in MODELS} == set(PRIORS)


@priors
def test_density_integrates_to_one(overrides: list[str]) -> None:
    with torch.no_grad():
        p = model_of(overrides).prior_density()
        axis = torch.linspace(-9.0, 9.0, 451, dtype=torch.float64)
        grid = p.center + torch.cartesian_prod(axis, axis)[:, None] * p.scale  # [G, 1, 2]
        mass = p.log_prob(grid).exp().sum() * (axis[1] - axis[0]) ** 2 * p.scale.prod()
    assert float(mass) == pytest.approx(1.0, abs=1e-4)


@priors
def test_density_broadcasts_over_samples_and_sentences(overrides: list[str]) -> None:
    p, z = model_of(overrides).prior_density(), codes()
    assert p.center.shape == p.scale.shape == (1, 2)
    log_p = p.log_prob(z)
    assert log_p.shape == (3, 4) and log_p.dtype == torch.float64
    alone = torch.stack([torch.stack([p.log_prob(code[None, None])[0, 0] for code in row]) for row in z])
    assert torch.allclose(log_p, alone, atol=1e-12)
    assert torch.allclose(p.log_prob(z[:, [2, 0, 3, 1]]), log_p[:, [2, 0, 3, 1]], atol=1e-12)


def test_mixture_is_the_uniform_mean_of_its_gaussians() -> None:
    prior = model_of(MODELS["mixture"]).prior
    assert isinstance(prior, MixturePrior)
    z, scales = codes(), nn.functional.softplus(prior.raw_scales)
    expected = torch.zeros(3, 4, dtype=torch.float64)
    for mean, scale in zip(prior.means, scales, strict=True):
        expected += torch.distributions.Normal(mean, scale).log_prob(z).sum(-1).exp() / 7
    assert torch.allclose(prior().log_prob(z), expected.log(), atol=1e-10)


def test_vamp_is_the_uniform_mean_of_the_posteriors_of_its_pseudo_inputs() -> None:
    for name in ("vamp", "vamp of iaf"):
        model, z = model_of(MODELS[name]), codes()
        each = []
        for sequence, length in zip(model.prior.pseudo_inputs, model.prior.lengths, strict=True):
            features = model.encoder.forward_embedded(sequence[None, :length], length[None])
            each.append(model.posterior(features).log_prob(z.reshape(-1, 1, 2)).view(3, 4))
        expected = torch.stack(each).logsumexp(0) - math.log(5)
        assert torch.allclose(model.prior_density().log_prob(z), expected, atol=1e-9)


@pytest.mark.parametrize("activations", [1, 40, 10**6])
def test_chunks_do_not_change_the_density(activations: int, monkeypatch: pytest.MonkeyPatch) -> None:
    p, z = model_of(MODELS["vamp of iaf"]).prior_density(), codes(5, 7)
    expected = p.log_prob(z)
    monkeypatch.setattr("zentence.distributions.ACTIVATIONS", activations)
    assert torch.allclose(p.log_prob(z), expected, atol=1e-12)
    fresh = model_of(MODELS["vamp of iaf"]).prior_density()
    assert torch.allclose(fresh.center, p.center, atol=1e-12)


def test_mixture_density_is_right_in_float32_where_scales_are_small() -> None:
    mean = 3.0 + 0.01 * codes(1, 6)[0]
    log_scale = torch.full_like(mean, math.log(1e-3))
    z = mean[None] + 1e-3 * codes(2, 6, seed=1)
    exact = Mixture(DiagonalGaussian(mean.float().double(), log_scale)).log_prob(z.float().double())
    single = Mixture(DiagonalGaussian(mean.float(), log_scale.float())).log_prob(z.float())
    assert single.dtype == torch.float32
    assert torch.allclose(single.double(), exact, atol=1e-3)


@mixtures
def test_gradient_reaches_the_prior_and_what_it_is_made_of(overrides: list[str]) -> None:
    model = model_of(overrides)
    model.prior_density().log_prob(codes()).sum().backward()
    moved = {name for name, p in model.named_parameters() if p.grad is not None and float(p.grad.abs().sum()) > 0.0}
    if "prior.name=mixture" in overrides:
        assert moved == {"prior.means", "prior.raw_scales"}
        return
    assert "prior.pseudo_inputs" in moved and not any(name.startswith("decoder") for name in moved)
    recurrences = {name for name, _ in model.named_parameters() if name.startswith("encoder.recurrences")}
    heads = {name for name, _ in model.named_parameters() if name.startswith("posterior")}
    assert recurrences | heads <= moved
    gradient = model.prior.pseudo_inputs.grad
    for row, length in zip(gradient, model.prior.lengths.tolist(), strict=True):
        assert row[:length].abs().sum(1).min() > 0.0 and not row[length:].any()  # padding takes no part


@priors
def test_samples_agree_with_the_density(overrides: list[str]) -> None:
    with torch.no_grad():
        p = model_of(overrides).prior_density()
        z, log_p = p.rsample_and_log_prob(40_000, Noise(1, ONE))
        assert z.shape == (40_000, 1, 2) and torch.allclose(log_p, p.log_prob(z), atol=1e-8)
        # shares of a 5 × 5 partition of the plane, against the density's integral over each cell
        edges = p.center[0, :, None] + torch.linspace(-1.5, 1.5, 4, dtype=torch.float64) * p.scale[0, :, None]
        axis = torch.linspace(-9.0, 9.0, 451, dtype=torch.float64) + 1e-4
        grid = p.center + torch.cartesian_prod(axis, axis)[:, None] * p.scale
        mass = p.log_prob(grid).exp()[:, 0] * (axis[1] - axis[0]) ** 2 * p.scale.prod()

        def cells(points: Tensor) -> Tensor:
            first, second = (torch.searchsorted(edges[d], points[:, 0, d].contiguous()) for d in range(2))
            return 5 * first + second

        expected = torch.zeros(25, dtype=torch.float64).index_add(0, cells(grid), mass)
        found = torch.bincount(cells(z), minlength=25) / 40_000
        # 5 standard errors, and what a grid of that step misses along the edges
        assert ((found - expected).abs() < 5.0 * (expected / 40_000).sqrt() + 0.01).all()
        # flows know their moments from 64 samples only
        assert ((z.mean(0) - p.center).abs() < 0.15 * p.scale).all()
        assert torch.allclose(z.std(0), p.scale, rtol=0.15)


def test_mixture_draws_components_by_their_weights() -> None:
    components = DiagonalGaussian(torch.tensor([[-10.0], [0.0], [10.0]]), torch.zeros(3, 1))
    p = Mixture(components, torch.tensor([0.2, 0.7, 0.1]).log())
    for noise in (Noise(1, ONE), None):
        torch.manual_seed(0)
        z, log_p = p.rsample_and_log_prob(20_000, noise)
        assert z.shape == (20_000, 1, 1) and log_p.shape == (20_000, 1)
        shares = torch.tensor([float((z < -5).float().mean()), float((z > 5).float().mean())])
        assert torch.allclose(shares, torch.tensor([0.2, 0.1]), atol=0.015)
    assert p.center.item() == pytest.approx(-1.0)
    assert p.scale.item() == pytest.approx(math.sqrt(1.0 + 0.2 * 81 + 0.7 * 1 + 0.1 * 121), rel=1e-5)


@priors
def test_noise_keyed_by_index_gives_the_same_codes_anywhere(overrides: list[str]) -> None:
    p = model_of(overrides).prior_density()
    z, log_p = p.rsample_and_log_prob(6, Noise(4, torch.arange(5)))
    assert z.shape == (6, 5, 2) and log_p.shape == (6, 5)
    order = torch.tensor([3, 1, 4])
    part, _ = p.rsample_and_log_prob(2, Noise(4, order).from_sample(3))
    assert torch.allclose(part, z[3:5, order], atol=1e-12)
    assert len(torch.unique(z.detach().reshape(-1, 2), dim=0)) == 30
    other, _ = p.rsample_and_log_prob(6, Noise(5, torch.arange(5)))
    assert not torch.isclose(other, z).any()


def test_sampling_has_gradients_on_the_chosen_component() -> None:
    prior = MixturePrior(MixturePrior.Options(components=3), 2)
    z, _ = prior().rsample_and_log_prob(50, Noise(0, ONE))
    z.sum().backward()
    assert prior.means.grad is not None
    assert torch.equal(prior.means.grad.sum(0), torch.full((2,), 50.0))


@mixtures
def test_monte_carlo_rate_and_bounds_work_with_every_prior(overrides: list[str]) -> None:
    model, batch = model_of(overrides), random_batch([3, 5])
    q, p = model.infer(batch.source), model.prior_density()
    drawn = q.rsample_and_log_prob(2000, Noise(0, batch.index))
    found = rate(q, p, drawn)
    assert found.per_dimension is None and found.total.shape == (2,) and (found.total > -0.1).all()
    result = bounds(model, batch, 20, Noise(0, batch.index))
    assert torch.isfinite(result.importance_weighted).all()


@priors
def test_state_can_be_saved_and_loaded(overrides: list[str]) -> None:
    model = model_of(overrides)
    other = build_model(tiny_settings([*overrides, "training.seed=9"]), 11).double().eval()
    load_into(other, tensors_of(model), "test")
    assert torch.equal(other.prior_density().log_prob(codes()), model.prior_density().log_prob(codes()))


def test_initial_values() -> None:
    prior = MixturePrior(MixturePrior.Options(components=400, initial_spread=0.5, initial_scale=0.3), 3)
    p = prior()
    assert isinstance(p.components, DiagonalGaussian)
    assert torch.allclose(p.components.scale, torch.tensor(0.3))
    assert 0.4 < prior.means.std() < 0.6
    assert torch.allclose(log_softplus(torch.tensor([-50.0, 0.0])), torch.tensor([-50.0, math.log(math.log(2.0))]))


def test_vamp_draws_lengths_once_from_the_corpus() -> None:
    torch.manual_seed(0)
    prior = VampPrior(VampPrior.Options(components=500, length_mean=6.0, length_spread=4.0), 2, 3)
    lengths = prior.lengths.double()
    assert prior.pseudo_inputs.shape == (500, 18, 3)
    assert int(lengths.min()) >= 1 and int(lengths.max()) <= 18
    assert 5.5 < lengths.mean() < 6.8 and 3.0 < lengths.std() < 4.5
    before = prior.pseudo_inputs.detach().clone()
    prior.reset_parameters()
    assert torch.equal(prior.lengths.double(), lengths) and not torch.equal(before, prior.pseudo_inputs)


def test_vamp_takes_lengths_from_the_training_text_where_none_are_given() -> None:
    settings = tiny_settings(["prior.name=vamp", "prior.length_spread=0.5", "prior.components=3"])
    filled = complete(with_lengths(settings, 7.0, 2.0))
    assert filled.prior.options["length_mean"] == 7.0 and filled.prior.options["length_spread"] == 0.5
    prior = build_model(filled, 11).prior
    assert prior.pseudo_inputs.shape == (3, 9, 5)
    assert with_lengths(tiny_settings(), 7.0, 2.0) == tiny_settings()
    language_model = tiny_settings(language_model=True)
    assert with_lengths(language_model, 7.0, 2.0) == language_model


def test_vamp_reads_the_decoders_embedding_width_where_it_is_shared() -> None:
    model = tiny_model([*MODELS["vamp"], "encoder.embedding=decoder", "decoder.embedding_size=4"])
    assert model.prior.pseudo_inputs.shape[2] == 4
    assert model.prior_density().log_prob(codes()).shape == (3, 4)


def test_vamp_is_refused_with_planar_before_anything_is_built() -> None:
    with pytest.raises(ZentenceError, match="Prior 'vamp' needs q") as error:
        tiny_settings(["prior.name=vamp", "posterior.name=planar"])
    assert "\n" not in str(error.value)
    assert torch.isfinite(model_of(["prior.name=mixture", "posterior.name=planar"]).prior_density().center).all()


@pytest.mark.parametrize("posterior", ["gaussian", "iaf"])
def test_aggregate_posterior_can_replace_the_prior(posterior: str) -> None:
    model, training, batch = model_of([f"posterior.name={posterior}"]), random_batch([3, 5, 2, 4]), random_batch([3, 4])
    with torch.no_grad():
        q = model.infer(training.source)
        density, z = aggregate_posterior(q), codes()
        expected = torch.stack([q.rows(torch.tensor([n])).log_prob(z) for n in range(4)]).logsumexp(0) - math.log(4)
        assert torch.allclose(density.log_prob(z), expected, atol=1e-10)
        assert torch.allclose(density.center, q.center.mean(0, keepdim=True))
    before = bounds(model, batch, 50, Noise(0, batch.index)).rate
    model.prior = FixedPrior(density)
    after = bounds(model, batch, 50, Noise(0, batch.index)).rate
    assert torch.isfinite(after).all() and not torch.allclose(before, after)
    assert model.prior_density().rsample_and_log_prob(3, Noise(0, ONE))[0].shape == (3, 1, 2)


def test_aggregate_of_planar_posteriors_has_no_density() -> None:
    q = model_of(["posterior.name=planar"]).infer(random_batch([3, 5]).source)
    with pytest.raises(NotInvertibleError):
        aggregate_posterior(q).log_prob(codes())


def test_aggregate_posterior_is_the_best_prior_for_its_sentences() -> None:
    """Its rate is the mutual information, below the rate against any other prior (paper 2, §5)."""
    model, training = model_of([]), random_batch([3, 5, 2, 4])
    with torch.no_grad():
        q = model.infer(training.source)
        drawn = q.rsample_and_log_prob(4000, Noise(0, training.index))
        best = rate(q, aggregate_posterior(q), drawn).total.mean()
        assert best < rate(q, model.prior_density(), drawn).total.mean()
        assert 0.0 <= best <= math.log(4)


def test_fitted_mixture_recovers_two_clusters() -> None:
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(3000, 2, generator=generator)
    data = torch.where(torch.arange(3000)[:, None] < 900, torch.tensor([5.0, -2.0]), torch.tensor([-4.0, 1.0]))
    data = data + noise * torch.tensor([0.5, 1.5])
    density = fit_mixture(data, 2, seed=1)
    assert isinstance(density.components, DiagonalGaussian) and density.log_weights is not None
    order = density.components.mean[:, 0].argsort()
    assert density.components.mean.dtype == torch.float32
    expected = torch.tensor([[-4.0, 1.0], [5.0, -2.0]])
    assert torch.allclose(density.components.mean[order], expected, atol=0.15)
    assert torch.allclose(density.components.scale[order], torch.tensor([0.5, 1.5]).expand(2, 2), rtol=0.08)
    assert torch.allclose(density.log_weights.exp()[order], torch.tensor([0.7, 0.3]), atol=0.01)
    again = fit_mixture(data, 2, seed=1)
    assert torch.equal(again.log_prob(data[:, None]), density.log_prob(data[:, None]))


def test_fitted_mixture_improves_with_components_and_survives_repeated_codes() -> None:
    data = codes(1, 400)[0]
    likelihoods = [fit_mixture(data, count).log_prob(data[:, None]).mean() for count in (1, 4, 16)]
    assert likelihoods[0] < likelihoods[1] < likelihoods[2]
    single = fit_mixture(data, 1)
    assert torch.allclose(single.center, data.mean(0, keepdim=True))
    assert torch.allclose(single.scale, data.std(0, correction=0)[None])
    same = fit_mixture(torch.ones(10, 2), 3)
    assert torch.isfinite(same.log_prob(torch.zeros(1, 1, 2))).all()
    with pytest.raises(ZentenceError, match="Cannot fit 11 components"):
        fit_mixture(torch.ones(10, 2), 11)
    with pytest.raises(ZentenceError, match="finite"):
        fit_mixture(torch.full((10, 2), math.nan), 2)


def test_fixed_prior_follows_precision_and_can_be_saved() -> None:
    density = fit_mixture(codes(1, 50)[0], 3)
    prior = FixedPrior(density)
    assert torch.equal(prior().log_prob(codes()), density.log_prob(codes()))
    assert prior.float()().log_prob(codes().float()).dtype == torch.float32
    other = FixedPrior(fit_mixture(codes(1, 50, seed=5)[0], 3))
    load_into(other, tensors_of(FixedPrior(density)), "test")
    assert torch.equal(other().log_prob(codes()), density.log_prob(codes()))
    normal = DiagonalGaussian(torch.zeros(1, 2), torch.zeros(1, 2))
    assert FixedPrior(normal)() is normal


def test_a_distribution_without_rows_is_refused() -> None:
    class Opaque:
        center = scale = torch.zeros(1, 2)

        def rsample_and_log_prob(self, num_samples: int, noise: Noise | None = None) -> tuple[Tensor, Tensor]:
            raise NotImplementedError

        def log_prob(self, z: Tensor) -> Tensor:
            raise NotImplementedError

    with pytest.raises(ZentenceError, match="Opaque cannot give the components"):
        as_components(Opaque())
