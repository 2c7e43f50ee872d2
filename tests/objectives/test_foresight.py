"""Codes of beginnings: the added term, by hand, and what it moves."""

import math

import torch
from torch import Tensor

from zentence.build import build_model, build_objective, complete
from zentence.corpora.corruption import hide_words
from zentence.model import LatentLM
from zentence.noise import Noise
from zentence.objectives import Objective
from zentence.settings import settings_from
from zentence.testing import random_batch, tiny_model
from zentence.training.optimizers import build_optimizer, set_learning_rate
from zentence.types import BOS, EOS, UNK, Tokens

BATCH = random_batch([3, 5, 2, 4])
NOISE = Noise(7, BATCH.index)


def objective(weight: float, inner: str = "mim") -> Objective:
    stage = {"objective": {"name": "foresight", "objective": {"name": inner}, "weight": weight}}
    return build_objective(settings_from({"stages": [stage]}).stages[0], 1.0, 10)


def test_the_term_is_minus_log_q_of_the_whole_code_given_the_beginning() -> None:
    model = tiny_model(spread=0.5)
    terms = objective(2.0)(model, BATCH, 0, NOISE)
    code = model.infer(BATCH.source).rsample_and_log_prob(1, NOISE.fork("whole"))[0]
    hidden = hide_words(BATCH.source.ids, 0.5, NOISE.fork("end"), where="end")
    q = model.infer(Tokens(hidden, BATCH.source.lengths))
    squares = ((code[0] - q.center) / q.scale).square()
    expected = (0.5 * squares + q.scale.log() + 0.5 * math.log(2.0 * math.pi)).sum(1)
    assert torch.allclose(terms.values["surprise"], expected, atol=1e-10)
    alone = objective(0.0)(model, BATCH, 0, NOISE)
    assert torch.allclose(terms.loss, alone.loss + 2.0 * expected.mean(), atol=1e-10)


def test_codes_do_not_move_in_order_to_be_guessed_and_the_decoder_does_not_either() -> None:
    """The gradient is that of −log q with the code held fixed; none reaches the decoder."""
    model = tiny_model(spread=0.5)
    code = model.infer(BATCH.source).rsample_and_log_prob(1, NOISE.fork("whole"))[0].detach()
    hidden = hide_words(BATCH.source.ids, 0.5, NOISE.fork("end"), where="end")
    named = {n: p for n, p in model.named_parameters() if n.startswith(("encoder", "posterior"))}
    surprise = -model.infer(Tokens(hidden, BATCH.source.lengths)).log_prob(code).mean()
    expected = torch.autograd.grad(surprise, list(named.values()))
    with_term = torch.autograd.grad(objective(1.0)(model, BATCH, 0, NOISE).loss, list(named.values()))
    without = torch.autograd.grad(objective(0.0)(model, BATCH, 0, NOISE).loss, list(named.values()))
    for found, base, wanted in zip(with_term, without, expected, strict=True):
        assert torch.allclose(found - base, wanted, atol=1e-10)
    assert any(bool(gradient.any()) for gradient in expected)


def distance(model: LatentLM, words: Tensor) -> float:
    """Return E[((z − mean) / scale)²], z the code of a whole text, mean and scale those of its first word alone."""
    beginning, lengths = words.clone(), torch.full((len(words),), 4)
    beginning[:, 2] = UNK
    with torch.no_grad():
        whole, begun = model.infer(Tokens(words, lengths)), model.infer(Tokens(beginning, lengths))
    squares = (whole.center - begun.center).square() + whole.scale.square()
    return float((squares / begun.scale.square()).mean())


def test_the_posterior_of_beginnings_becomes_the_spread_of_what_may_follow() -> None:
    """Texts `a b` and `a c`, half each: given `a` alone, q(z) widens until a whole code is about one scale away."""
    content = {
        "encoder": {"name": "bag", "embedding_size": 8},
        "posterior": {"name": "gaussian", "size": 4},
        "decoder": {"name": "recurrent", "embedding_size": 4, "hidden_size": 4},
        "optimizer": {"learning_rate": 0.02, "learning_rates": {"decoder": 0.0}},
        "stages": [{"objective": {"name": "foresight", "objective": {"name": "autoencoder", "code": "mean"}}}],
    }
    settings = complete(settings_from(content))
    model = build_model(settings, 8)
    torch.nn.init.constant_(model.posterior.to_scale.bias, -4.0)
    made = build_objective(settings.stages[0], 1.0, 400)
    optimizer = build_optimizer(model, settings.optimizer)
    batch = random_batch([2] * 32, 8)
    words = torch.tensor([[2, 4, 5 + row % 2, 3] for row in range(32)])
    words[:, 0], words[:, 3] = BOS, EOS
    batch = batch._replace(source=Tokens(words, torch.full((32,), 4)))
    before = distance(model, words)
    for step in range(600):
        set_learning_rate(optimizer, 0.02 if step < 300 else 0.002)
        optimizer.zero_grad()
        made(model, batch, step, Noise(step, batch.index)).loss.backward()
        optimizer.step()
    assert before > 3.0 and 0.7 < distance(model, words) < 1.4
