import pytest
import torch

from zentence.decoders import readout
from zentence.decoders.readout import sample_words, word_log_prob
from zentence.decoders.recurrent import RecurrentDecoder
from zentence.machine import supports_bfloat16
from zentence.types import Tokens


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
    monkeypatch.setattr(readout, "CPU_ROWS", 4)
    tensors = inputs(with_bias)
    target = torch.randint(0, 17, (23,), generator=torch.Generator().manual_seed(1))
    weights = torch.randn(23, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    arguments = (*tensors, target) if with_bias else (*tensors, None, target)
    expected = plain(*arguments)
    found = word_log_prob(*arguments)
    assert torch.allclose(found, expected, atol=1e-12)
    with torch.no_grad():
        assert torch.allclose(word_log_prob(*arguments), expected, atol=1e-12)
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


def test_a_sample_of_all_words_gives_the_exact_figure() -> None:
    tensors, target = inputs(True), torch.arange(23) % 17
    exact = word_log_prob(*tensors, target)
    for words in (17, 400):
        assert torch.equal(word_log_prob(*tensors, target, words), exact)


@pytest.mark.parametrize("with_bias", [True, False])
def test_the_sampled_normaliser_is_on_average_the_exact_one(with_bias: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over a grid of starts each word takes part in its share π of them: the mean over them is an integral."""
    hidden, weight, *rest = inputs(with_bias, 5, 60)
    bias, target = rest[0] if rest else None, torch.tensor([3, 3, 57, 20, 0])
    starts = (torch.arange(4000, dtype=torch.float64) + 0.5) / 4000
    inverse = torch.zeros(5, dtype=torch.float64)
    sizes = set()
    with torch.no_grad():
        scores = torch.nn.functional.linear(hidden, weight, bias)
        at_target = scores.gather(1, target[:, None]).squeeze(1)
        for start in starts:
            monkeypatch.setattr(torch, "rand", lambda *_, start=start, **__: start)
            inverse += (at_target - word_log_prob(hidden, weight, bias, target, 20)).exp() / len(starts)
            sizes.add(len(sample_words(target, 60, 20)[0]))
    assert torch.allclose(inverse, scores.exp().sum(1), rtol=2e-3)
    assert max(sizes) < 26 and max(sizes) - min(sizes) <= 1  # 20, and the targets that were unlikely to be among them


def test_the_sampled_gradient_is_that_of_the_sampled_estimate() -> None:
    tensors, target = inputs(True, 7, 60), torch.arange(7) * 8
    torch.manual_seed(0)
    ids, log_inclusion = sample_words(target, 60, 25)
    assert set(target.tolist()) <= set(ids.tolist()) and len(ids) < 60
    hidden, weight, bias = tensors
    scores = torch.nn.functional.linear(hidden, weight, bias)
    expected = scores.gather(1, target[:, None]).squeeze(1) - (scores[:, ids] - log_inclusion).logsumexp(1)
    torch.manual_seed(0)
    found = word_log_prob(*tensors, target, 25)
    assert torch.allclose(found, expected, atol=1e-12)
    for one, other in zip(
        torch.autograd.grad(found.sum(), tensors), torch.autograd.grad(expected.sum(), tensors), strict=True
    ):
        assert torch.allclose(one, other, atol=1e-12)


def test_the_sample_has_always_the_same_size_and_shares_add_up() -> None:
    sizes = set()
    for seed in range(50):
        torch.manual_seed(seed)
        ids, log_inclusion = sample_words(torch.randint(0, 1000, (40,)), 1000, 300)
        sizes.add(len(ids))
        assert float(log_inclusion.max()) == 0.0 and bool((ids.diff() > 0).all())
    assert sizes == {300}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_words_of_hardly_any_probability_have_exact_figures(dtype: torch.dtype) -> None:
    hidden = torch.tensor([[1.0], [200.0], [2000.0]], dtype=dtype, requires_grad=True)
    weight = torch.tensor([[0.0], [1.0], [0.5]], dtype=dtype)
    target = torch.tensor([0, 0, 2])
    found = word_log_prob(hidden, weight, None, target)
    assert torch.allclose(found, torch.tensor([-1.6802, -200.0, -1000.0], dtype=dtype), atol=1e-4)
    (gradient,) = torch.autograd.grad(found.sum(), hidden)
    assert torch.allclose(gradient.squeeze(1), torch.tensor([-0.6601, -1.0, -0.5], dtype=dtype), atol=1e-4)


def test_only_training_takes_a_sample() -> None:
    options = RecurrentDecoder.Options(embedding_size=8, hidden_size=8, training_words=20)
    decoder = RecurrentDecoder(options, 200, 4)
    tokens = Tokens(torch.arange(40).view(4, 10) + 5, torch.full((4,), 10))
    hidden = torch.randn(1, 4, 10, 8)
    everything = torch.log_softmax(torch.nn.functional.linear(hidden, *decoder._readout(hidden)[1:]), -1)
    expected = everything.gather(-1, tokens.ids[None, :, :, None]).squeeze(-1)
    assert torch.allclose(decoder.eval().token_log_prob(hidden, tokens), expected, atol=1e-5)
    assert not torch.allclose(decoder.train().token_log_prob(hidden, tokens), expected, atol=1e-5)


def test_dropout_keeps_the_mean() -> None:
    torch.manual_seed(0)
    decoder = RecurrentDecoder(RecurrentDecoder.Options(), 20, 4).train()
    for mask in ("standard", "shared"):
        decoder.options = decoder.options.model_copy(update={"dropout_mask": mask})
        dropped = decoder._drop(torch.ones(300, 5, 40), 0.3, 1)
        assert dropped.unique().tolist() == pytest.approx([0.0, 1 / 0.7])
        assert float(dropped.mean()) == pytest.approx(1.0, abs=0.02)
        same = bool((dropped == dropped[:, :1]).all())
        assert same == (mask == "shared")
