import pytest
import torch
from torch import nn

from zentence.machine import supports_bfloat16
from zentence.recurrence import all_states, kept


def case(layers: int, dtype: torch.dtype = torch.float64) -> tuple[nn.GRU, list[torch.Tensor], torch.Tensor]:
    """Return a network, its inputs, first states and weights, and what the states' sum is weighted with."""
    torch.manual_seed(0)
    network = nn.GRU(5, 7, layers, batch_first=True).to(dtype)
    x = torch.randn(3, 6, 5, dtype=dtype, requires_grad=True)
    start = torch.randn(layers, 3, 7, dtype=dtype, requires_grad=True)
    return network, [x, start, *network.parameters()], torch.randn(3, 6, 7, dtype=dtype)


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("with_start", [True, False])
def test_states_and_gradients_are_torch_s_own(layers: int, with_start: bool) -> None:
    network, tensors, weights = case(layers)
    x, start = tensors[:2]
    wanted = tensors if with_start else [x, *tensors[2:]]
    found = all_states(network, x, start if with_start else None)
    expected = network(x, start if with_start else None)[0]
    assert torch.allclose(found, expected, atol=1e-12)
    pairs = zip(*(torch.autograd.grad((out * weights).sum(), wanted) for out in (found, expected)), strict=True)
    for one, other in pairs:
        assert torch.allclose(one, other, atol=1e-12)


def test_frozen_weights_and_inputs_get_no_gradient() -> None:
    network, (x, start, *parameters), weights = case(1)
    network.requires_grad_(False)
    (all_states(network, x.detach(), start) * weights).sum().backward()
    assert start.grad is not None and x.grad is None and all(p.grad is None for p in parameters)


@pytest.mark.skipif(not supports_bfloat16(torch.device("cpu")), reason="this machine cannot compute in bfloat16")
def test_bfloat16_is_near() -> None:
    network, tensors, weights = case(1, torch.float32)
    x, start = tensors[:2]
    expected = all_states(network, x, start)
    with torch.autocast("cpu", torch.bfloat16):
        found = all_states(network, x, start)
    assert found.dtype == torch.bfloat16 and torch.allclose(found.float(), expected, atol=0.03)
    gradients = (torch.autograd.grad((out.float() * weights).sum(), tensors) for out in (found, expected))
    for one, other in zip(*gradients, strict=True):
        assert one.dtype == torch.float32
        assert float(nn.functional.cosine_similarity(one.flatten(), other.flatten(), dim=0)) > 0.999


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_dropped_recurrent_weights_are_those_of_a_thinned_network(kind: type[nn.RNNBase]) -> None:
    """States are those of a network with these weights, and gradients reach only the weights that are left."""
    torch.manual_seed(0)
    network = kind(5, 7, 2, batch_first=True).double()
    x, weights = torch.randn(3, 6, 5, dtype=torch.float64), torch.randn(3, 6, 7, dtype=torch.float64)
    torch.manual_seed(1)
    found = all_states(network, x, None, 0.4)
    torch.manual_seed(1)
    masks = {f"weight_hh_l{layer}": kept(network.weight_hh_l0.shape, 0.4, x) for layer in range(2)}
    thinned = kind(5, 7, 2, batch_first=True).double()
    thinned.load_state_dict({name: p * masks.get(name, 1.0) for name, p in network.state_dict().items()})
    expected = thinned(x)[0]
    assert torch.allclose(found, expected, atol=1e-12)
    (found * weights).sum().backward()
    (expected * weights).sum().backward()
    for name, p in network.named_parameters():
        gradient = dict(thinned.named_parameters())[name].grad
        assert gradient is not None and p.grad is not None
        assert torch.allclose(p.grad, gradient * masks.get(name, 1.0), atol=1e-12)
    assert all(0.0 < float((mask == 0.0).double().mean()) < 0.7 for mask in masks.values())
    assert torch.equal(all_states(network, x), network(x)[0]) or kind is nn.GRU  # none dropped, by default


def test_masks_of_dropout_keep_the_mean() -> None:
    torch.manual_seed(0)
    mask = kept((1000, 1000), 0.3, torch.zeros(()))
    assert mask.unique().tolist() == pytest.approx([0.0, 1 / 0.7])
    assert float(mask.mean()) == pytest.approx(1.0, abs=0.005)
