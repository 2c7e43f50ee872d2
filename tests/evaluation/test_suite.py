"""Measurements: names, kinds, counts, and figures that do not depend on how they were computed."""

import json
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from zentence.corpora import TokenStore, collate
from zentence.corpora.captions import captions as captions_grammar
from zentence.corpora.prepare import Corpus, prepare
from zentence.errors import ZentenceError
from zentence.evaluation import figures as figures_module
from zentence.evaluation.figures import compute_figures
from zentence.evaluation.journal import Journal
from zentence.evaluation.measurement import Measurement, read_results, write_results
from zentence.evaluation.policy import SamplePolicy
from zentence.evaluation.runs import read_sentence_figures
from zentence.evaluation.sentences import write_sentences
from zentence.evaluation.subject import Subject
from zentence.evaluation.suite import AFTER_TRAINING, evaluate_split, evaluate_subject
from zentence.model import LatentLM
from zentence.settings import CorpusSettings
from zentence.testing import tiny_model, tiny_settings


@pytest.fixture(scope="module")
def corpus(captions: Path) -> Corpus:
    return prepare(CorpusSettings(), [captions / "train.txt"], [captions / "valid.txt"])


@pytest.fixture(scope="module")
def split(corpus: Corpus) -> tuple[TokenStore, int]:
    return corpus.splits["valid"], len(corpus.vocabulary)


def subject_of(corpus: Corpus, model: LatentLM, overrides: Sequence[str] = (), **options: Any) -> Subject:
    store, settings = corpus.splits["valid"], tiny_settings(overrides)
    return Subject(model, store, corpus.vocabulary, settings, "valid", training=corpus.splits["train"], **options)


def model_for(size: int, language_model: bool = False) -> LatentLM:
    return tiny_model(vocabulary=size, spread=0.3, language_model=language_model)


@pytest.mark.parametrize("policy", [SamplePolicy(30), SamplePolicy(None, 0.05)])
def test_figures_do_not_depend_on_the_batch_size(
    split: tuple[TokenStore, int], monkeypatch: pytest.MonkeyPatch, policy: SamplePolicy
) -> None:
    store, size = split
    model = tiny_model(vocabulary=size, spread=0.6)
    whole = compute_figures(model, store, policy=policy, seed=3, information_sentences=100, diagnose=True)
    monkeypatch.setattr(figures_module, "BATCH_TOKENS", 30)
    small = compute_figures(model, store, policy=policy, seed=3, information_sentences=100, diagnose=True)
    assert set(whole.values["samples"]) != {32.0}
    for name, values in whole.values.items():
        tail = name == "pareto_k"  # NaN where a sentence has too few codes for one
        assert values == pytest.approx(small.values[name], abs=1e-8, nan_ok=tail), name
    assert np.isfinite(whole.values["pareto_k"]).any()
    assert whole.tokens.tolist() == small.tokens.tolist()
    assert whole.centers is not None and small.centers is not None
    assert whole.centers.numpy() == pytest.approx(small.centers.numpy(), abs=1e-12)
    assert whole.per_dimension == pytest.approx(small.per_dimension, abs=1e-12)
    assert np.array(whole.curve) == pytest.approx(np.array(small.curve), abs=1e-8)


def test_a_limit_takes_the_first_sentences(split: tuple[TokenStore, int]) -> None:
    store, size = split
    model = model_for(size)
    whole = compute_figures(model, store, policy=SamplePolicy(2), seed=0)
    part = compute_figures(model, store, policy=SamplePolicy(2), seed=0, limit=7)
    assert part.values["iw_nll"] == pytest.approx(whole.values["iw_nll"][:7], abs=1e-9)


def test_measurements_of_a_model_with_a_code(corpus: Corpus) -> None:
    store = corpus.splits["valid"]
    model = model_for(len(corpus.vocabulary))
    found = evaluate_split(model, store, corpus.vocabulary, tiny_settings(), split="valid", samples=6, seed=0)
    by_name = {m.name: m for m in found}
    assert set(by_name) == {name for name in AFTER_TRAINING if "bpe" not in name} - {"nll", "source_nll"}
    assert by_name["elbo_nll"].kind == by_name["iw_nll"].kind == by_name["ppl"].kind == "upper_bound"
    assert by_name["elbo_nll"].value == pytest.approx(by_name["rate"].value + by_name["distortion"].value)
    assert sum(by_name["rate"].details["per_dimension"]) == pytest.approx(by_name["rate"].value, abs=1e-5)
    assert by_name["iw_nll"].value <= by_name["elbo_nll"].value + 0.5
    assert by_name["iw_nll"].details["stochastic"] is True and by_name["iw_nll"].samples == 6
    curve = by_name["iw_nll"].details["k_curve"]
    assert [k for k, _ in curve] == [1, 2, 5, 6] and curve[-1][1] == pytest.approx(by_name["iw_nll"].value)
    assert sum(by_name["iw_nll"].details["histogram"]["counts"]) == len(store)
    information = by_name["mutual_information"]
    assert information.details["M"] == len(store) and information.details["log_M"] == math.log(len(store))
    assert by_name["marginal_kl"].value == pytest.approx(by_name["rate"].value - information.value)
    assert by_name["active_units"].details["threshold"] == 0.01
    for m in found:
        assert m.count == len(store) and m.split == "valid" and m.provenance["zentence"] and m.provenance["settings"]
        assert m.provenance["store"] == store.folder.name
        json.dumps(asdict(m), allow_nan=False)


def test_figures_per_word_and_byte_cover_the_ledger(corpus: Corpus) -> None:
    """Numerators and denominators cover the same tokens, with and without <eos>; bytes are those of the text."""
    store, ledger = corpus.splits["valid"], corpus.splits["valid"].ledger
    model, settings = model_for(len(corpus.vocabulary), True), tiny_settings(language_model=True)
    measured = evaluate_split(model, store, corpus.vocabulary, settings, split="valid", samples=1)
    found = {m.name: m for m in measured}
    assert set(found) == {"nll", "ppl", "ppl_without_eos", "bits_per_byte"}
    assert {m.kind for m in measured} == {"exact"}
    nats = found["nll"].value * len(store)
    assert found["ppl"].value == pytest.approx(math.exp(nats / ledger.predicted))
    assert found["ppl"].details["words"] + found["ppl"].details["eos"] == ledger.predicted
    assert found["ppl"].details["unknown"] == ledger.unknown
    assert found["bits_per_byte"].value == pytest.approx(nats / math.log(2.0) / ledger.bytes)
    last = 0.0
    for number in range(len(store)):
        batch = collate([store.sentence(number)], np.array([number]))
        with torch.no_grad():
            last -= float(model.token_log_prob(None, batch)[0, 0, -1])
    assert found["ppl_without_eos"].value == pytest.approx(math.exp((nats - last) / ledger.words))
    assert found["ppl_without_eos"].details["words"] == ledger.words and found["ppl_without_eos"].details["eos"] == 0


def test_with_a_code_the_perplexity_without_eos_is_that_of_the_distortion(corpus: Corpus) -> None:
    subject = subject_of(corpus, model_for(len(corpus.vocabulary)), policy=SamplePolicy(5))
    found = evaluate_subject(subject, ["ppl_without_eos", "distortion"])
    figures = {m.name: m for m in found.measurements}
    ppl, distortion = figures["ppl_without_eos"], figures["distortion"]
    assert ppl.kind == "not_a_bound" and ppl.details["of"] == "distortion"
    inner = distortion.value * subject.count - subject.figures().values["eos"].sum()
    assert ppl.value == pytest.approx(math.exp(inner / subject.store.ledger.words))


def test_standard_error_of_the_perplexity_by_bootstrap(corpus: Corpus) -> None:
    store, size = corpus.splits["valid"], len(corpus.vocabulary)
    model = model_for(size, True)
    settings = tiny_settings(language_model=True)
    found = evaluate_split(model, store, corpus.vocabulary, settings, split="valid", samples=1)
    error = next(m.standard_error for m in found if m.name == "ppl")
    figures = compute_figures(model, store, policy=SamplePolicy(1), seed=0)
    random = np.random.default_rng(0)
    values = []
    for _ in range(2000):
        rows = random.integers(0, len(store), len(store))
        values.append(np.exp(figures.values["nll"][rows].sum() / figures.tokens[rows].sum()))
    assert error == pytest.approx(float(np.std(values)), rel=0.15)


def test_the_source_figure_is_the_grammars(captions: Path) -> None:
    corpus = prepare(CorpusSettings(), [captions / "train.txt"], [captions / "valid.txt"])
    lines = (captions / "valid.txt").read_text(encoding="utf-8").splitlines()
    expected = [-captions_grammar().log_prob(line) for line in lines]
    found = corpus.source_nll("valid")
    assert found is not None and list(found) == pytest.approx(expected)
    limited = corpus.source_nll("valid", 3)
    assert limited is not None and list(limited) == pytest.approx(expected[:3])


def test_the_source_figure_covers_just_the_held_out_side(captions: Path) -> None:
    corpus = prepare(CorpusSettings(valid_share=0.2), [captions / "train.txt"])
    found = corpus.source_nll("valid")
    assert found is not None and len(list(found)) == len(corpus.splits["valid"])


def test_results_keep_other_figures_and_replace_the_same(tmp_path: Path) -> None:
    def figure(name: str, split: str, value: float) -> Measurement:
        return Measurement(name, value, "nats", "exact", None, 1, None, split, 0)

    path = tmp_path / "results.json"
    write_results(path, [figure("nll", "valid", 1.0), figure("ppl", "valid", 2.0)])
    write_results(path, [figure("nll", "test", 3.0), figure("nll", "valid", 4.0)])
    found = {(m.name, m.split): m.value for m in read_results(path)}
    assert found == {("nll", "valid"): 4.0, ("ppl", "valid"): 2.0, ("nll", "test"): 3.0}
    path.write_text("{}")
    with pytest.raises(ZentenceError, match="not a list of results"):
        read_results(path)


def test_metrics_are_checked_and_only_those_asked_for_are_given(corpus: Corpus) -> None:
    subject = subject_of(corpus, model_for(len(corpus.vocabulary)))
    with pytest.raises(ZentenceError, match=r"Unknown metric 'iw_nl'. Did you mean 'iw_nll'\?"):
        evaluate_subject(subject, ["iw_nl"])
    found = evaluate_subject(subject, ["active_units", "nll"])
    assert [m.name for m in found.measurements] == ["active_units"]
    assert found.unavailable == {"nll": "this model has a code: see iw_nll"}


def test_a_part_of_the_suite_has_the_figures_of_the_whole(corpus: Corpus) -> None:
    """The distortion is that of the pilot's codes, whether or not importance weights are wanted too."""
    model, names = model_for(len(corpus.vocabulary)), ["distortion", "rate", "mutual_information"]
    whole = evaluate_subject(subject_of(corpus, model), [*names, "iw_nll"])
    part = evaluate_subject(subject_of(corpus, model), names)
    values = {m.name: m.value for m in whole.measurements}
    assert {m.name: m.value for m in part.measurements} == {name: values[name] for name in names}


def test_what_a_planar_posterior_cannot_know_is_refused(corpus: Corpus) -> None:
    overrides = ["posterior.name=planar"]
    model = tiny_model(overrides, vocabulary=len(corpus.vocabulary), spread=0.3)
    names = ["mutual_information", "marginal_kl", "aggregate_prior_nll", "mixture_prior_nll", "active_units"]
    found = evaluate_subject(subject_of(corpus, model, overrides, prior_components=3), names)
    assert {m.name for m in found.measurements} == {"mixture_prior_nll", "active_units"}
    assert set(found.unavailable) == {"mutual_information", "marginal_kl", "aggregate_prior_nll"}


def test_a_language_model_has_no_figures_of_codes(corpus: Corpus) -> None:
    names = ["nll", "iw_nll", "melbo_nll", "active_units", "aggregate_prior_nll"]
    found = evaluate_subject(subject_of(corpus, model_for(len(corpus.vocabulary), True)), names)
    assert [m.name for m in found.measurements] == ["nll"]
    assert set(found.unavailable.values()) == {"this is a language model: it has no code"}


def test_averaged_codes_keep_the_published_figure_apart_from_the_bound(corpus: Corpus) -> None:
    overrides = ["averaged_codes=3"]
    model = tiny_model(overrides, vocabulary=len(corpus.vocabulary), spread=0.3)
    found = evaluate_subject(subject_of(corpus, model, overrides), ["elbo_nll", "iw_nll", "shuffled_code_gap"])
    kinds = {m.name: m.kind for m in found.measurements}
    assert kinds == {"elbo_nll": "not_a_bound", "iw_nll": "upper_bound", "shuffled_code_gap": "estimate"}


class Interrupted(Exception):  # noqa: N818 (stands for a key press)
    pass


def test_an_interrupted_evaluation_goes_on_where_it_stopped(
    corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(figures_module, "BATCH_TOKENS", 60)
    model = tiny_model(vocabulary=len(corpus.vocabulary), spread=0.5)
    names = ["iw_nll", "distortion", "mutual_information", "shuffled_code_gap", "melbo_nll", "aggregate_prior_nll"]
    expected = evaluate_subject(subject_of(corpus, model), names).measurements
    seen: list[tuple[str, int]] = []

    def stop_at(what: str, least: int) -> Callable[[str, int, int], None]:
        def progress(found: str, done: int, _total: int) -> None:
            seen.append((found, done))
            if found == what and done >= least:
                raise Interrupted

        return progress

    for what, least in (("likelihood", 8), ("shuffled codes", 8)):
        journal = Journal(tmp_path, "key")
        with pytest.raises(Interrupted):
            evaluate_subject(subject_of(corpus, model, journal=journal, progress=stop_at(what, least)), names)
    assert journal.get("figures-0") is not None and journal.get_json("group-likelihood") is not None
    calls: list[int] = []
    bounds = figures_module.bounds
    monkeypatch.setattr(figures_module, "bounds", lambda *a, **k: calls.append(1) or bounds(*a, **k))
    found = evaluate_subject(subject_of(corpus, model, journal=Journal(tmp_path, "key")), names)
    assert found.measurements == expected and not calls
    old, young = Journal(tmp_path, "old"), Journal(tmp_path, "young")
    for other in (old, young):
        other.put_json("group", 1)
    assert old.folder is not None and young.folder is not None
    os.utime(old.folder, (0, 0))
    journal.remove()
    assert list((tmp_path / ".evaluation").iterdir()) == [young.folder]
    young.remove()
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_journal_is_computed_again(corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures_module, "BATCH_TOKENS", 60)
    model = tiny_model(vocabulary=len(corpus.vocabulary), spread=0.5)
    warnings: list[str] = []
    names = ["iw_nll", "distortion"]
    expected = evaluate_subject(subject_of(corpus, model, journal=Journal(tmp_path, "key")), names).measurements
    folder = tmp_path / ".evaluation" / "key"
    (folder / "group-likelihood.npz").write_bytes(b"not a file of arrays")
    content = bytearray((folder / "figures-1.npz").read_bytes())
    content[len(content) // 2] ^= 255
    (folder / "figures-1.npz").write_bytes(content)
    again = evaluate_subject(subject_of(corpus, model, journal=Journal(tmp_path, "key", warnings.append)), names)
    assert again.measurements == expected
    assert len(warnings) == 2 and all("journal is damaged" in line for line in warnings)


def test_an_empty_split_is_refused(tmp_path: Path, corpus: Corpus) -> None:
    subject = subject_of(corpus, model_for(len(corpus.vocabulary)), limit=0)
    with pytest.raises(ZentenceError, match="no sentence"):
        evaluate_subject(subject)


def test_sentence_figures_are_written_in_the_splits_order(corpus: Corpus, tmp_path: Path) -> None:
    subject = subject_of(corpus, model_for(len(corpus.vocabulary)))
    write_sentences(tmp_path, "valid/part", subject.figures(), subject.store.folder.name, 7)
    found = read_sentence_figures(tmp_path / "sentences" / "valid" / "part.npz")
    assert found is not None and found.content == subject.store.folder.name
    assert {"iw_nll", "elbo_nll", "rate", "distortion", "tokens", "samples"} <= set(found.values)
    lengths = [subject.store.length(number) + 1 for number in range(subject.count)]
    assert found.values["tokens"].tolist() == lengths
    assert found.values["elbo_nll"] == pytest.approx(found.values["rate"] + found.values["distortion"])
