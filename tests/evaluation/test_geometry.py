"""Geometry on codes made so that the answer is known."""

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats

from zentence.corpora.prepare import Corpus, prepare
from zentence.evaluation import geometry as module
from zentence.evaluation import passes, text
from zentence.evaluation.geometry import METRIC_NAMES, choose_pairs, geometry, other_sentences, pearson
from zentence.evaluation.passes import Encoded, encode_split, texts
from zentence.evaluation.recorder import Recorder
from zentence.evaluation.subject import Subject
from zentence.evaluation.text import edit_distances
from zentence.latent import LatentSpace
from zentence.model import LatentLM
from zentence.settings import CorpusSettings
from zentence.testing import tiny_model, tiny_settings


@pytest.fixture(scope="module")
def corpus(captions: Path) -> Corpus:
    return prepare(CorpusSettings(), [captions / "train.txt"], [captions / "valid.txt"])


def model_of(corpus: Corpus, *overrides: str) -> LatentLM:
    return tiny_model(overrides, vocabulary=len(corpus.vocabulary), spread=0.8)


def subject_of(corpus: Corpus, model: LatentLM, **options: object) -> Subject:
    return Subject(model, corpus.splits["valid"], corpus.vocabulary, tiny_settings(), "valid", **options)  # type: ignore[arg-type]


def measured(subject: Subject) -> Recorder:
    recorder = Recorder(subject.split, subject.seed, {})
    geometry(subject, recorder)
    return recorder


def with_centers(centers: torch.Tensor) -> Encoded:
    return Encoded(centers, centers, centers[:, None])


def test_every_figure_is_there_without_text(corpus: Corpus) -> None:
    recorder = measured(subject_of(corpus, model_of(corpus)))
    assert tuple(m.name for m in recorder.measurements) == METRIC_NAMES and not recorder.unavailable
    for m in recorder.measurements:
        assert m.standard_error is not None
        json.dumps(asdict(m), allow_nan=False)
    for m in recorder.measurements[2:]:
        same, other = m.details["same"], m.details["other"]
        assert same["edges"] == other["edges"] and sum(same["counts"]) == m.count == len(corpus.splits["valid"])
        assert sum(other["counts"]) == m.count * m.details["others"]
        assert m.value == pytest.approx(m.details["mean_same"] - m.details["mean_other"])


def test_codes_that_are_sentences_are_perfectly_smooth(corpus: Corpus) -> None:
    """Codes from classical scaling of the edit distances: with a constant added they are met exactly."""
    subject = subject_of(corpus, model_of(corpus))
    sentences = list(texts(subject, subject.store))
    count = len(sentences)
    edits = np.array([edit_distances([a] * count, sentences) for a in sentences], dtype=np.float64)
    # any distances plus a constant that is large enough are those of points (Cailliez, 1983)
    apart = edits + 100.0 * (1.0 - np.eye(count))
    center = np.eye(count) - 1.0 / count
    values, vectors = np.linalg.eigh(-0.5 * center @ apart**2 @ center)
    assert values.min() > -1e-6, "the constant must be large enough"
    points = torch.from_numpy(vectors * np.sqrt(values.clip(min=0.0)))
    recorder = Recorder("valid", 0, {})
    module._smoothness(subject, recorder, with_centers(points))
    (found,) = recorder.measurements
    assert found.value == pytest.approx(1.0, abs=1e-9) and found.standard_error == pytest.approx(0.0, abs=1e-9)
    assert found.details["pairs"] == count * (count - 1) // 2 and found.count == count


def test_smoothness_is_the_correlation_over_the_pairs(corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    subject = subject_of(corpus, model_of(corpus))
    centers = encode_split(subject, "geometry").centers
    sentences = list(texts(subject, subject.store))
    for most in (100_000, 50):
        monkeypatch.setattr(module, "PAIRS", most)
        recorder = Recorder("valid", 0, {})
        module._smoothness(subject, recorder, with_centers(centers))
        one, other = choose_pairs(len(sentences), most, 0)
        edits = edit_distances([sentences[i] for i in one], [sentences[j] for j in other])
        apart = (centers[one] - centers[other]).norm(dim=1).numpy()
        assert recorder.measurements[0].value == pytest.approx(stats.pearsonr(apart, edits).statistic)
        assert recorder.measurements[0].details["pairs"] == len(one)


def test_correlation_and_its_error() -> None:
    random = np.random.default_rng(0)
    values = []
    for _ in range(400):
        x = random.normal(size=100)
        values.append(pearson(x, 0.6 * x + 0.8 * random.normal(size=100)))
    found = np.array(values)
    assert found[:, 0].mean() == pytest.approx(0.6, abs=0.02)
    assert found[:, 1].mean() == pytest.approx(found[:, 0].std(), rel=0.15), "the error is the spread over repeats"
    assert pearson(np.ones(10), np.arange(10)) is None and pearson(np.arange(3), np.arange(3)) is None


def test_pairs_are_of_different_sentences() -> None:
    one, other = choose_pairs(5, 100, 0)
    assert sorted(zip(one.tolist(), other.tolist(), strict=True)) == [(i, j) for i in range(5) for j in range(i + 1, 5)]
    one, other = choose_pairs(50, 1000, 0)
    assert len(one) == 1000 and (one != other).all() and one.max() < 50 and other.max() < 50
    assert not np.array_equal(one, choose_pairs(50, 1000, 1)[0])


@pytest.mark.parametrize("count", [2, 3, 30])
def test_other_sentences_are_other_and_each_comes_once(count: int) -> None:
    others = other_sentences(count, 10, 0)
    assert others.shape == (min(10, count - 1), count)
    for row in others:
        assert sorted(row.tolist()) == list(range(count)) and (row != np.arange(count)).all()
    for column in others.T:
        assert len(set(column.tolist())) == len(column)


def test_interpolation_against_the_space(corpus: Corpus) -> None:
    model = model_of(corpus).float()
    subject = subject_of(corpus, model)
    recorder = Recorder("valid", 0, {})
    module._interpolation(subject, recorder, encode_split(subject, "geometry"))
    (found,) = recorder.measurements
    space = LatentSpace(model, corpus.vocabulary, tiny_settings())
    sentences, count = list(texts(subject, subject.store)), len(corpus.splits["valid"])
    pairs = np.random.default_rng(module.derive_key(0, "lines")).permutation(count).reshape(-1, 2)
    ratios = []
    for a, b in pairs.tolist():
        line = space.interpolate(sentences[a], sentences[b], steps=11, max_words=passes.most_words(subject))
        way = int(edit_distances(line[:-1], line[1:]).sum())
        if way:
            ratios.append(int(edit_distances(line[:1], line[-1:])[0]) / way)
    assert len(ratios) == found.count == len(pairs) - found.details["constant"]
    assert found.value == pytest.approx(np.mean(ratios)) and 0.0 <= found.value <= 1.0


@pytest.mark.parametrize(
    ("line", "ratio"),
    [
        (["a b c", "x b c", "x y c", "x y z"], 1.0),  # one word after the other
        (["a b c", "a b c", "x y z", "x y z"], 1.0),  # a jump
        (["a b c", "q q q", "a b c", "x y z"], 1 / 3),  # there and back
        (["a b", "c d", "c d", "a b"], 0.0),
    ],
)  # fmt: skip
def test_ways_worked_by_hand(corpus: Corpus, monkeypatch: pytest.MonkeyPatch, line: list[str], ratio: float) -> None:
    monkeypatch.setattr(module, "POINTS", 4)
    monkeypatch.setattr(module, "LINES", 1)
    monkeypatch.setattr(module, "write", lambda subject, z, index, method: line)
    subject, recorder = subject_of(corpus, model_of(corpus)), Recorder("valid", 0, {})
    module._interpolation(subject, recorder, encode_split(subject, "geometry"))
    assert recorder.measurements[0].value == pytest.approx(ratio)
    largest = recorder.measurements[0].details["largest_step"]
    assert largest == {1.0: pytest.approx(1 / 3 if line[1] != line[0] else 1.0), 1 / 3: 1.0, 0.0: None}[ratio]


def test_pairs_against_all_densities(corpus: Corpus) -> None:
    subject = subject_of(corpus, model_of(corpus))
    encoded = encode_split(subject, "geometry")
    found = {m.name: m for m in measured(subject).measurements}
    q = subject.model.posterior(encoded.features)
    with torch.no_grad():
        every = q.log_prob(encoded.codes[:, 0][:, None].expand(-1, q.count, -1))  # [i, j]: log q(z_i|x_j)
    same = every.diagonal()
    assert found["log_posterior_pairs"].details["mean_same"] == pytest.approx(float(same.mean()))
    others = other_sentences(q.count, 10, 0)
    chosen = torch.stack([every[torch.from_numpy(row), torch.arange(q.count)] for row in others])
    assert found["log_posterior_pairs"].details["mean_other"] == pytest.approx(float(chosen.mean()))


def test_likelihood_of_pairs_without_use_of_the_code(corpus: Corpus) -> None:
    model = model_of(corpus)
    with torch.no_grad():
        model.decoder.start_map.weight.zero_()
        model.decoder.recurrence.weight_ih_l0[:, -model.code_size :] = 0.0
    recorder = measured(subject_of(corpus, model))
    found = {m.name: m for m in recorder.measurements}
    assert found["log_likelihood_pairs"].value == pytest.approx(0.0, abs=1e-9)
    assert "one sentence along each line" in recorder.unavailable["interpolation_smoothness"]
    assert found["log_posterior_pairs"].value > 0.0


def test_a_collapsed_posterior_is_not_smooth(corpus: Corpus) -> None:
    model = model_of(corpus)
    with torch.no_grad():
        for parameter in model.posterior.parameters():
            parameter.zero_()
    recorder = measured(subject_of(corpus, model))
    assert "equally far" in recorder.unavailable["smoothness"]
    found = {m.name: m.value for m in recorder.measurements}
    assert found["log_posterior_pairs"] == pytest.approx(0.0, abs=1e-9)


def test_figures_do_not_depend_on_the_batch_size(corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of(corpus, "averaged_codes=2")
    whole = measured(subject_of(corpus, model)).measurements
    for place in (passes, module):
        monkeypatch.setattr(place, "ROWS", 3)
    for one, other in zip(whole, measured(subject_of(corpus, model)).measurements, strict=True):
        assert one.name == other.name and one.value == pytest.approx(other.value, abs=1e-9)


def test_what_cannot_be_had_is_said(corpus: Corpus) -> None:
    recorder = measured(subject_of(corpus, model_of(corpus, "posterior.name=planar")))
    assert set(recorder.unavailable) == {"log_posterior_pairs"} and len(recorder.measurements) == 3
    recorder = measured(subject_of(corpus, model_of(corpus), limit=1))
    assert set(recorder.unavailable) == set(METRIC_NAMES) and not recorder.measurements
    language_model = tiny_model(vocabulary=len(corpus.vocabulary), language_model=True)
    recorder = measured(subject_of(corpus, language_model))
    assert set(recorder.unavailable) == set(METRIC_NAMES) and not recorder.measurements


def test_flows_with_an_inverse_have_all_figures(corpus: Corpus) -> None:
    recorder = measured(subject_of(corpus, model_of(corpus, "posterior.name=iaf"), limit=6))
    assert len(recorder.measurements) == 4 and not recorder.unavailable


def test_without_rapidfuzz_only_edit_distances_are_missing(corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "find_spec", lambda library: None)
    recorder = measured(subject_of(corpus, model_of(corpus), limit=5))
    assert set(recorder.unavailable) == {"smoothness", "interpolation_smoothness"}
    assert "zentence[metrics]" in recorder.unavailable["smoothness"] and len(recorder.measurements) == 2
