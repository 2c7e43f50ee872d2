"""Samples: the same whatever the batches, and figures that follow from them by definition."""

import json
import math
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import torch

from zentence.corpora import collate
from zentence.corpora.prepare import Corpus, prepare
from zentence.evaluation import sampling as module
from zentence.evaluation import text
from zentence.evaluation.kneser_ney import KneserNey
from zentence.evaluation.passes import texts
from zentence.evaluation.recorder import Recorder
from zentence.evaluation.sampling import COPYING, VARIETY, draw_samples, sampling
from zentence.evaluation.subject import Subject
from zentence.evaluation.text import distinct, nearest, self_bleu
from zentence.model import LatentLM
from zentence.settings import CorpusSettings
from zentence.testing import tiny_model, tiny_settings

EVERY = {*VARIETY, *COPYING, "forward_ppl", "reverse_ppl"}


@pytest.fixture(scope="module")
def corpus(captions: Path) -> Corpus:
    return prepare(CorpusSettings(), [captions / "train.txt"], [captions / "valid.txt"])


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("SAMPLES", 40), ("COPIES", 25), ("WRITTEN", 60)):
        monkeypatch.setattr(module, name, value)


def model_of(corpus: Corpus, *overrides: str, language_model: bool = False) -> LatentLM:
    return tiny_model(overrides, vocabulary=len(corpus.vocabulary), spread=0.8, language_model=language_model)


def subject_of(corpus: Corpus, model: LatentLM, **options: object) -> Subject:
    defaults: dict[str, object] = {
        "training": corpus.splits["train"],
        "reference": model_of(corpus, language_model=True),
    }
    store = corpus.splits["valid"]
    return Subject(model, store, corpus.vocabulary, tiny_settings(), "valid", **{**defaults, **options})  # type: ignore[arg-type]


def measured(subject: Subject) -> Recorder:
    recorder = Recorder(subject.split, subject.seed, {})
    sampling(subject, recorder)
    return recorder


def test_figures_follow_from_the_samples(corpus: Corpus) -> None:
    subject = subject_of(corpus, model_of(corpus))
    recorder = measured(subject)
    found = {m.name: m for m in recorder.measurements}
    assert set(found) == EVERY and not recorder.unavailable
    json.dumps([asdict(m) for m in found.values()], allow_nan=False)
    samples = [corpus.vocabulary.decode(row) for row in draw_samples(subject, 40, "greedy")]
    assert found["distinct_samples"].value == len(set(samples)) / 40
    assert found["self_bleu"].value == pytest.approx(self_bleu(samples).mean())
    assert found["distinct_1"].value == distinct(samples, 1) and found["distinct_2"].value == distinct(samples, 2)
    close = nearest(samples[:25], texts(subject, corpus.splits["train"]))
    assert found["copying_distance"].value == pytest.approx(close.distance.mean())
    assert found["copying_distance"].details["ter"] == pytest.approx(close.ter.mean())
    assert found["copying_distance"].count == 25 and found["exact_copies"].count == 40
    assert found["distinct_samples"].details["method"] == "greedy"
    assert found["reverse_ppl"].details["method"] == found["forward_ppl"].details["method"] == "sample"


def test_forward_perplexity_is_the_references(corpus: Corpus) -> None:
    subject = subject_of(corpus, model_of(corpus))
    found = {m.name: m for m in measured(subject).measurements}["forward_ppl"]
    samples = draw_samples(subject, 60, "sample")
    assert subject.reference is not None
    with torch.no_grad():
        batch = collate([np.array(row, dtype=np.int64) for row in samples], np.arange(60))
        nats = -float(subject.reference.log_likelihood(None, batch).sum())
    tokens = sum(len(row) + 1 for row in samples)
    assert found.value == pytest.approx(math.exp(nats / tokens))
    assert found.details["words"] + found.details["eos"] == tokens


def test_reverse_perplexity_is_that_of_an_ngram_model_of_the_samples(corpus: Corpus) -> None:
    subject = subject_of(corpus, model_of(corpus))
    found = {m.name: m for m in measured(subject).measurements}["reverse_ppl"]
    model = KneserNey(draw_samples(subject, 60, "sample"), len(corpus.vocabulary))
    store = corpus.splits["valid"]
    nats = sum(model.nats(store.sentence(i)) for i in range(len(store)))
    assert found.value == pytest.approx(math.exp(nats / (store.ledger.words + store.ledger.sentences)))
    real = found.details["from_training_text"]
    assert real["sentences"] == 60 and real["ppl"] < found.value, "a model that was never trained teaches less"


def test_samples_depend_on_their_number_alone(corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    for model in (model_of(corpus), model_of(corpus, "averaged_codes=2"), model_of(corpus, language_model=True)):
        subject = subject_of(corpus, model)
        whole = draw_samples(subject, 30, "sample")
        with monkeypatch.context() as small:
            small.setattr(module, "ROWS", 7)
            assert draw_samples(subject, 30, "sample") == whole and draw_samples(subject, 11, "sample") == whole[:11]
        assert draw_samples(subject_of(corpus, model, seed=1), 30, "sample") != whole


@pytest.mark.parametrize("prior", ["prior.name=mixture", "prior.name=standard_normal"])
def test_codes_differ_from_sample_to_sample(corpus: Corpus, prior: str) -> None:
    subject = subject_of(corpus, model_of(corpus, prior))
    assert len({tuple(row) for row in draw_samples(subject, 40, "greedy")}) > 3


def test_a_decoder_that_ignores_the_code_repeats_one_sentence(corpus: Corpus) -> None:
    model = model_of(corpus)
    with torch.no_grad():
        model.decoder.start_map.weight.zero_()
        model.decoder.recurrence.weight_ih_l0[:, -model.code_size :] = 0.0
    found = {m.name: m.value for m in measured(subject_of(corpus, model)).measurements}
    assert found["distinct_samples"] == 1 / 40 and found["self_bleu"] == pytest.approx(100.0)


def test_copies_are_found(corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    train = corpus.splits["train"]
    copied = [train.sentence(i).tolist() for i in range(10)] + [[4] * 50] * 30
    monkeypatch.setattr(module, "draw_samples", lambda subject, count, method: copied)
    subject = subject_of(corpus, model_of(corpus), wanted=frozenset(COPYING))
    found = {m.name: m for m in measured(subject).measurements}
    assert found["exact_copies"].value == 10 / 40
    assert found["copying_distance"].details["ter"] == pytest.approx(15 / 25)  # ten copies, fifteen like nothing
    assert found["copying_distance"].value >= 15 * 30 / 25


def test_a_language_model_samples_its_words(corpus: Corpus) -> None:
    recorder = measured(subject_of(corpus, model_of(corpus, language_model=True)))
    assert {m.name for m in recorder.measurements} == EVERY
    assert recorder.measurements[0].details["method"] == "sample"


def test_what_is_missing_is_said(corpus: Corpus) -> None:
    model = model_of(corpus)
    recorder = measured(subject_of(corpus, model, training=None, reference=None))
    assert set(recorder.unavailable) == {*COPYING, "forward_ppl"}
    assert "--reference" in recorder.unavailable["forward_ppl"]
    reverse = {m.name: m for m in recorder.measurements}["reverse_ppl"]
    assert reverse.details["from_training_text"] is None
    recorder = measured(subject_of(corpus, model, reference=model))
    assert "forward_ppl" in recorder.unavailable, "a model with a code is no judge"


def test_without_the_libraries_the_other_figures_stand(corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "find_spec", lambda library: None)
    recorder = measured(subject_of(corpus, model_of(corpus)))
    assert set(recorder.unavailable) == {"self_bleu", "copying_distance"}
    assert {m.name for m in recorder.measurements} == EVERY - set(recorder.unavailable)
