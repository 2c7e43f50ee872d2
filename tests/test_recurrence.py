import pytest
import torch
from torch import nn

from zentence.machine import supports_bfloat16
from zentence.recurrence import all_states


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
