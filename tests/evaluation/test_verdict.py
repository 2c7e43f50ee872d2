"""Is the code used? Shuffled codes, and the verdict in words."""

from pathlib import Path

import numpy as np
import pytest
import torch

from zentence.corpora import collate
from zentence.corpora.prepare import Corpus, prepare
from zentence.evaluation.measurement import Measurement
from zentence.evaluation.policy import SamplePolicy
from zentence.evaluation.subject import Subject
from zentence.evaluation.suite import evaluate_subject
from zentence.evaluation.verdict import Verdict, verdict
from zentence.model import LatentLM
from zentence.settings import CorpusSettings
from zentence.testing import tiny_model, tiny_settings

NAMES = ["rate", "mutual_information", "active_units", "shuffled_code_gap"]


@pytest.fixture(scope="module")
def corpus(captions: Path) -> Corpus:
    return prepare(CorpusSettings(), [captions / "train.txt"], [captions / "valid.txt"])


def informative(corpus: Corpus) -> LatentLM:
    """Return a model whose codes tell sentences apart; its decoder has not learnt to read them."""
    model = tiny_model(vocabulary=len(corpus.vocabulary), spread=0.8)
    with torch.no_grad():
        model.posterior.to_mean.weight.mul_(8.0)
        model.posterior.to_scale.weight.zero_()
        model.posterior.to_scale.bias.fill_(-4.0)
    return model


def measured(corpus: Corpus, model: LatentLM) -> list[Measurement]:
    subject = Subject(
        model, corpus.splits["valid"], corpus.vocabulary, tiny_settings(), "valid", policy=SamplePolicy(4)
    )
    return evaluate_subject(subject, NAMES).measurements


def test_a_decoder_that_reads_its_code_is_healthy(corpus: Corpus) -> None:
    model, store = informative(corpus), corpus.splits["valid"]
    batch = collate([store.sentence(number) for number in range(len(store))], np.arange(len(store)))
    codes = model.infer(batch.source).center.detach()[None]
    learner = torch.optim.Adam(model.decoder.parameters(), 0.05)
    for _ in range(80):
        learner.zero_grad()
        (-model.log_likelihood(codes, batch).mean()).backward()  # type: ignore[no-untyped-call]
        learner.step()
    found = measured(corpus, model)
    judged = verdict(found)
    gap = next(m for m in found if m.name == "shuffled_code_gap")
    assert gap.value > 0.5 and gap.details["shuffled_distortion"] > gap.value
    assert judged.healthy and judged.text.startswith("2 of 2 units active, ")
    assert f"the decoder loses {gap.value:.1f} nats without the code" in judged.text


def test_an_informative_encoder_with_a_decoder_that_ignores_the_code_is_not_healthy(corpus: Corpus) -> None:
    model = informative(corpus)
    with torch.no_grad():
        model.decoder.start_map.weight.zero_()
        model.decoder.recurrence.weight_ih_l0[:, -2:].zero_()
    found = measured(corpus, model)
    values = {m.name: m.value for m in found}
    assert values["shuffled_code_gap"] == 0.0 and values["active_units"] == 2 and values["mutual_information"] > 0.5
    judged = verdict(found)
    assert judged.state == "ignored" and not judged.healthy
    assert "loses nothing" in judged.text and "ignores the code" in judged.text


def test_a_posterior_that_is_the_prior_has_collapsed(corpus: Corpus) -> None:
    model = informative(corpus)
    with torch.no_grad():
        for parameter in model.posterior.parameters():
            parameter.zero_()
    judged = verdict(measured(corpus, model))
    assert judged.state == "collapsed" and judged.text.startswith("0 of 2 units active, 0.0 nats of information")


def figure(name: str, value: float, **details: object) -> Measurement:
    return Measurement(name, value, "nats", "estimate", None, 9, None, "valid", 0, details=details)


def test_without_the_figures_nothing_is_claimed() -> None:
    assert verdict([figure("nll", 80.0)]) == Verdict("no code", "A language model: it has no code.")
    assert verdict([figure("mutual_information", 4.0)]).state == "unknown"
    assert verdict([]).state == "unknown"
    little = [figure("mutual_information", 4.0), figure("shuffled_code_gap", 0.4)]
    assert verdict(little).state == "ignored"  # a fraction of what the code knows
    full = [figure("mutual_information", 8.0, saturated=True), figure("shuffled_code_gap", 20.0)]
    assert verdict(full).text.startswith("at least 8.0 nats of information")
