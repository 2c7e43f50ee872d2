"""Codes and encoder features beside each other, and curves of few labels."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

from zentence.corpora.vocabulary import build_vocabulary
from zentence.errors import ZentenceError
from zentence.latent import LatentSpace
from zentence.settings import CorpusSettings
from zentence.tasks.classify import LabelledText
from zentence.tasks.subjects import choose_kinds, gather_subjects, unknown_share
from zentence.tasks.understand import plan_low_resource, understand
from zentence.testing import tiny_model, tiny_settings

WORDS = "a the cat dog sat ran to and ."


def make(language_model: bool = False) -> LatentSpace:
    vocabulary = build_vocabulary(Counter(WORDS.split()), CorpusSettings())
    model = tiny_model(vocabulary=len(vocabulary), spread=0.8, language_model=language_model).float()
    return LatentSpace(model, vocabulary, tiny_settings(language_model=language_model))


def labelled(name: str, count: int, seed: int) -> LabelledText:
    """Return sentences of one word, labelled by it."""
    random = np.random.default_rng(seed)
    labels = [("cat", "dog")[i] for i in random.integers(0, 2, size=count)]
    return LabelledText(name, [f"The {label} ." for label in labels], labels)


def never(_: Path) -> LatentSpace:
    raise AssertionError("no directory was named")


def test_features_are_what_the_posterior_is_made_from() -> None:
    space = make()
    texts = ["a cat sat .", "the dog ran to the cat .", "a dog ."]
    features = space.features(texts, batch_size=2)
    assert features.shape == (3, 6) and features.dtype == np.float32
    with torch.no_grad():
        means = space.model.posterior(torch.from_numpy(features)).center.numpy()
    assert means == pytest.approx(space.encode(texts), abs=1e-6)
    with pytest.raises(ZentenceError, match="language model"):
        make(language_model=True).features(texts)


def test_subjects_are_the_model_and_those_beside_it() -> None:
    space = make()
    found = gather_subjects(space, choose_kinds("both"), ["random", "runs/ae", "other/ae"], lambda _: make(), seed=1)
    assert [subject.title for subject in found] == [
        *("code", "encoder", "random: code", "random: encoder"),
        *("runs/ae: code", "runs/ae: encoder", "other/ae: code", "other/ae: encoder"),
    ]
    assert [subject.size for subject in found[:2]] == [2, 6]
    texts = ["A Cat sat.", "the dog"]  # read as "a cat sat ."
    assert np.array_equal(found[0].read(texts), space.encode(["a cat sat .", "the dog"]))
    assert np.array_equal(found[1].read(texts), space.features(["a cat sat .", "the dog"]))
    again, other = (gather_subjects(space, ["encoder"], ["random"], never, seed=seed)[1] for seed in (1, 2))
    assert np.array_equal(found[3].read(texts), again.read(texts))
    assert not np.allclose(again.read(texts), other.read(texts))
    assert not np.allclose(again.read(texts), found[1].read(texts))
    assert unknown_share(found[0], ["a zebra sat .", "the cat"]) == pytest.approx(1 / 6)


def test_what_cannot_be_compared_is_refused() -> None:
    with pytest.raises(ZentenceError, match="--features codes: choose one of code, encoder, both"):
        choose_kinds("codes")
    with pytest.raises(ZentenceError, match="the model is a language model"):
        gather_subjects(make(language_model=True), ["code"], [], never)
    with pytest.raises(ZentenceError, match="lm is a language model"):
        gather_subjects(make(), ["code"], ["lm"], lambda _: make(language_model=True))
    with pytest.raises(ZentenceError, match="began without pre-trained weights"):
        gather_subjects(make(), ["code"], ["pretrained"], never)


def test_runs_are_fewer_where_labels_are_many() -> None:
    y = ["a", "b"] * 2500
    text = LabelledText("train", ["a cat"] * 5000, y)
    study = plan_low_resource(text, text, repeats=5)
    assert Counter(trial.labels for trial in study.trials) == {1: 5, 10: 5, 100: 5, 1000: 5}
    study = plan_low_resource(text, text, per_class=[1000, 2000], repeats=5)
    assert Counter(trial.labels for trial in study.trials) == {1000: 5, 2000: 3}
    with pytest.raises(ZentenceError, match="2,501 labels a class were asked for; the smallest class has 2,500"):
        plan_low_resource(text, text, per_class=[2501])
    with pytest.raises(ZentenceError, match="at least 1 label a class"):
        plan_low_resource(text, text, per_class=[0])


def test_subjects_are_compared_on_the_same_sentences(tmp_path: Path) -> None:
    study = plan_low_resource(labelled("train", 60, 0), labelled("test", 40, 1), per_class=[1, 20], repeats=2)
    subjects = gather_subjects(make(), ["code", "encoder"], ["random"], never)
    told: list[str] = []
    found = understand(study, subjects, lambda what, *_: told.append(what))
    assert [curve.subject for curve in found.curves] == ["code", "encoder", "random: code", "random: encoder"]
    for curve in found.curves:  # one sentence a class: any vectors that differ tell them apart
        assert {labels: accuracy.runs for labels, accuracy in curve.values.items()} == {1: (1.0, 1.0), 20: (1.0, 1.0)}
    assert found.words[20].runs == (1.0, 1.0)
    assert list(dict.fromkeys(told))[:2] == ["code: reading", "code: fitting"]
    document = found.to_dict()
    assert document["results"][1] == {
        "subject": "code",
        "scheme": "feature-based",
        "size": 2,
        "labels_per_class": 20,
        "accuracy": {"mean": 1.0, "std": 0.0, "runs": [1.0, 1.0]},
    }
    found.draw(tmp_path / "curve.svg")
    drawn = (tmp_path / "curve.svg").read_text(encoding="utf-8")
    assert drawn.count("LineCollection") >= 5
