from collections import Counter
from typing import Any

import pytest
import torch

from zentence.corpora.vocabulary import build_vocabulary
from zentence.errors import ZentenceError
from zentence.latent import LatentSpace
from zentence.settings import CorpusSettings
from zentence.tasks.answer import answer_in, without_tags, write_answers
from zentence.testing import tiny_model, tiny_settings

VOCABULARY = build_vocabulary(Counter(["who", "is", "it", "?", "me", "you", "they"]), CorpusSettings())


def space(overrides: list[str] | None = None, language_model: bool = False) -> LatentSpace:
    changes = overrides or []
    model = tiny_model(changes, vocabulary=len(VOCABULARY), spread=1.0, language_model=language_model).float()
    with torch.no_grad():
        model.decoder.output.bias[3] += 5.0  # it would rather write <unk>
    return LatentSpace(model, VOCABULARY, tiny_settings(changes, language_model=language_model))


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("who is it ? me , or you ?", "me , or you ?"),
        ("who is it", ""),
        ("who ? ", ""),
        ("who ? me < br > or <a href='x?y'>you</a> <BR/>", "me or you"),
        ("is 3 < 4 ? yes , 3 < b and b > 2", "yes , 3 < b and b > 2"),
    ],
)
def test_the_answer_is_what_follows_the_first_question_mark(text: str, answer: str) -> None:
    assert answer_in(text) == answer


def test_only_tags_are_removed() -> None:
    assert without_tags("a <b>bold</b> < unknown > 1 < 2").split() == ["a", "bold", "<", "unknown", ">", "1", "<", "2"]


def test_lengths_are_told_by_unknown_words_and_codes_are_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}
    model = space()
    encode = model.encode

    def watched(sentences: list[str], **options: Any) -> Any:
        asked.update(options, sentences=sentences)
        return encode(sentences, **options)

    monkeypatch.setattr(model, "encode", watched)
    found = write_answers(model, "Who is it?", seed=3)
    assert asked["sentences"] == ["who is it ?" + " <unk>" * count for count in (5, 10, 15)]
    assert asked["sample"] is True
    assert list(found.answers) == ["short", "medium", "long"]
    assert all("<unk>" not in text for text in found.written.values())
    assert found.answers == {length: answer_in(text) for length, text in found.written.items()}
    assert found == write_answers(model, "Who is it?", seed=3)
    assert any(write_answers(model, "Who is it?", seed=seed).written != found.written for seed in range(10))
    assert found.to_dict()["question"] == "Who is it?"


def test_an_autoencoder_trained_on_means_answers_from_the_mean() -> None:
    model = space(['stages.0.objective={name="autoencoder", code="mean"}'])
    assert write_answers(model, "who", seed=1).written == write_answers(model, "who", seed=2).written


def test_a_language_model_has_no_answers() -> None:
    with pytest.raises(ZentenceError, match="language model"):
        write_answers(space(language_model=True), "who")
