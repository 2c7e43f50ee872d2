import pytest
import torch

from zentence.decoders import readout
from zentence.decoders.readout import word_log_prob
from zentence.machine import supports_bfloat16


def plain(hidden: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, target: torch.Tensor) -> torch.Tensor:
    scores = torch.nn.functional.linear(hidden, weight, bias)
    return torch.log_softmax(scores, -1).gather(1, target[:, None]).squeeze(1)


def inputs(with_bias: bool, size: int = 23, vocabulary: int = 17) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = [(size, 6), (vocabulary, 6), (vocabulary,)]
    tensors = [torch.randn(s, generator=generator, dtype=torch.float64, requires_grad=True) for s in shapes]
    return tensors if with_bias else tensors[:2]


@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize("chunked", [False, True])
def test_value_and_gradients_are_those_of_log_softmax(
    with_bias: bool, chunked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if chunked:
        monkeypatch.setattr(readout, "KEPT_ELEMENTS", 10)
        monkeypatch.setattr(readout, "CHUNK_ELEMENTS", 17 * 5)
    tensors = inputs(with_bias)
    target = torch.randint(0, 17, (23,), generator=torch.Generator().manual_seed(1))
    weights = torch.randn(23, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    arguments = (*tensors, target) if with_bias else (*tensors, None, target)
    expected = plain(*arguments)
    found = word_log_prob(*arguments)
    assert torch.allclose(found, expected, atol=1e-12)
    expected_gradients = torch.autograd.grad((expected * weights).sum(), tensors)
    found_gradients = torch.autograd.grad((found * weights).sum(), tensors)
    for one, other in zip(found_gradients, expected_gradients, strict=True):
        assert torch.allclose(one, other, atol=1e-12)


def test_a_second_backward_pass_gives_the_same_gradient() -> None:
    tensors = inputs(True)
    loss = word_log_prob(*tensors, torch.zeros(23, dtype=torch.int64)).sum()
    first = torch.autograd.grad(loss, tensors, retain_graph=True)
    second = torch.autograd.grad(loss, tensors)
    for one, other in zip(first, second, strict=True):
        assert torch.allclose(one, other, atol=1e-12)


def test_very_unlikely_words_have_finite_log_probabilities() -> None:
    hidden = torch.tensor([[1.0]])
    weight = torch.tensor([[300.0], [0.0], [-300.0]])
    found = word_log_prob(hidden.expand(3, 1), weight, None, torch.arange(3))
    assert found.tolist() == pytest.approx([0.0, -300.0, -600.0])


def test_probabilities_sum_to_one_without_gradients() -> None:
    hidden, weight, bias = inputs(True)
    with torch.no_grad():
        total = sum(word_log_prob(hidden, weight, bias, torch.full((23,), v)).exp() for v in range(17))
    assert torch.allclose(torch.as_tensor(total), torch.ones(23, dtype=torch.float64))


@pytest.mark.parametrize("chunked", [False, True])
def test_bfloat16_is_near_and_returns_the_parameters_own_precision(
    chunked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not supports_bfloat16(torch.device("cpu")):
        pytest.skip("bfloat16 does not work on this processor")
    if chunked:
        monkeypatch.setattr(readout, "KEPT_ELEMENTS", 10)
        monkeypatch.setattr(readout, "CHUNK_ELEMENTS", 170 * 5)
    tensors = [t.detach().float().requires_grad_() for t in inputs(True, 200, 170)]
    target = torch.randint(0, 170, (200,), generator=torch.Generator().manual_seed(1))
    expected = word_log_prob(*tensors, target)
    with torch.autocast("cpu", torch.bfloat16):
        found = word_log_prob(*tensors, target)
    assert found.dtype == torch.float32
    difference = (found - expected).detach()
    assert float(difference.abs().max()) < 0.15 and abs(float(difference.mean())) < 0.01
    assert not torch.equal(found, expected)  # it was computed in the lower precision
    for one, other in zip(
        torch.autograd.grad(found.sum(), tensors), torch.autograd.grad(expected.sum(), tensors), strict=True
    ):
        assert one.dtype == torch.float32
        assert float(torch.nn.functional.cosine_similarity(one.flatten(), other.flatten(), dim=0)) > 0.999
