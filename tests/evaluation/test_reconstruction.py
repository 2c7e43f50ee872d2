"""Reconstructions on models that give everything back, nothing, or what is expected of them by hand."""

from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch

from zentence.corpora import collate
from zentence.corpora.prepare import Corpus, prepare
from zentence.distributions import DiagonalGaussian
from zentence.evaluation import passes, text
from zentence.evaluation.passes import texts
from zentence.evaluation.reconstruction import (
    COMPARISONS,
    SWAPS,
    WAYS,
    next_word_hits,
    reconstruction,
    swap_words,
    swapped_sources,
)
from zentence.evaluation.recorder import Recorder
from zentence.evaluation.subject import Subject
from zentence.latent import LatentSpace
from zentence.model import LatentLM
from zentence.settings import CorpusSettings
from zentence.testing import random_batch, tiny_model, tiny_settings
from zentence.types import EOS, PAD, Tokens

NOISY = [f"noisy_reconstruction_k{k}" for k in SWAPS]


@pytest.fixture(scope="module")
def corpus(captions: Path) -> Corpus:
    return prepare(CorpusSettings(), [captions / "train.txt"], [captions / "valid.txt"])


def subject_of(corpus: Corpus, model: LatentLM, **options: object) -> Subject:
    return Subject(model, corpus.splits["valid"], corpus.vocabulary, tiny_settings(), "valid", **options)  # type: ignore[arg-type]


def measured(subject: Subject) -> Recorder:
    recorder = Recorder(subject.split, subject.seed, {})
    reconstruction(subject, recorder)
    return recorder


def blind(model: LatentLM) -> LatentLM:
    """Make the decoder ignore the code."""
    with torch.no_grad():
        model.decoder.start_map.weight.zero_()
        model.decoder.recurrence.weight_ih_l0[:, -model.code_size :] = 0.0
    return model


def spread_model(corpus: Corpus, *overrides: str) -> LatentLM:
    return tiny_model(overrides, vocabulary=len(corpus.vocabulary), spread=0.8)


@pytest.mark.parametrize("overrides", [[], ["averaged_codes=3"], ["posterior.name=planar"]])
def test_every_figure_is_there_and_agrees_with_the_space(corpus: Corpus, overrides: list[str]) -> None:
    model = spread_model(corpus, *overrides).float()
    subject = subject_of(corpus, model, limit=12)
    recorder = measured(subject)
    found = {m.name: m for m in recorder.measurements}
    assert set(found) == {c + w for w in WAYS for c in COMPARISONS} | {"accuracy_gap", *NOISY}
    assert not recorder.unavailable and all(m.count == 12 for m in found.values())
    assert all(asdict(m)["unit"] for m in found.values())
    references = list(texts(subject, subject.store, 12))
    space = LatentSpace(model, corpus.vocabulary, tiny_settings())
    written = space.reconstruct(references, max_words=passes.most_words(subject))
    equal = [a == b for s, r in zip(written, references, strict=True) for a, b in zip(s.split(), r.split())]  # noqa: B905
    assert found["word_accuracy"].value == pytest.approx(sum(equal) / sum(len(r.split()) for r in references))
    assert found["bleu4"].details["from"] == "mean" and found["bleu4_from_sample"].details["from"] == "sample"
    assert found["bleu4_sampled_words"].details["method"] == "sample" and found["bleu1"].details["signature"]
    assert found["noisy_reconstruction_k2"].samples == model.averaged_codes


class ParrotState(NamedTuple):
    numbers: torch.Tensor
    place: int

    def select(self, rows: torch.Tensor) -> "ParrotState":
        return ParrotState(self.numbers[rows], self.place)


class Parrot(torch.nn.Module):
    """A decoder that writes the sentence whose number is its code's first dimension."""

    def __init__(self, sentences: list[list[int]], vocabulary: int) -> None:
        super().__init__()
        self.device_of = torch.nn.Parameter(torch.zeros(1))
        self.sentences, self.vocabulary = [[*s, EOS] for s in sentences], vocabulary

    def start(self, z: torch.Tensor, batch: int) -> ParrotState:
        return ParrotState(z[0, :, 0].round().long(), 0)

    def advance(self, token: torch.Tensor, state: ParrotState) -> tuple[torch.Tensor, ParrotState]:
        scores = torch.zeros(len(token), self.vocabulary)
        for row, number in enumerate(state.numbers.tolist()):
            scores[row, self.sentences[number][state.place]] = 50.0
        return scores, ParrotState(state.numbers, state.place + 1)


class Numbering(torch.nn.Module):
    """An encoder whose feature is the sentence's number."""

    def __init__(self, sentences: list[list[int]]) -> None:
        super().__init__()
        self.numbers = {tuple(sentence): float(number) for number, sentence in enumerate(sentences)}

    def forward(self, source: Tokens) -> torch.Tensor:
        rows = [tuple(row[1 : n - 1]) for row, n in zip(source.ids.tolist(), source.lengths.tolist(), strict=True)]
        return torch.tensor([[self.numbers[row]] for row in rows])


class Sharp(torch.nn.Module):
    """A posterior that is sure of its feature."""

    size = 1

    def forward(self, features: torch.Tensor) -> DiagonalGaussian:
        return DiagonalGaussian(features, torch.full_like(features, -9.0))


def parroting(corpus: Corpus, wrong_first_word: bool = False) -> Subject:
    """Return a model whose code is the sentence's number, and whose decoder knows all sentences by heart."""
    store = corpus.splits["valid"]
    sentences = [store.sentence(number).tolist() for number in range(len(store))]
    known = [[s[0] + 1, *s[1:]] for s in sentences] if wrong_first_word else sentences
    model = LatentLM(Parrot(known, len(corpus.vocabulary)), Numbering(sentences), Sharp(), torch.nn.Identity())
    return subject_of(corpus, model, wanted=frozenset(c + w for c in COMPARISONS for w in WAYS))


def test_a_model_that_gives_every_sentence_back(corpus: Corpus) -> None:
    for m in measured(parroting(corpus)).measurements:
        full = 100.0 if m.name.startswith("bleu") and "mean" not in m.name else 1.0
        assert m.value == pytest.approx(full), m.name


def test_a_model_that_errs_in_every_first_word(corpus: Corpus) -> None:
    found = {m.name: m.value for m in measured(parroting(corpus, wrong_first_word=True)).measurements}
    ledger = corpus.splits["valid"].ledger
    assert found["exact_match"] == 0.0
    assert found["word_accuracy"] == pytest.approx(1.0 - ledger.sentences / ledger.words)
    assert 0.0 < found["bleu4"] < found["bleu1"] < 100.0


def test_a_decoder_that_ignores_the_code_has_no_accuracy_gap(corpus: Corpus) -> None:
    model = blind(spread_model(corpus))
    found = {m.name: m for m in measured(subject_of(corpus, model)).measurements}
    assert found["accuracy_gap"].value == 0.0 and found["accuracy_gap"].standard_error == 0.0
    losses = [found[name].value for name in NOISY]
    assert losses == pytest.approx([found[NOISY[0]].details["without_swaps"]] * 4, abs=1e-9)


def test_next_word_hits_are_first_choices_of_the_scored_words() -> None:
    """Against the log-probabilities of all words put in the target's place, one after the other."""
    model, batch = tiny_model(spread=0.9), random_batch([3, 5, 1])
    z = torch.randn(1, 3, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    every = []
    for word in range(11):
        target = batch.target._replace(ids=torch.full_like(batch.target.ids, word))
        every.append(model.token_log_prob(z, batch._replace(target=target))[0])
    best = torch.stack(every).argmax(0)
    expected = ((best == batch.target.ids) & batch.target.mask()).sum(1)
    assert next_word_hits(model, z, batch).tolist() == expected.tolist()
    with torch.no_grad():
        model.decoder.output.bias[PAD] += 100.0
    assert next_word_hits(model, z, batch).tolist() == [0, 0, 0], "padding is no word"


def test_the_gap_is_what_the_posterior_tells(corpus: Corpus) -> None:
    """An informative posterior and a decoder that listens: the parts of the gap add up."""
    found = {m.name: m for m in measured(subject_of(corpus, spread_model(corpus))).measurements}["accuracy_gap"]
    assert found.value == pytest.approx(found.details["posterior"] - found.details["prior"])
    ledger = corpus.splits["valid"].ledger
    assert found.details["tokens"] == ledger.words + ledger.sentences


def test_swaps_keep_the_words_and_change_places() -> None:
    random = np.random.default_rng(0)
    words = [f"w{i}" for i in range(9)]
    for k in (1, 2, 3, 4):
        for _ in range(50):
            swapped = swap_words(words, random.random((k, 2)))
            moved = sum(a != b for a, b in zip(words, swapped, strict=True))
            assert Counter(swapped) == Counter(words) and moved <= 2 * k
            assert (moved == 2) if k == 1 else True
    assert swap_words(["a"], random.random((4, 2))) == ["a"] and swap_words([], random.random((4, 2))) == []
    assert swap_words(["a", "b"], random.random((3, 2))) == ["b", "a"], "three swaps of two places are one"


def test_every_pair_of_places_is_as_likely() -> None:
    random = np.random.default_rng(1)
    drawn = Counter("".join(swap_words(list("abcd"), random.random((1, 2)))) for _ in range(6000))
    assert len(drawn) == 6
    for count in drawn.values():
        assert abs(count - 1000) < 5 * np.sqrt(1000)


def test_swaps_depend_on_the_sentence_alone(corpus: Corpus) -> None:
    store, vocabulary = corpus.splits["valid"], corpus.vocabulary
    numbers = [4, 9, 2, 7]
    together = collate([store.sentence(i) for i in numbers], numbers)
    for k in SWAPS:
        read = swapped_sources(together, k, vocabulary, seed=0)
        assert torch.equal(read.target.ids, together.target.ids) and torch.equal(read.inputs, together.inputs)
        for row, number in enumerate(numbers):
            alone = swapped_sources(collate([store.sentence(number)], [number]), k, vocabulary, seed=0)
            length = int(read.source.lengths[row])
            assert read.source.ids[row, :length].tolist() == alone.source.ids[0].tolist()
            assert Counter(alone.source.ids[0].tolist()) == Counter(together.source.ids[row, :length].tolist())
    one, other = (swapped_sources(together, 4, vocabulary, seed) for seed in (0, 1))
    assert not torch.equal(one.source.ids, other.source.ids)


def test_figures_do_not_depend_on_the_batch_size(corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    model = spread_model(corpus)
    whole = measured(subject_of(corpus, model)).measurements
    monkeypatch.setattr(passes, "ROWS", 3)
    for one, other in zip(whole, measured(subject_of(corpus, model)).measurements, strict=True):
        assert one.name == other.name and one.value == pytest.approx(other.value, abs=1e-9)


def test_only_what_is_wanted_is_computed(corpus: Corpus) -> None:
    subject = subject_of(corpus, spread_model(corpus), wanted=frozenset({"accuracy_gap"}))
    assert [m.name for m in measured(subject).measurements] == ["accuracy_gap"]


def test_a_language_model_has_no_reconstructions(corpus: Corpus) -> None:
    model = tiny_model(vocabulary=len(corpus.vocabulary), language_model=True)
    recorder = measured(subject_of(corpus, model))
    assert not recorder.measurements
    assert set(recorder.unavailable) == {c + w for w in WAYS for c in COMPARISONS} | {"accuracy_gap", *NOISY}


def test_without_sacrebleu_only_bleu_is_missing(corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "find_spec", lambda library: None)
    recorder = measured(subject_of(corpus, spread_model(corpus), limit=5))
    assert set(recorder.unavailable) == {name + way for way in WAYS for name in ("bleu4", "bleu1")}
    assert "zentence[metrics]" in recorder.unavailable["bleu4"] and "exact_match" in {
        m.name for m in recorder.measurements
    }
