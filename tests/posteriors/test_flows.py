"""Flows: densities against the autograd Jacobian, masks, the inverse, invertibility, moments, noise, state."""

import pytest
import torch
from torch import Tensor, nn
from torch.func import jacrev, vmap

from zentence.checkpoint import load_into, tensors_of
from zentence.distributions import Flow
from zentence.errors import NotInvertibleError, ZentenceError
from zentence.evaluation.information import mutual_information
from zentence.noise import Noise
from zentence.posteriors import POSTERIORS
from zentence.posteriors.gaussian import GaussianPosterior
from zentence.posteriors.iaf import IafPosterior, InverseAutoregressiveFlow, Made, MaskedLinear
from zentence.posteriors.planar import PlanarPosterior, invertible_direction

FEATURES = 6
FLOWS = pytest.mark.parametrize("name", ["iaf", "planar"])


def posterior(name: str, spread: float = 0.7, size: int = 5, **options: object) -> nn.Module:
    chosen = POSTERIORS[name]
    given = {"size": size, **({"context_size": 13} if name == "iaf" else {}), **options}
    module = chosen(chosen.Options(**given), FEATURES).double()  # type: ignore[attr-defined, operator]
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64) * spread)
    return module


def features(rows: int = 4, seed: int = 0) -> Tensor:
    return torch.randn(rows, FEATURES, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def jacobians(q: Flow, start: Tensor) -> Tensor:
    """Return ∂z/∂z_0 [S, B, D, D] by autograd, each sentence and sample alone."""

    def of_one(row: int, point: Tensor) -> Tensor:
        alone = q.rows(torch.tensor([row]))
        return torch.func.jacrev(lambda x: alone.push(x[None, None])[0][0, 0])(point)

    return torch.stack([torch.stack([of_one(b, point) for b, point in enumerate(sample)]) for sample in start])


@FLOWS
@pytest.mark.parametrize("size", [1, 2, 5])
def test_log_density_agrees_with_the_autograd_jacobian(name: str, size: int) -> None:
    q = posterior(name, size=size)(features())
    noise = Noise(5, torch.arange(4))
    start, log_base = q.base.rsample_and_log_prob(3, noise)
    z, log_q = q.rsample_and_log_prob(3, noise)
    matrices = jacobians(q, start)
    assert z.shape == (3, 4, size) and log_q.shape == (3, 4)
    assert torch.allclose(z, q.push(start)[0], atol=1e-12)
    assert torch.allclose(log_q, log_base - torch.linalg.slogdet(matrices).logabsdet, atol=1e-10)
    assert (torch.linalg.det(matrices) > 0.0).all()


@pytest.mark.parametrize("width", [3, 13, 40])
def test_each_iaf_step_is_autoregressive_with_the_gates_on_its_diagonal(width: int) -> None:
    step = posterior("iaf", size=6, context_size=width).steps[0]  # type: ignore[index]
    assert isinstance(step, Made)
    generator = torch.Generator().manual_seed(0)
    z, context = (torch.randn(n, generator=generator, dtype=torch.float64) for n in (6, width))
    matrix = jacrev(lambda x: step(x, context)[0])(z).detach()
    assert torch.equal(matrix.triu(1), torch.zeros_like(matrix))
    assert torch.allclose(step(z, context)[1], matrix.diagonal().log().sum(), atol=1e-12)
    assert ((matrix.diagonal() > 0.0) & (matrix.diagonal() < 1.0)).all()
    if width >= 5:  # with as many units as degrees, every dimension depends on all before it
        assert (matrix.tril(-1).abs() > 0.0).sum() == 15


def test_iaf_step_is_the_papers_formula() -> None:
    step = posterior("iaf", size=4).steps[0]  # type: ignore[index]
    z, context = features(3)[:, :4], torch.randn(3, 13, generator=torch.Generator().manual_seed(1)).double()
    t1, t2, t3, t4 = (layer.weight * layer.mask for layer in (step.first, step.second, step.shift, step.gate))
    h0 = torch.tanh(z @ t1.t() + step.first.bias)
    h2 = torch.tanh((h0 + context) @ t2.t() + step.second.bias)
    u, s = h2 @ t3.t() + step.shift.bias, torch.sigmoid(h2 @ t4.t() + step.gate.bias)
    after, log_det = step(z, context)
    assert torch.allclose(after, (1.0 - s) * u + s * z, atol=1e-12)
    assert torch.allclose(log_det, s.log().sum(-1), atol=1e-12)
    degrees = 1 + torch.arange(13) * 3 // 13
    assert torch.equal(step.first.mask.bool(), degrees[:, None] >= torch.arange(1, 5))
    assert torch.equal(step.second.mask.bool(), degrees[:, None] >= degrees)
    assert torch.equal(step.shift.mask.bool(), torch.arange(1, 5)[:, None] > degrees)


@pytest.mark.parametrize(("size", "width"), [(1, 3), (2, 13), (7, 4), (5, 13)])
def test_iaf_inverse_recovers_the_start_and_its_density(size: int, width: int) -> None:
    q = posterior("iaf", size=size, context_size=width)(features())
    assert isinstance(q, InverseAutoregressiveFlow)
    noise = Noise(5, torch.arange(4))
    start, _ = q.base.rsample_and_log_prob(3, noise)
    z, log_q = q.rsample_and_log_prob(3, noise)
    assert torch.allclose(q.pull(z)[0], start, atol=1e-8)
    assert q.log_prob(z).shape == (3, 4)
    assert torch.allclose(q.log_prob(z), log_q, atol=1e-8)
    elsewhere = torch.randn(2, 4, size, generator=torch.Generator().manual_seed(9), dtype=torch.float64)
    back, log_det = q.pull(elsewhere)
    forward, expected = q.push(back)
    assert torch.allclose(forward, elsewhere, atol=1e-8)
    assert torch.allclose(log_det, expected, atol=1e-8)


def test_iaf_density_elsewhere_has_the_gradient_of_finite_differences() -> None:
    module = posterior("iaf", spread=0.4, size=3, steps=2, context_size=4)
    x, z = features(2).requires_grad_(), features(2, seed=7)[None, :, :3].clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda a, b: module(a).log_prob(b), (x, z))


def test_iaf_density_integrates_to_one() -> None:
    q = posterior("iaf", spread=0.5, size=2).requires_grad_(False)(features(1))
    axis = torch.linspace(-12.0, 12.0, 401, dtype=torch.float64)
    grid = q.center + torch.cartesian_prod(axis, axis)[:, None] * q.scale  # [G, 1, 2]
    mass = q.log_prob(grid).exp().sum() * (axis[1] - axis[0]) ** 2 * q.scale.prod()
    assert float(mass) == pytest.approx(1.0, abs=1e-6)


def test_planar_density_elsewhere_is_refused() -> None:
    q = posterior("planar")(features())
    with pytest.raises(NotInvertibleError, match="only at its own samples") as error:
        q.log_prob(torch.zeros(1, 4, 5, dtype=torch.float64))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("spread", [1e-30, 1e-3, 1.0, 30.0, 1e4])
def test_planar_stays_invertible_for_hostile_weights(spread: float) -> None:
    generator = torch.Generator().manual_seed(0)
    direction, weight = spread * torch.randn(2, 500, 5, generator=generator, dtype=torch.float64)
    direction[:100] = -weight[:100]  # as bad as can be
    bent, slope = invertible_direction(direction, weight)
    assert torch.isfinite(bent).all() and (slope > -1.0).all()
    assert torch.allclose((bent * weight).sum(-1), slope, rtol=1e-9, atol=1e-6)
    assert (bent.norm(dim=-1) <= 2.0 * direction.norm(dim=-1) * (1 + 1e-9)).all()
    # along w, the only direction in which a step could fold: strictly increasing
    unit = weight / weight.norm(dim=-1, keepdim=True)
    way = torch.linspace(-3.0, 3.0, 201, dtype=torch.float64)[:, None]
    moved = way + torch.tanh(way * weight.norm(dim=-1)) * (bent * unit).sum(-1)
    assert (moved.diff(dim=0) > 0.0).all()


def test_planar_direction_is_finite_where_the_weight_is_zero() -> None:
    direction, weight = features(2)[:, :3].requires_grad_(), torch.zeros(2, 3, dtype=torch.float64, requires_grad=True)
    bent, slope = invertible_direction(direction, weight)
    assert torch.equal(bent, direction) and torch.equal(slope, torch.zeros(2, dtype=torch.float64))
    bent.sum().backward()
    assert weight.grad is not None and torch.isfinite(weight.grad).all()


@FLOWS
def test_center_and_scale_agree_with_many_samples(name: str) -> None:
    module = posterior(name, spread=0.4, center_samples=4096)
    q = module(features())
    z, _ = q.rsample_and_log_prob(40_000, Noise(2, torch.arange(4)))
    assert q.center.shape == q.scale.shape == (4, 5)
    assert ((z.mean(0) - q.center).abs() < 0.06 * q.scale).all()
    assert torch.allclose(z.std(0), q.scale, rtol=0.06)


@FLOWS
def test_center_is_deterministic_cached_and_exact_where_the_sentence_does_not_matter(name: str) -> None:
    module = posterior(name)
    q = module(features())
    with torch.no_grad():
        assert q.center is q.center
        assert torch.equal(q.center, module(features()).center)
        constant = module(features(1).expand(3, -1))
        assert float(constant.center.var(0).max()) < 1e-28  # such dimensions never look active
        assert not q.center.requires_grad
    assert q.center.requires_grad  # although it was asked for without gradients before


@FLOWS
def test_gradient_reaches_every_parameter(name: str) -> None:
    module = posterior(name)
    z, log_q = module(features()).rsample_and_log_prob(2, Noise(1, torch.arange(4)))
    (z.square().sum() + log_q.sum()).backward()
    for label, parameter in module.named_parameters():
        assert parameter.grad is not None and float(parameter.grad.abs().sum()) > 0.0, label
    for layer in module.modules():
        if isinstance(layer, MaskedLinear):
            assert layer.weight.grad is not None
            assert not layer.weight.grad[layer.mask == 0].any()


@FLOWS
def test_batch_order_and_batch_size_do_not_matter(name: str) -> None:
    module = posterior(name).requires_grad_(False)
    x, order = features(), torch.tensor([2, 0, 3, 1])
    q, permuted = module(x), module(x[order])
    z, log_q = q.rsample_and_log_prob(6, Noise(1, torch.arange(4)))
    other_z, other_log_q = permuted.rsample_and_log_prob(6, Noise(1, order))
    assert torch.allclose(z[:, order], other_z, atol=1e-12)
    assert torch.allclose(log_q[:, order], other_log_q, atol=1e-12)
    assert torch.allclose(q.center[order], permuted.center, atol=1e-12)
    assert torch.allclose(q.scale[order], permuted.scale, atol=1e-12)
    alone, _ = module(x[2:3]).rsample_and_log_prob(2, Noise(1, torch.tensor([2])).from_sample(4))
    assert torch.allclose(alone[:, 0], z[4:, 2], atol=1e-12)


@FLOWS
def test_float32_agrees_with_float64(name: str) -> None:
    module = posterior(name, spread=0.4).requires_grad_(False)
    q, noise = module(features()), Noise(1, torch.arange(4))
    z, log_q = q.rsample_and_log_prob(3, noise)
    single_z, single_log_q = module.float()(features().float()).rsample_and_log_prob(3, noise)
    assert single_z.dtype == torch.float32 and z.dtype == torch.float64
    assert torch.allclose(z.float(), single_z, atol=1e-4)
    assert torch.allclose(log_q.float(), single_log_q, atol=1e-3)


@FLOWS
def test_half_precision_features_leave_the_density_in_full_precision(name: str) -> None:
    module = posterior(name).float()
    with torch.autocast("cpu", torch.bfloat16):
        z, log_q = module(features().bfloat16()).rsample_and_log_prob(1, Noise(1, torch.arange(4)))
    assert z.dtype == log_q.dtype == torch.float32


@FLOWS
def test_state_can_be_saved_and_loaded(name: str) -> None:
    module, other = posterior(name), posterior(name, spread=0.1)
    load_into(other, tensors_of(module), "test")
    assert torch.equal(other(features()).center, module(features()).center)
    assert not any("mask" in key for key in tensors_of(module))
    with pytest.raises(ZentenceError, match="does not fit"):
        load_into(posterior(name), tensors_of(GaussianPosterior(GaussianPosterior.Options(), FEATURES)), "test")


def test_reset_starts_the_gates_open() -> None:
    module = IafPosterior(IafPosterior.Options(size=3), FEATURES)
    z, _ = module(torch.zeros(1, FEATURES)).rsample_and_log_prob(2000, Noise(0, torch.zeros(1, dtype=torch.int64)))
    before = [p.detach().clone() for p in module.parameters()]
    assert 0.2 < z.std() < 1.0
    module.reset_parameters()
    assert any(not torch.equal(a, b) for a, b in zip(before, module.parameters(), strict=True))
    assert module.size == PlanarPosterior(PlanarPosterior.Options(size=3), FEATURES).size == 3


def test_mutual_information_works_with_iaf_and_is_refused_with_planar() -> None:
    x = features(12)
    q = posterior("iaf", spread=0.2, size=3).requires_grad_(False)(x)
    z, log_q = q.rsample_and_log_prob(1, Noise(0, torch.arange(12)))
    found = mutual_information(q, z[0], log_q[0])
    pairs = vmap(lambda row: q.log_prob(row.expand(1, 12, -1))[0])(z[0])
    expected = (log_q[0] - pairs.logsumexp(1)).mean() + torch.log(torch.tensor(12.0))
    assert found.value == pytest.approx(float(expected), abs=1e-6)
    assert 0.0 < found.value < found.ceiling
    planar = posterior("planar")(x)
    z, log_q = planar.rsample_and_log_prob(1, Noise(0, torch.arange(12)))
    with pytest.raises(NotInvertibleError):
        mutual_information(planar, z[0], log_q[0])
