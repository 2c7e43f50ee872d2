"""Measurements: names, kinds, counts, and figures that do not depend on how they were computed."""

import json
import math
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from zentence.corpora import TokenStore
from zentence.corpora.captions import captions as captions_grammar
from zentence.corpora.prepare import prepare
from zentence.errors import ZentenceError
from zentence.evaluation import figures as figures_module
from zentence.evaluation.figures import compute_figures
from zentence.evaluation.measurement import Measurement, read_results, write_results
from zentence.evaluation.suite import evaluate_split
from zentence.model import LatentLM
from zentence.settings import CorpusSettings
from zentence.testing import tiny_model, tiny_settings


@pytest.fixture(scope="module")
def split(captions: Path) -> tuple[TokenStore, int]:
    corpus = prepare(CorpusSettings(), [captions / "train.txt"], [captions / "valid.txt"])
    return corpus.splits["valid"], len(corpus.vocabulary)


def model_for(size: int, language_model: bool = False) -> LatentLM:
    return tiny_model(vocabulary=size, spread=0.3, language_model=language_model)


def test_figures_do_not_depend_on_the_batch_size(
    split: tuple[TokenStore, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, size = split
    model = model_for(size)
    whole = compute_figures(model, store, samples=4, seed=3, information_sentences=100)
    monkeypatch.setattr(figures_module.evaluation_batches, "__defaults__", (None, 30))
    small = compute_figures(model, store, samples=4, seed=3, information_sentences=100)
    for name, values in whole.values.items():
        assert values == pytest.approx(small.values[name], abs=1e-9), name
    assert whole.tokens.tolist() == small.tokens.tolist()
    assert whole.centers is not None and small.centers is not None
    assert whole.centers.numpy() == pytest.approx(small.centers.numpy(), abs=1e-12)


def test_a_limit_takes_the_first_sentences(split: tuple[TokenStore, int]) -> None:
    store, size = split
    model = model_for(size)
    whole = compute_figures(model, store, samples=2, seed=0)
    part = compute_figures(model, store, samples=2, seed=0, limit=7)
    assert part.values["iw_nll"] == pytest.approx(whole.values["iw_nll"][:7], abs=1e-9)


def test_measurements_of_a_model_with_a_code(split: tuple[TokenStore, int]) -> None:
    store, size = split
    found = evaluate_split(model_for(size), store, tiny_settings(), split="valid", samples=6, seed=0)
    by_name = {m.name: m for m in found}
    assert list(by_name) == ["elbo_nll", "iw_nll", "ppl", "rate", "distortion", "mutual_information", "active_units"]
    assert by_name["elbo_nll"].kind == by_name["iw_nll"].kind == by_name["ppl"].kind == "upper_bound"
    assert by_name["elbo_nll"].value == pytest.approx(by_name["rate"].value + by_name["distortion"].value)
    assert by_name["iw_nll"].value <= by_name["elbo_nll"].value + 0.5
    assert by_name["iw_nll"].details["stochastic"] is True and by_name["iw_nll"].samples == 6
    information = by_name["mutual_information"]
    assert information.details["M"] == len(store) and information.details["log_M"] == math.log(len(store))
    assert by_name["active_units"].details["threshold"] == 0.01
    for m in found:
        assert m.count == len(store) and m.split == "valid" and m.provenance["zentence"] and m.provenance["settings"]
        json.dumps(asdict(m), allow_nan=False)


def test_perplexity_counts_words_and_one_eos_each(split: tuple[TokenStore, int]) -> None:
    store, size = split
    found = {m.name: m for m in evaluate_split(
        model_for(size, True), store, tiny_settings(language_model=True), split="valid", samples=1
    )}  # fmt: skip
    assert set(found) == {"nll", "ppl"} and found["nll"].kind == found["ppl"].kind == "exact"
    tokens = store.ledger.words + store.ledger.sentences
    assert found["ppl"].value == pytest.approx(math.exp(found["nll"].value * len(store) / tokens))
    assert found["ppl"].details == {"of": "nll", "words": store.ledger.words, "eos": store.ledger.sentences}
    assert found["ppl"].details["words"] + found["ppl"].details["eos"] == store.ledger.predicted


def test_standard_error_of_the_perplexity_by_bootstrap(split: tuple[TokenStore, int]) -> None:
    store, size = split
    model = model_for(size, True)
    found = evaluate_split(model, store, tiny_settings(language_model=True), split="valid", samples=1)
    error = next(m.standard_error for m in found if m.name == "ppl")
    figures = compute_figures(model, store, samples=1, seed=0)
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
