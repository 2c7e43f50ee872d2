"""Averaged hidden states (paper 3): the average itself, L = 1 as the plain model, honest weights, and use."""

import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

from zentence.build import build_objective, complete
from zentence.corpora.prepare import prepare
from zentence.corpora.vocabulary import build_vocabulary
from zentence.errors import ZentenceError
from zentence.evaluation.likelihood import bounds
from zentence.evaluation.suite import evaluate_split
from zentence.latent import LatentSpace
from zentence.model import LatentLM
from zentence.noise import Noise
from zentence.parts import Part
from zentence.settings import CorpusSettings, StageSettings
from zentence.testing import random_batch, tiny_model, tiny_settings

BATCH = random_batch([3, 5, 2])
NOISE = Noise(7, BATCH.index)
OBJECTIVES = ["elbo", "iwae", "info_vae", "mim", "autoencoder"]


def averaging(codes: int, *overrides: str) -> LatentLM:
    return tiny_model([f"averaged_codes={codes}", *overrides], spread=0.5)


def codes(count: int, rows: int = 3) -> torch.Tensor:
    return torch.randn(count, rows, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def test_hidden_states_of_a_group_are_averaged_before_the_softmax() -> None:
    """Two groups of three codes: Eq. 7 and 8, written out."""
    model, z = averaging(3), codes(6)
    hidden = model.decoder.hidden_states(z, BATCH.inputs)
    for group in range(2):
        mean = (hidden[3 * group] + hidden[3 * group + 1] + hidden[3 * group + 2]) / 3.0
        scores = mean @ model.decoder.output.weight.t() + model.decoder.output.bias
        log_prob = torch.log_softmax(scores, -1).gather(-1, BATCH.target.ids[..., None]).squeeze(-1)
        expected = torch.where(BATCH.target.mask(), log_prob, 0.0)
        assert torch.allclose(model.token_log_prob(z, BATCH)[group], expected, atol=1e-12)
    assert model.log_likelihood(z, BATCH).shape == (2, 3)
    with pytest.raises(ZentenceError, match="4 codes a sentence are not groups of 3"):
        model.log_likelihood(codes(4), BATCH)


def test_equal_codes_are_one_code() -> None:
    plain, model, z = averaging(1), averaging(4), codes(1)
    assert torch.allclose(model.log_likelihood(z.expand(4, -1, -1), BATCH), plain.log_likelihood(z, BATCH), atol=1e-12)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_one_averaged_code_is_the_plain_model(name: str) -> None:
    stage = StageSettings(objective=Part(name=name))
    losses = [build_objective(stage, 1.0, 1)(model, BATCH, 0, NOISE).loss for model in (averaging(1), tiny_model())]
    plain = tiny_model(spread=0.5)
    plain_loss = build_objective(stage, 1.0, 1)(plain, BATCH, 0, NOISE).loss
    assert torch.equal(losses[0], plain_loss)
    assert not torch.equal(losses[1], plain_loss)  # other weights
    for mine, theirs in zip(bounds(averaging(1), BATCH, 7, NOISE)[:6], bounds(plain, BATCH, 7, NOISE)[:6], strict=True):
        assert torch.equal(mine, theirs)


@pytest.mark.parametrize("prior", ["standard_normal", "mixture"])
def test_elbo_charges_one_rate_for_all_codes(prior: str) -> None:
    model = averaging(3, f"prior.name={prior}")
    q, p = model.infer(BATCH.source), model.prior_density()
    z, log_q = q.rsample_and_log_prob(6, NOISE)
    stage = StageSettings(objective=Part.model_validate({"name": "elbo", "num_codes": 2}))
    terms = build_objective(stage, 1.0, 1)(model, BATCH, 0, NOISE)
    assert torch.allclose(terms.values["distortion"], -model.log_likelihood(z, BATCH).mean(0), atol=1e-12)
    plain = build_objective(stage, 1.0, 1)(averaging(1, f"prior.name={prior}"), BATCH, 0, NOISE)
    if prior == "standard_normal":
        assert torch.equal(terms.values["rate"], plain.values["rate"])
    else:
        assert torch.allclose(terms.values["rate"], (log_q - p.log_prob(z)).mean(0), atol=1e-12)


def test_importance_weights_charge_all_codes() -> None:
    model, K, L = averaging(3), 5, 3
    q, p = model.infer(BATCH.source), model.prior_density()
    z, log_q = q.rsample_and_log_prob(K * L, NOISE)
    ratio = log_q - p.log_prob(z)
    log_weight = torch.stack(
        [model.log_likelihood(z[3 * k : 3 * k + 3], BATCH)[0] - ratio[3 * k : 3 * k + 3].sum(0) for k in range(K)]
    )
    found = bounds(model, BATCH, K, NOISE)
    assert torch.allclose(found.importance_weighted, math.log(K) - log_weight.logsumexp(0), atol=1e-10)
    assert torch.allclose(found.distortion, -model.log_likelihood(z, BATCH).mean(0), atol=1e-10)
    assert torch.equal(found.rate, bounds(averaging(1), BATCH, K, NOISE).rate)
    stage = StageSettings(objective=Part.model_validate({"name": "iwae", "num_codes": K}))
    loss = build_objective(stage, 1.0, 1)(model, BATCH, 0, NOISE).loss
    assert float(loss.detach()) == pytest.approx(float(found.importance_weighted.mean()), abs=1e-10)


def test_bounds_do_not_depend_on_how_groups_are_chunked(monkeypatch: pytest.MonkeyPatch) -> None:
    model = averaging(3)
    whole = bounds(model, BATCH, 11, NOISE)
    monkeypatch.setattr("zentence.evaluation.likelihood.TOKEN_SAMPLES", 3 * BATCH.target.ids.numel() * 2)
    for one, other in zip(whole[:6], bounds(model, BATCH, 11, NOISE)[:6], strict=True):
        assert torch.allclose(one, other, atol=1e-10)


def test_honest_bound_tends_to_the_likelihood_and_the_published_figure_leaves_rates_out() -> None:
    """E w = p(x) = E p(x|z_1, z_2) over two codes from the prior."""
    model = tiny_model(["averaged_codes=2"], spread=0.8).requires_grad_(False)
    z = torch.randn(2 * 20_000, 3, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    expected = math.log(20_000) - model.log_likelihood(z, BATCH).logsumexp(0)
    found = bounds(model, BATCH, 20_000, NOISE)
    assert torch.allclose(found.importance_weighted, expected, atol=0.05)
    assert (found.importance_weighted < found.distortion + 2.0 * found.rate).all()
    assert torch.allclose(found.elbo, found.distortion + found.rate, atol=1e-12)


@pytest.mark.parametrize(("count", "kind"), [(1, "upper_bound"), (2, "not_a_bound")])
def test_published_figure_is_no_bound_and_says_so(captions: Path, count: int, kind: str) -> None:
    corpus = prepare(CorpusSettings(), [captions / "train.txt"], [captions / "valid.txt"])
    model = tiny_model([f"averaged_codes={count}"], vocabulary=len(corpus.vocabulary))
    names = ("elbo_nll", "iw_nll", "ppl")
    options = {"split": "valid", "samples": 2, "limit": 5, "metrics": names}
    found = evaluate_split(model, corpus.splits["valid"], corpus.vocabulary, tiny_settings(), **options)
    kinds = {m.name: m.kind for m in found}
    assert tuple(kinds[name] for name in names) == (kind, "upper_bound", "upper_bound")


def space(count: int) -> LatentSpace:
    vocabulary = build_vocabulary(Counter("abcdefg"), CorpusSettings())
    model = tiny_model([f"averaged_codes={count}"], vocabulary=len(vocabulary), spread=1.5).float()
    return LatentSpace(model, vocabulary, tiny_settings())


def test_decoding_uses_a_code_for_all_states_and_sampling_draws_as_many() -> None:
    plain, averaged = space(1), space(3)
    drawn = averaged.prior_codes(12, seed=4)
    options = {"max_words": 8}
    assert averaged.decode(drawn, **options) == plain.decode(drawn, **options)
    repeated = np.repeat(drawn[:, None], 3, axis=1)
    assert averaged.decode(repeated, **options) == plain.decode(drawn, **options)
    grouped = averaged.decode(averaged.prior_codes(36, seed=4).reshape(12, 3, 2), **options)
    assert averaged.sample(12, seed=4, **options) == grouped
    assert plain.sample(12, seed=4, **options) == plain.decode(drawn, **options)
    assert grouped != plain.decode(drawn, **options)
    for method in ("greedy", "sample", "beam"):
        assert len(averaged.sample(3, method=method, **options)) == 3


def test_sentences_are_rebuilt_from_one_mean_or_from_sampled_codes() -> None:
    plain, averaged, sentences = space(1), space(3), ["a b c", "d e", "g g g f"]
    assert np.array_equal(plain.encode(sentences), averaged.encode(sentences))
    assert np.array_equal(plain.encode(sentences, sample=True), averaged.encode(sentences, sample=True))
    assert averaged.reconstruct(sentences, max_words=8) == plain.reconstruct(sentences, max_words=8)
    sampled = averaged.reconstruct(sentences, sample=True, seed=1, max_words=8)
    codes = averaged._codes(sentences, 3, 1)
    assert codes.shape == (3, 3, 2) and sampled == averaged.decode(codes, seed=1, max_words=8)
    with pytest.raises(ZentenceError, match="Codes must have shape"):
        averaged.decode(np.zeros((4, 2, 2)))


def test_a_language_model_has_no_codes_to_average() -> None:
    with pytest.raises(ZentenceError, match="no codes to average"):
        complete(tiny_settings(language_model=True).model_copy(update={"averaged_codes": 2}))
