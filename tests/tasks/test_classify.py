from pathlib import Path
from typing import Any

import numpy as np
import pytest

from zentence.errors import ZentenceError
from zentence.tasks.classifiers import best_matching, cluster_accuracy, linear_accuracy, raw_accuracy, words_accuracy
from zentence.tasks.classify import (
    Accuracy,
    Classification,
    LabelledText,
    allot,
    classify,
    draw_rows,
    encode_study,
    plan_study,
    plan_trials,
    read_labelled,
)
from zentence.tasks.curve import draw_curve


class Codes:
    """A space whose codes are written in the sentences."""

    def encode(self, sentences: list[str], progress: Any = None) -> np.ndarray:
        if progress is not None:
            progress(len(sentences))
        return np.array([[float(word) for word in text.split()] for text in sentences], dtype=np.float32)


def made(centers: dict[str, tuple[float, float]], count: int, spread: float, seed: int) -> LabelledText:
    """Return `count` sentences of each class around its centre."""
    random = np.random.default_rng(seed)
    labels = [label for label in centers for _ in range(count)]
    points = [random.normal(centers[label], spread) for label in labels]
    return LabelledText("made", [" ".join(f"{x:.4f}" for x in point) for point in points], labels)


APART = {"a": (0.0, 0.0), "b": (8.0, 0.0), "c": (0.0, 8.0)}
NEAR = {"a": (0.0, 0.0), "b": (1.5, 0.0)}


def run(centers: dict[str, tuple[float, float]], spread: float = 1.0, **options: Any) -> Classification:
    train, test = made(centers, 60, spread, 1), made(centers, 40, spread, 2)
    study = plan_study(train, test, **options)
    return classify(study, encode_study(Codes(), study))  # type: ignore[arg-type]


def test_separable_codes_are_told_apart_by_every_classifier() -> None:
    found = run(APART, spread=0.5, labels=[0, 30], repeats=2, classifiers=["linear", "mlp", "gmm"])
    assert {key: accuracy.runs for key, accuracy in found.results.items()} == {
        (0, "gmm"): (1.0, 1.0),
        **{(30, name): (1.0, 1.0) for name in ("linear", "mlp", "gmm")},
    }
    assert found.classes == ("a", "b", "c")
    assert found.majority[1] == pytest.approx(1 / 3)
    assert found.words.keys() == {30}


def test_the_linear_classifier_reaches_the_best_possible_accuracy() -> None:
    """Two unit Gaussians 1.5 apart overlap: Φ(0.75) = 0.773 at best."""
    test = made(NEAR, 4000, 1.0, 3)
    train = made(NEAR, 1000, 1.0, 4)
    codes = Codes()
    y, test_y = (np.repeat([0, 1], n) for n in (1000, 4000))
    accuracy = linear_accuracy(codes.encode(train.texts), y, codes.encode(test.texts), test_y, 0)
    assert accuracy == pytest.approx(0.7734, abs=0.02)


def test_regularisation_is_strong_where_codes_say_nothing() -> None:
    """With 200 noise dimensions and 60 labels, C = 100 would fit the noise; a chosen C keeps most of the signal."""
    random = np.random.default_rng(0)

    def noisy(count: int) -> tuple[np.ndarray, np.ndarray]:
        y = np.arange(count) % 2
        x = random.normal(size=(count, 200)).astype(np.float32)
        x[:, :20] += y[:, None]
        return x, y

    (x, y), (test_x, test_y) = noisy(60), noisy(2000)
    assert linear_accuracy(x, y, test_x, test_y, 0) > 0.8


def test_codes_as_they_are_keep_the_spread_that_tells_what_matters() -> None:
    """One dimension of spread 1 tells the classes apart, 50 of spread 0.1 say nothing; standardised, they say most."""
    random = np.random.default_rng(0)

    def drawn(count: int) -> tuple[np.ndarray, np.ndarray]:
        y = np.arange(count) % 2
        x = random.normal(size=(count, 51)).astype(np.float32) * 0.1
        x[:, 0] += 2.0 * y - 1.0
        return x * 7.0 + 30.0, y

    test_x, test_y = drawn(1000)
    raw, standardised = (
        np.mean([fit(*drawn(2), test_x, test_y, 0) for _ in range(10)]) for fit in (raw_accuracy, linear_accuracy)
    )
    assert raw > 0.99 > 0.9 > standardised
    assert raw_accuracy(test_x * 0.0, test_y, test_x, test_y, 0) == pytest.approx(0.5)


def test_clusters_are_named_by_the_best_matching() -> None:
    """Cluster 0 has class 0 five times and class 1 four times; cluster 1 has class 0 four times: 4 + 4 > 5 + 0."""
    clusters = np.array([0] * 9 + [1] * 4)
    labels = np.array([0] * 5 + [1] * 4 + [0] * 4)
    assert best_matching(clusters, labels, 2).tolist() == [1, 0]


def test_labels_name_the_clusters_where_there_are_some() -> None:
    """Two clear clusters; wrong labels name them wrongly, no labels at all as well as the test labels can."""
    random = np.random.default_rng(0)
    y = np.arange(200) % 2
    x = (random.normal(size=(200, 2)) * 0.1 + y[:, None] * 4).astype(np.float32)
    nothing = x[:0], y[:0]
    assert cluster_accuracy(x, nothing, x, y, 2, 0) == 1.0
    assert cluster_accuracy(x, (x[:4], y[:4]), x, y, 2, 0) == 1.0
    assert cluster_accuracy(x, (x[:4], 1 - y[:4]), x, y, 2, 0) == 0.0


def test_words_tell_classes_apart_without_a_model() -> None:
    texts = ["good food", "bad food", "good place", "bad place"] * 5
    y = np.array([1, 0] * 10)
    assert words_accuracy(texts, y, ["good thing", "bad thing"], np.array([1, 0]), 0) == 1.0


def test_runs_differ_in_their_sentences_and_repeat_with_their_seed() -> None:
    found = run(NEAR, labels=[6], repeats=3, seed=5)
    assert found == run(NEAR, labels=[6], repeats=3, seed=5)
    assert found.results != run(NEAR, labels=[6], repeats=3, seed=6).results
    accuracy = found.results[6, "linear"]
    figures = accuracy.to_dict()
    assert len(set(accuracy.runs)) > 1
    assert figures["mean"] == pytest.approx(np.mean(accuracy.runs))
    assert figures["std"] == pytest.approx(np.std(accuracy.runs, ddof=1)) and figures["std"] > 0


def test_a_spread_by_hand() -> None:
    assert Accuracy((0.5, 0.7)).to_dict() == {
        "mean": pytest.approx(0.6),
        "std": pytest.approx(0.1 * 2**0.5),
        "runs": [0.5, 0.7],
    }
    assert Accuracy((0.5,)).to_dict()["std"] is None


def test_labelled_sentences_keep_the_classes_in_proportion() -> None:
    assert allot(np.array([90, 10]), 10).tolist() == [9, 1]
    assert allot(np.array([98, 1, 1]), 10).tolist() == [8, 1, 1]
    assert allot(np.array([5, 5, 5]), 7).sum() == 7
    y = np.array([0] * 90 + [1] * 10)
    random = np.random.default_rng(0)
    assert np.bincount(y[draw_rows(y, 20, False, random)]).tolist() == [18, 2]
    assert np.bincount(y[draw_rows(y, 10, True, random)]).tolist() == [10, 10]
    assert len(np.unique(draw_rows(y, 100, False, random))) == 100


def test_classifiers_of_a_run_share_their_sentences_and_only_mixtures_see_the_rest() -> None:
    y = np.arange(50) % 2
    trials = plan_trials(y, [10], 2, False, ["linear", "gmm"], 0)
    assert np.array_equal(trials[0].rows, trials[1].rows)
    assert np.array_equal(trials[0].rows, plan_trials(y, [4, 10], 1, False, ["mlp"], 0)[1].rows)
    assert not np.array_equal(trials[0].rows, trials[2].rows)
    assert [len(trial.pool) for trial in trials] == [0, 50, 0, 50]


def test_one_label_a_class_is_enough() -> None:
    found = run(APART, spread=0.1, labels=[1], repeats=2, per_class=True)
    assert found.results[1, "linear"].runs == (1.0, 1.0)
    assert found.to_dict()["labels_are"] == "per class"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"labels": [121]}, "121 labels were asked for; the training text has 120 sentences"),
        ({"labels": [61], "per_class": True}, "61 labels a class were asked for; the smallest class has 60"),
        ({"labels": [1]}, "1 labels are too few for 2 classes"),
        ({"classifiers": ["liner"]}, "Did you mean 'linear'"),
    ],
)
def test_what_cannot_be_done_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ZentenceError, match=message):
        run(NEAR, **options)


def test_labels_must_fit(tmp_path: Path) -> None:
    path = tmp_path / "text.tsv"
    path.write_text("0\tone\n0\ttwo\n", encoding="utf-8")
    with pytest.raises(ZentenceError, match="one class only"):
        read_labelled(path)
    path.write_text("one\ntwo\n", encoding="utf-8")
    with pytest.raises(ZentenceError, match="line 1: no label"):
        read_labelled(path)
    train, test = made(NEAR, 5, 1.0, 0), LabelledText("test.tsv", ["0 0", "1 1"], ["a", "z"])
    with pytest.raises(ZentenceError, match="has the label 'z'"):
        plan_study(train, test, labels=[4])


def test_the_curve_is_drawn(tmp_path: Path) -> None:
    found = run(NEAR, labels=[0, 10], repeats=2)
    draw_curve(found, tmp_path / "curve.svg")
    drawn = (tmp_path / "curve.svg").read_text(encoding="utf-8")
    assert drawn.startswith("<?xml") and "LineCollection" in drawn
    with pytest.raises(ZentenceError, match="Cannot write"):
        draw_curve(found, tmp_path / "curve.xyz")
