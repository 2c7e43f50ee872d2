"""What label control is measured by, against cases worked by hand and sacrebleu's own API; its codes; bad input."""

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from sacrebleu.metrics import BLEU

from zentence.corpora.vocabulary import build_vocabulary
from zentence.errors import ZentenceError
from zentence.evaluation.text import pool_bleu, self_bleu
from zentence.guided import codes as codes_module
from zentence.guided.codes import LabelledCodes, draws_codes, encoded
from zentence.guided.label_control import LabelControl, read_settings
from zentence.guided.label_gan import GanOptions, LabelGan
from zentence.guided.oracle import Oracle, evaluate_label_control, g_score, measure
from zentence.latent import LatentSpace
from zentence.parts import Part
from zentence.settings import CorpusSettings, StageSettings
from zentence.testing import tiny_model, tiny_settings

GOOD, BAD = ["good", "fine", "great", "lovely", "tasty"], ["bad", "awful", "poor", "cold", "stale"]


def reviews(count: int, seed: int = 0) -> dict[str, list[str]]:
    random = np.random.default_rng(seed)
    return {
        label: [f"the {random.choice(['soup', 'bread', 'tea'])} is {random.choice(words)} ." for _ in range(count)]
        for label, words in (("minus", BAD), ("plus", GOOD))
    }


def write_tsv(path: Path, sentences: dict[str, list[str]]) -> Path:
    pairs = [
        (label, text)
        for texts in zip(*sentences.values(), strict=True)
        for label, text in zip(sentences, texts, strict=True)
    ]
    path.write_text("".join(f"{label}\t{text}\n" for label, text in pairs), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def space() -> LatentSpace:
    words = ["the", "soup", "bread", "tea", "is", ".", *GOOD, *BAD]
    vocabulary = build_vocabulary(dict.fromkeys(words, 5), CorpusSettings())
    model = tiny_model(vocabulary=len(vocabulary), spread=0.5).float()
    return LatentSpace(model, vocabulary, tiny_settings(), Path("somewhere/model"))


def made_control(space: LatentSpace, **changes: Any) -> LabelControl:
    torch.manual_seed(0)
    gan = LabelGan(space.size, 2, GanOptions(hidden_size=8, layers=1))
    about = {"file": "nowhere.tsv"}
    return LabelControl(space, gan, ("minus", "plus"), "codes", Path("here"), {**about, **changes})


def test_g_score_is_the_geometric_mean_that_the_paper_prints() -> None:
    for accuracy, bleu, printed in ((0.998, 0.398, 0.630), (0.878, 0.389, 0.584), (0.553, 0.198, 0.331)):
        assert g_score(accuracy, bleu) == pytest.approx(printed, abs=6e-4)  # Table 6
    assert g_score(0.5, 0.5) == pytest.approx(0.5)
    assert g_score(0.0, 1.0) == 0.0


def test_bleu_against_a_pool_is_sacrebleus_with_all_references() -> None:
    random = np.random.default_rng(0)
    made = [" ".join(f"w{n}" for n in random.integers(0, 6, random.integers(1, 12))) for _ in range(60)]
    sentences, references = made[:20], made[20:]
    scorer = BLEU(tokenize="none", force=True, effective_order=True)
    expected = [scorer.sentence_score(sentence, references).score for sentence in sentences]
    assert pool_bleu(sentences, iter(references)) == pytest.approx(expected)


def test_bleu_worked_by_hand() -> None:
    # words: 3 of 4, for "a" stands at most once in any reference; pairs: "a b" of 3, then smoothing by halves
    found = pool_bleu(["a a b c"], ["a b x", "c"], order=2)
    assert found == pytest.approx(100 * math.sqrt(3 / 4 * 1 / 3) * 1.0)
    # self-BLEU: two equal sentences are found in each other, the third has one word of two in common with them
    found = self_bleu(["a b", "a b", "a c"], order=1)
    assert found == pytest.approx([100.0, 100.0, 50.0])


def test_measured_rows_by_hand() -> None:
    class Judge:
        def right(self, sentences: dict[str, list[str]]) -> dict[str, Any]:
            return {label: np.array([label in text for text in texts]) for label, texts in sentences.items()}

    sentences = {"x": ["x a", "x a", "b"], "y": ["y b", "y b", "y b"]}
    row = measure(sentences, Judge(), ["x a", "y b"])  # type: ignore[arg-type]
    assert row.accuracy == pytest.approx(5 / 6)
    assert row.accuracy_of == {"x": pytest.approx(2 / 3), "y": 1.0}
    assert row.accuracy_error == pytest.approx(math.sqrt(5 / 36 / 5))
    every = [text for texts in sentences.values() for text in texts]
    assert row.bleu == pytest.approx(pool_bleu(every, ["x a", "y b"]).mean() / 100)
    assert row.g_score == pytest.approx(math.sqrt(row.accuracy * row.bleu))
    assert row.self_bleu == pytest.approx(self_bleu(every).mean() / 100)
    assert row.self_bleu_of["y"] == pytest.approx(1.0)
    assert row.distinct == pytest.approx(0.5)


def test_the_oracle_learns_words_that_tell_labels_apart() -> None:
    learnt, fresh = reviews(100), reviews(20, seed=1)
    oracle = Oracle([*learnt["minus"], *learnt["plus"]], ["minus"] * 100 + ["plus"] * 100)
    assert all(found.all() for found in oracle.right(fresh).values())
    swapped = oracle.right({"minus": fresh["plus"], "plus": fresh["minus"]})
    assert not any(found.any() for found in swapped.values())
    three = Oracle(["red", "green", "blue"] * 20, ["r", "g", "b"] * 20)
    assert all(found.all() for found in three.right({"r": ["red"], "g": ["green"], "b": ["blue"]}).values())


def test_encoded_in_chunks_as_at_once(space: LatentSpace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = reviews(15)
    file = write_tsv(tmp_path / "reviews.tsv", texts)
    with encoded(space, file, draws=3, seed=1) as whole:
        vectors, labels, digest = np.array(whole.vectors), whole.labels, whole.digest
        assert whole.names == ("minus", "plus")
    monkeypatch.setattr(codes_module, "CHUNK", 7)
    seen: list[int] = []
    with encoded(space, file, draws=3, seed=1, progress=seen.append) as parts:
        assert np.array(parts.vectors) == pytest.approx(vectors, abs=1e-5)
        assert (parts.labels == labels).all() and parts.digest == digest
    assert seen == [7, 14, 21, 28, 30]
    assert vectors.shape == (30, 3, space.size)
    assert np.abs(vectors[:, 0] - vectors[:, 1]).max() > 0.01  # draws, not means
    assert labels.tolist() == [0, 1] * 15
    with encoded(space, file, on="features") as features:
        lines = [text for pair in zip(texts["minus"], texts["plus"], strict=True) for text in pair]
        assert np.array(features.vectors[:, 0]) == pytest.approx(space.features(lines), abs=1e-5)


def test_an_auto_encoder_of_means_gives_means(space: LatentSpace, tmp_path: Path) -> None:
    stage = StageSettings(objective=Part(name="autoencoder", code="mean"))
    settings = space.settings.model_copy(update={"stages": (stage,)})
    other = LatentSpace(space.model, space.vocabulary, settings)
    assert draws_codes(space) and not draws_codes(other)
    texts = reviews(10)
    with encoded(other, write_tsv(tmp_path / "reviews.tsv", texts), draws=4) as found:
        assert found.vectors.shape == (20, 1, space.size)
        assert np.array(found.vectors[::2, 0]) == pytest.approx(other.encode(texts["minus"]), abs=1e-5)


def test_one_class_and_too_few_sentences_are_refused(space: LatentSpace, tmp_path: Path) -> None:
    file = tmp_path / "one.tsv"
    file.write_text("minus\tthe soup is bad .\n" * 3, encoding="utf-8")
    with (
        pytest.raises(ZentenceError, match=r"one class only \('minus'\): label control needs two labels"),
        encoded(space, file),
    ):
        pass
    few = LabelledCodes(np.zeros((25, 1, 2), np.float32), np.array([0] * 20 + [1] * 5), ("a", "b"), "")
    with pytest.raises(ZentenceError, match="Label 'b' has 5 sentences only: each label needs at least 10"):
        few.split(0)


def test_held_out_sentences_are_kept_from_training() -> None:
    codes = LabelledCodes(np.zeros((60, 1, 2), np.float32), np.arange(60) % 3 % 2, ("a", "b"), "")
    training, held = codes.split(4)
    for label in range(2):
        assert sorted([*training[label], *held[label]]) == codes.rows_of(label).tolist()
        assert len(held[label]) == len(codes.rows_of(label)) // 10
    assert (codes.split(4)[1][0] == held[0]).all() and len({tuple(codes.split(s)[1][0]) for s in range(5)}) > 1


def test_sentences_do_not_depend_on_how_many_are_asked_for(space: LatentSpace) -> None:
    control = made_control(space)
    whole = control.codes("plus", 7, seed=3)
    assert np.concatenate(
        [control.codes("plus", 3, seed=3), control.codes("plus", 4, seed=3, first=3)]
    ) == pytest.approx(whole, abs=1e-6)
    assert control.write("plus", 7, seed=3)[3:] == control.write("plus", 4, seed=3, first=3)
    for other in (
        control.codes("minus", 7, seed=3),
        control.codes("plus", 7, seed=4),
        control.codes("plus", 7, gaussian=True),
    ):
        assert np.abs(other - whole).max() > 0.01


def test_features_are_mapped_to_codes_by_the_posterior(space: LatentSpace) -> None:
    torch.manual_seed(0)
    size = int(space.model.encoder.feature_size)
    gan = LabelGan(size, 2, GanOptions(hidden_size=8, layers=1))
    control = LabelControl(space, gan, ("minus", "plus"), "features", Path("here"), {})
    assert control.codes("plus", 5).shape == (5, space.size)
    assert len(control.write("plus", 2)) == 2


def test_a_label_never_seen_is_refused(space: LatentSpace) -> None:
    with pytest.raises(ZentenceError, match=r"Label 'plud' was never seen in training\. Did you mean 'plus'"):
        made_control(space).write("plud", 3)
    with pytest.raises(ZentenceError, match="at least 1"):
        made_control(space).write("plus", 0)


def test_a_whole_evaluation(space: LatentSpace, tmp_path: Path) -> None:
    train, test = write_tsv(tmp_path / "train.tsv", reviews(40)), write_tsv(tmp_path / "test.tsv", reviews(12, seed=2))
    found = evaluate_label_control(made_control(space), test, train=train, each=1000, words={"max_words": 6})
    assert list(found.rows) == ["real text", "real text, decoded", "GAN on codes", "Gaussians on codes"]
    assert found.each == 20 and found.references == 24 and found.oracle_sentences == 40  # half of what the file has
    assert found.oracle_accuracy == 1.0 and found.rows["real text"].accuracy == 1.0
    assert found.rows["real text"].bleu > found.rows["GAN on codes"].bleu  # a GAN that has learnt nothing
    assert found.to_dict()["rows"]["GAN on codes"]["sentences"].keys() == {"minus", "plus"}
    twice = [made_control(space), made_control(space)]
    again = evaluate_label_control(made_control(space), test, train=train, beside=twice, words={"max_words": 6})
    assert {name: again.rows[name] for name in found.rows} == found.rows
    assert [name for name in again.rows if name.startswith("GAN")][1:] == [
        "GAN on codes of model",
        "GAN on codes, here",
    ]


def test_evaluations_that_cannot_be_done(space: LatentSpace, tmp_path: Path) -> None:
    train, control = write_tsv(tmp_path / "train.tsv", reviews(10)), made_control(space)
    strange = write_tsv(tmp_path / "strange.tsv", {"plus": ["the tea ."], "zero": ["the tea ."]})
    with pytest.raises(ZentenceError, match="Label 'zero' was never seen in training"):
        evaluate_label_control(control, strange, train=train)
    with pytest.raises(ZentenceError, match=r"nowhere.tsv is not there: give it with --train"):
        evaluate_label_control(control, train)
    other = SimpleNamespace(labels=("a", "b"), folder="other")
    with pytest.raises(ZentenceError, match="other has other labels than here"):
        evaluate_label_control(control, train, train=train, beside=[other])  # type: ignore[list-item]
    lonely = write_tsv(tmp_path / "lonely.tsv", {"plus": ["the tea ."], "minus": ["the tea ."]})
    with pytest.raises(ZentenceError, match="too few sentences of label 'minus'"):
        evaluate_label_control(control, train, train=lonely)


def test_settings_are_changed_by_name() -> None:
    changed = read_settings(["gan.loss=hinge", "fit.steps=7", "gan.noise_size=none"])
    assert changed.gan.loss == "hinge" and changed.fit.steps == 7 and changed.gan.noise_size is None
    with pytest.raises(ZentenceError, match=r"Unknown setting 'gan\.los'\. Did you mean 'loss'"):
        read_settings(["gan.los=hinge"])
