"""Every term of dialog training acts, on what it should act on, and on nothing else."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from zentence.corpora.pairs import PairBatch, collate_contexts
from zentence.errors import ZentenceError
from zentence.guided.dialog_loss import (
    DialogOptions,
    DialogTrainable,
    distance,
    nearest_distance,
    push_distance,
    same_text,
)
from zentence.guided.dialog_model import DialogModel
from zentence.noise import Noise
from zentence.testing import random_batch, tiny_model

VOCABULARY = 11


def pair_batch(style: bool = False, seed: int = 0) -> PairBatch:
    pairs = random_batch([3, 2, 4, 3], VOCABULARY, seed)
    random = np.random.default_rng(seed + 1)
    turns = [[random.integers(4, VOCABULARY, size=size) for size in sizes] for sizes in ([2, 3], [1], [4, 1, 2], [2])]
    pairs = pairs._replace(context=collate_contexts(turns, 100))
    return PairBatch(pairs, random_batch([4, 3, 2, 5], VOCABULARY, seed + 2) if style else None)


def trainable(**options: object) -> DialogTrainable:
    model = DialogModel(tiny_model(["encoder.embedding=own"], spread=0.4))
    return DialogTrainable(model, DialogOptions.model_validate(options)).double()


def noise(batch: PairBatch) -> Noise:
    return Noise(5, batch.index)


def groups(model: DialogModel) -> dict[str, list[nn.Parameter]]:
    """The parameters by the way they lie on; both encoders read the same embedding."""
    embedding = {id(p) for p in model.model.encoder.embedding.parameters()}
    parts = {
        "embedding": model.model.encoder.embedding,
        "response": model.model.encoder,
        "context": model.context_encoder,
        "decoder": model.model.decoder,
    }
    found = {
        name: [p for p in part.parameters() if name == "embedding" or id(p) not in embedding]
        for name, part in parts.items()
    }
    found["response"].append(model.model.posterior.to_mean.weight)  # distances know nothing of a bias
    found["context"].append(model.context_posterior.to_mean.weight)
    return found


def moved(loss: Tensor, model: DialogModel) -> set[str]:
    """The groups in which every parameter has a gradient that is not zero; those with some are a mistake."""
    model.zero_grad(set_to_none=True)
    loss.backward()  # type: ignore[no-untyped-call]
    found = set()
    for name, parameters in groups(model).items():
        touched = [p.grad is not None and bool((p.grad != 0.0).any()) for p in parameters]
        assert all(touched) or not any(touched), name
        if all(touched):
            found.add(name)
    return found


def test_distance_is_the_root_mean_square_and_flat_at_zero() -> None:
    a = torch.tensor([[1.0, 2.0, 2.0, 0.0]], dtype=torch.float64, requires_grad=True)
    assert distance(a, torch.zeros(1, 4)).tolist() == pytest.approx([1.5])
    (gradient,) = torch.autograd.grad(distance(a, a.detach()).sum(), a)
    assert torch.equal(gradient, torch.zeros_like(a))


def test_nearest_distance_leaves_out_the_code_itself() -> None:
    z = torch.tensor([[0.0, 0.0], [3.0, 4.0], [3.0, 4.5]], dtype=torch.float64)
    root = math.sqrt(2.0)
    assert nearest_distance(z, 100.0).tolist() == pytest.approx([5.0 / root, 0.5 / root, 0.5 / root])
    assert nearest_distance(z, 1.0).tolist() == pytest.approx([1.0, 0.5 / root, 0.5 / root])
    assert nearest_distance(z[:1], 0.7).tolist() == [0.7]
    brute = [min(math.dist(a, b) for j, b in enumerate(z.tolist()) if i != j) for i, a in enumerate(z.tolist())]
    assert nearest_distance(z, 100.0).tolist() == pytest.approx([value / root for value in brute])


def test_codes_of_the_same_text_are_no_neighbours() -> None:
    """Rows 0 and 1 read the same: each has its nearest neighbour in row 2, so push acts on all three."""
    tokens = collate_contexts([[np.array([5, 6])], [np.array([5, 6])], [np.array([5])], [np.array([5, 6, 7])]], 10)
    same = same_text(tokens)
    assert same.tolist() == [[True, True, False, False]] * 2 + [[False, False, True, False], [False] * 3 + [True]]
    z = torch.tensor([[0.0], [0.0], [0.5], [4.0]], requires_grad=True)
    assert nearest_distance(z, 9.0, same).tolist() == [0.5, 0.5, 0.5, 3.5]
    (gradient,) = torch.autograd.grad(nearest_distance(z, 9.0, same)[:3].sum(), z)
    assert (gradient[:3] != 0.0).all()
    assert nearest_distance(z, 9.0).tolist() == [0.0, 0.0, 0.5, 3.5]
    assert nearest_distance(z[:2], 9.0, same[:2, :2]).tolist() == [9.0, 9.0]  # nobody to be pushed from


def test_push_is_that_of_the_narrower_space() -> None:
    wide = torch.tensor([[0.0], [1.0], [3.0]], requires_grad=True)
    narrow = torch.tensor([[0.0], [0.5], [0.75]], requires_grad=True)
    push, within_wide, within_narrow = push_distance(wide, narrow, 10.0)
    assert [within_wide.tolist(), within_narrow.tolist()] == pytest.approx([4.0 / 3.0, 1.0 / 3.0])
    assert torch.equal(push, within_narrow)
    gradients = torch.autograd.grad(push, [wide, narrow])
    assert not gradients[0].any() and gradients[1].any()


def codes(model: DialogModel, batch: PairBatch) -> tuple[Tensor, Tensor]:
    assert batch.pairs.context is not None
    return model.infer_context(batch.pairs.context).center, model.model.infer(batch.pairs.source).center


def test_each_term_moves_what_it_should() -> None:
    batch, learner = pair_batch(style=True), trainable(noise=0.0)
    model = learner.model
    both = {"embedding", "response", "context"}
    context, response = codes(model, batch)
    assert moved(distance(context, response).mean(), model) == both
    for space, name in ((0, "context"), (1, "response")):
        found = codes(model, batch)
        assert moved(nearest_distance(found[space], 10.0).mean(), model) == {"embedding", name}
    pairs, style = batch.pairs, batch.style
    assert style is not None
    for weight, expected in (((1.0, 0.0), {"context"}), ((0.0, 1.0), {"response"}), ((0.5, 0.5), both)):
        context, response = codes(model, batch)
        z = (weight[0] * context if weight[0] else 0.0) + (weight[1] * response if weight[1] else 0.0)
        loss = -model.model.log_likelihood(z[None], pairs).mean()
        assert moved(loss, model) == {"embedding", "decoder", *expected}
    learner.train()
    code, share = learner._towards_style(style, codes(model, batch)[1], noise(batch))
    towards = (share * model.model.log_likelihood(code[None], style)[0]).mean()
    assert moved(towards, model) == {"embedding", "response", "decoder"}


def test_the_objectives_move_what_they_should() -> None:
    for options, expected in (({}, {"embedding", "response", "context", "decoder"}),
                              ({"objective": "s2s"}, {"embedding", "context", "decoder"})):  # fmt: skip
        learner, batch = trainable(**options), pair_batch(style=not options)
        assert moved(learner(batch, 0, noise(batch)).loss, learner.model) == expected


@pytest.mark.parametrize("style", [False, True])
def test_the_loss_is_the_sum_of_its_terms(style: bool) -> None:
    """A twin by hand: each log-likelihood on its own, τ from the same noise."""
    learner, batch = trainable(fusion_weight=3.0, push_cap=0.4, style_weight=0.7).eval(), pair_batch(style)
    terms = learner(batch, 0, noise(batch))
    context, response = codes(learner.model, batch)
    tau = noise(batch).fork("between").uniform(1, torch.float64)

    def nll(z: Tensor) -> Tensor:
        return -learner.model.model.log_likelihood(z[None], batch.pairs)[0]

    between = tau * context + (1.0 - tau) * response
    push = min(nearest_distance(z, 0.4).mean().tolist() for z in (context, response))
    expected = (nll(context) + nll(response) + nll(between)).mean()
    expected = expected + 3.0 * (distance(context, response).mean() - 2.0 * push)
    if batch.style is not None:
        own = learner.model.model.infer(batch.style.source).center
        share = noise(batch).fork("style").uniform(1, torch.float64)
        z = share * own + (1.0 - share) * response
        of_style = -learner.model.model.log_likelihood(z[None], batch.style)[0]
        expected = expected + 0.7 * (share[:, 0] * of_style + (1.0 - share[:, 0]) * nll(z)).mean()
    assert terms.loss.tolist() == pytest.approx(expected.tolist(), rel=1e-9)
    assert terms.values["distortion"].tolist() == pytest.approx(nll(context).tolist())
    assert terms.values["autoencoding"].tolist() == pytest.approx(nll(response).tolist())
    assert terms.scalars["push"] == pytest.approx(push)
    assert ("style" in terms.values) == style


def test_noise_falls_where_it_should() -> None:
    batch = pair_batch()
    quiet = trainable(noise=0.0).train()(batch, 0, noise(batch)).values
    between = trainable(noise=0.5).train()(batch, 0, noise(batch)).values
    everywhere = trainable(noise=0.5, noise_on="all").train()(batch, 0, noise(batch)).values
    assert torch.equal(between["distortion"], quiet["distortion"])
    assert not torch.equal(between["between"], quiet["between"])
    assert not torch.equal(everywhere["distortion"], quiet["distortion"])
    assert torch.equal(everywhere["pull"], quiet["pull"])  # distances are of the codes themselves
    still = trainable(noise=0.5, noise_on="all").eval()(batch, 0, noise(batch)).values
    assert torch.equal(still["distortion"], quiet["distortion"])


def toy_spaces() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    first, second = (0.05 * torch.randn(12, 2, generator=generator, dtype=torch.float64) for _ in range(2))
    return first.requires_grad_(), second.requires_grad_()


def test_pull_alone_makes_pairs_coincide() -> None:
    context, response = toy_spaces()
    with torch.no_grad():
        response += 3.0
    optimizer = torch.optim.SGD([context, response], lr=1.0)
    for step in range(300):
        optimizer.param_groups[0]["lr"] = 1.0 * (1.0 - step / 300)
        optimizer.zero_grad()
        distance(context, response).mean().backward()
        optimizer.step()
    assert distance(context, response).max().tolist() < 0.02
    assert float(nearest_distance(context.detach(), 10.0).min()) < 0.1  # nothing keeps different pairs apart


def test_push_separates_distinct_pairs_up_to_the_cap() -> None:
    context, response = toy_spaces()
    optimizer = torch.optim.Adam([context, response], lr=0.05)
    for _ in range(400):
        optimizer.zero_grad()
        push, _, _ = push_distance(context, response, 0.8)
        (distance(context, response).mean() - 2.0 * push).backward()
        optimizer.step()
    for space in (context, response):
        assert float(nearest_distance(space.detach(), 10.0).min()) > 0.7
    assert distance(context, response).mean().tolist() < 0.1  # and pairs still coincide
    assert max(float(space.detach().abs().max()) for space in (context, response)) < 10.0  # it ends


def test_encoders_share_words_and_nothing_else() -> None:
    model = DialogModel(tiny_model(["encoder.embedding=decoder", "decoder.embedding_size=5"]))
    assert model.context_encoder.embedding.weight is model.model.decoder.embedding.weight
    own = dict(model.context_encoder.recurrences.named_parameters())
    for name, parameter in model.model.encoder.recurrences.named_parameters():
        assert torch.equal(own[name], parameter) and own[name] is not parameter
    assert not any(p is q for p in model.context_posterior.parameters() for q in model.model.posterior.parameters())


def test_models_that_cannot_talk() -> None:
    with pytest.raises(ZentenceError, match="language model"):
        DialogModel(tiny_model(language_model=True))
    with pytest.raises(ZentenceError, match="one code a sentence"):
        DialogModel(tiny_model(["averaged_codes=2"]))
