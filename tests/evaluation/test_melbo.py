"""MELBO: its floor, its growth with the number of sentences, and where it meets a rival."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from zentence.corpora.prepare import Corpus, prepare
from zentence.errors import ZentenceError
from zentence.evaluation.figures import Figures
from zentence.evaluation.melbo import extrapolate, mean_code_distortion, meeting_point, melbo_curve
from zentence.evaluation.priors import density_of_codes, swap_prior, training_features
from zentence.evaluation.subject import Subject
from zentence.evaluation.suite import evaluate_subject
from zentence.noise import Noise
from zentence.settings import CorpusSettings
from zentence.testing import tiny_model, tiny_settings


@pytest.fixture(scope="module")
def corpus(captions: Path) -> Corpus:
    return prepare(CorpusSettings(), [captions / "train.txt"], [captions / "valid.txt"])


def subject_of(corpus: Corpus, **options: object) -> Subject:
    model = tiny_model(vocabulary=len(corpus.vocabulary), spread=0.5)
    store, training = corpus.splits["valid"], corpus.splits["train"]
    return Subject(model, store, corpus.vocabulary, tiny_settings(), "valid", training=training, **options)  # type: ignore[arg-type]


def test_a_perfect_auto_encoder_reaches_the_floor(corpus: Corpus) -> None:
    subject = subject_of(corpus)
    nothing = np.zeros(subject.count)
    subject._figures = Figures({"distortion": nothing}, np.ones(subject.count), drawn=1)
    (found,) = evaluate_subject(subject, ["melbo_nll"]).measurements
    assert found.kind == "not_a_bound" and found.details["N"] == subject.count
    assert found.value == found.details["floor"] == pytest.approx(math.log(subject.count))
    assert all(mean == pytest.approx(math.log(n)) and std < 1e-12 for n, mean, std in found.details["curve"])


def test_melbo_is_distortion_and_log_of_the_count(corpus: Corpus) -> None:
    subject = subject_of(corpus, rival_nll=300.0)
    subject.autoencoder = subject.model
    found = {m.name: m for m in evaluate_subject(subject, ["melbo_nll", "distortion"]).measurements}
    melbo, distortion = found["melbo_nll"], found["distortion"]
    assert melbo.value == pytest.approx(distortion.value + math.log(subject.count))
    n, mean, spread = melbo.details["curve"][-1]
    assert (n, mean, spread) == (subject.count, pytest.approx(melbo.value), pytest.approx(0.0, abs=1e-9))
    expected = mean_code_distortion(subject.model, subject.store) + math.log(subject.count)
    assert melbo.details["autoencoder"] == pytest.approx(expected)
    assert melbo.details["meets"]["n"] == pytest.approx(math.exp(300.0 - distortion.value), rel=0.5)


def test_the_curve_against_all_sets() -> None:
    """A set of one is a sentence: mean and spread are those of the sentences; sets of n have spread σ/√n or less."""
    distortion = np.random.default_rng(0).normal(50.0, 10.0, size=1000)
    curve = melbo_curve(distortion, 0)
    n, mean, spread = curve[0]
    assert n == 1 and mean == pytest.approx(distortion.mean(), abs=0.05)
    assert spread == pytest.approx(distortion.std(), rel=0.02)
    fitted = extrapolate(curve)
    assert fitted["slope"] == pytest.approx(1.0, abs=0.02)
    assert fitted["intercept"] == pytest.approx(distortion.mean(), abs=0.1)
    assert meeting_point({"slope": 1.0, "intercept": 50.0}, 60.0) == pytest.approx(math.exp(10.0))
    assert meeting_point({"slope": 1.0, "intercept": 50.0}, 900.0) is None


def test_a_prior_of_training_codes_is_the_density_of_those_codes(corpus: Corpus) -> None:
    """The aggregate by its definition; the bound under it, by swapping it in, is the figure of the suite."""
    subject = subject_of(corpus, prior_sentences=40, prior_components=2)
    model = subject.model
    assert subject.training is not None
    features = training_features(model, subject.training, 40, 0)
    assert features.shape[0] == 40
    density = density_of_codes(model, "aggregate", features)
    z = torch.randn(5, 1, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    by_hand = model.posterior(features).log_prob(z.expand(-1, 40, -1)).logsumexp(1) - math.log(40)
    assert torch.allclose(density.log_prob(z)[:, 0], by_hand)
    found = {m.name: m for m in evaluate_subject(subject, ["aggregate_prior_nll", "mixture_prior_nll"]).measurements}
    assert found["aggregate_prior_nll"].details["training_sentences"] == 40
    assert found["mixture_prior_nll"].details["components"] == 2
    assert {m.kind for m in found.values()} == {"upper_bound"}
    swapped = subject_of(corpus)
    assert swapped.training is not None
    swap_prior(swapped.model, "aggregate", swapped.training, sentences=40)
    (under,) = evaluate_subject(swapped, ["iw_nll"]).measurements
    assert under.value == pytest.approx(found["aggregate_prior_nll"].value, abs=0.1)
    drawn = swapped.model.prior_density().rsample_and_log_prob(3, Noise(1, torch.arange(2)))[0]
    assert drawn.shape == (3, 2, 2)


def test_what_cannot_be_a_prior(corpus: Corpus) -> None:
    model = tiny_model(vocabulary=len(corpus.vocabulary))
    with pytest.raises(ZentenceError, match="Unknown prior 'flat'"):
        swap_prior(model, "flat", corpus.splits["train"], sentences=5)
    language_model = tiny_model(vocabulary=len(corpus.vocabulary), language_model=True)
    with pytest.raises(ZentenceError, match="no prior to swap"):
        swap_prior(language_model, "mixture", corpus.splits["train"])
    subject = subject_of(corpus)
    subject.training = None
    found = evaluate_subject(subject, ["aggregate_prior_nll", "rate"])
    assert found.unavailable == {"aggregate_prior_nll": "needs the training text, which is not at hand"}
