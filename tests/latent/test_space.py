"""LatentSpace on a tiny random model."""

from collections import Counter

import numpy as np
import pytest
import torch

from zentence.corpora.vocabulary import build_vocabulary
from zentence.errors import ZentenceError
from zentence.evaluation.likelihood import bounds
from zentence.latent import LatentSpace
from zentence.noise import Noise, derive_key
from zentence.settings import CorpusSettings
from zentence.testing import tiny_model, tiny_settings

SENTENCES = ["a cat sat .", "the dog ran to the cat .", "a dog .", "the cat sat to a dog ."]


@pytest.fixture(scope="module")
def space() -> LatentSpace:
    return make(language_model=False)


def make(language_model: bool) -> LatentSpace:
    vocabulary = build_vocabulary(Counter(" ".join(SENTENCES).split()), CorpusSettings())
    model = tiny_model(vocabulary=len(vocabulary), spread=0.8, language_model=language_model).float()
    with torch.no_grad():
        model.decoder.output.bias[2] -= 1.0
    return LatentSpace(model, vocabulary, tiny_settings(language_model=language_model))


def test_codes_are_the_posterior_means_in_the_order_given(space: LatentSpace) -> None:
    codes = space.encode(SENTENCES, batch_size=2)
    assert codes.shape == (4, 2) and codes.dtype == np.float32
    for sentence, code in zip(SENTENCES, codes, strict=True):
        assert space.encode([sentence])[0] == pytest.approx(code, abs=1e-6)


def test_sampled_codes_repeat_with_their_seed(space: LatentSpace) -> None:
    one, same, other = (space.encode(SENTENCES, sample=True, seed=s) for s in (1, 1, 2))
    assert np.array_equal(one, same) and not np.allclose(one, other)


def test_decoding_does_not_depend_on_the_batch(space: LatentSpace) -> None:
    codes = np.random.default_rng(0).normal(size=(11, 2)).astype(np.float32)
    assert space.decode(codes, batch_size=3) == space.decode(codes, batch_size=11)
    sampled = [space.decode(codes, batch_size=n, method="sample", seed=4) for n in (3, 11)]
    assert sampled[0] == sampled[1]


def test_interpolation_ends_at_the_reconstructions(space: LatentSpace) -> None:
    way = space.interpolate(SENTENCES[0], SENTENCES[1], steps=5)
    assert len(way) == 5
    assert [way[0], way[-1]] == space.reconstruct(SENTENCES[:2])


def test_samples_repeat_and_follow_the_prior(space: LatentSpace) -> None:
    assert space.sample(5, seed=3) == space.sample(5, seed=3)
    codes = space.prior_codes(4000, seed=1)
    assert codes.mean(0) == pytest.approx([0, 0], abs=0.06) and codes.std(0) == pytest.approx([1, 1], abs=0.05)
    assert space.prior_codes(4000, seed=1, scale=0.1) == pytest.approx(0.1 * codes, abs=1e-6)
    assert np.array_equal(space.prior_codes(10, seed=1), codes[:10])


def test_scores_are_the_bounds_of_each_sentence(space: LatentSpace) -> None:
    scores = space.score(SENTENCES, samples=20, seed=1, batch_size=2)
    for places, batch in space._batches(SENTENCES, 1):
        found = bounds(space.model, batch, 20, Noise(derive_key(1, "evaluation"), batch.index))
        assert scores[places] == pytest.approx(found.importance_weighted.numpy(), rel=1e-5)


def test_a_language_model_scores_and_samples_but_has_no_codes() -> None:
    model = make(language_model=True)
    assert model.score(SENTENCES).shape == (4,)
    assert len(model.sample(300, seed=1)) == 300
    for use in (lambda: model.encode(SENTENCES), lambda: model.decode(np.zeros((1, 2))), lambda: model.prior_codes(1)):
        with pytest.raises(ZentenceError, match="language model"):
            use()


@pytest.mark.parametrize(
    ("codes", "message"),
    [
        (np.zeros((2, 3)), r"shape \[N, 2\], not \[2, 3\]"),
        (np.zeros(2), r"not \[2\]"),
        (np.array([[0.0, np.nan]]), "finite"),
    ],
)
def test_wrong_codes_are_refused(space: LatentSpace, codes: np.ndarray, message: str) -> None:
    with pytest.raises(ZentenceError, match=message):
        space.decode(codes)


def test_wrong_sentences_are_refused(space: LatentSpace) -> None:
    with pytest.raises(ZentenceError, match="Sentence 2 is empty"):
        space.encode(["a cat .", "  "])
    with pytest.raises(ZentenceError, match="a list of sentences"):
        space.reconstruct("a cat .")
    with pytest.raises(ZentenceError, match="at least 2 steps"):
        space.interpolate("a", "cat", steps=1)
