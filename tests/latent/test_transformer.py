"""CodeTransformer in scikit-learn's hands."""

import importlib
import io
import subprocess
import sys
from collections import Counter
from pathlib import Path

import joblib
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline

from zentence.checkpoint import save_model, save_settings
from zentence.corpora.vocabulary import build_vocabulary
from zentence.errors import ZentenceError
from zentence.latent import LatentSpace
from zentence.latent.transformer import CodeTransformer
from zentence.settings import CorpusSettings
from zentence.testing import tiny_model, tiny_settings

SENTENCES = ["a cat sat .", "the dog ran to the cat .", "a dog .", "the cat sat to a dog .", "a cat .", "the dog ran ."]
LABELS = [0, 1, 0, 1, 0, 1]


def write_model(folder: Path, language_model: bool = False) -> Path:
    folder.mkdir()
    vocabulary = build_vocabulary(Counter(" ".join(SENTENCES).split()), CorpusSettings())
    save_settings(folder, tiny_settings(language_model=language_model))
    vocabulary.save(folder / "tokenizer.json")
    save_model(folder, tiny_model(vocabulary=len(vocabulary), spread=0.8, language_model=language_model).float())
    return folder


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("models") / "tiny")


def test_features_are_codes(model_dir: Path) -> None:
    codes = LatentSpace.load(model_dir).encode(SENTENCES)
    transformer = CodeTransformer(model_dir).fit(SENTENCES)
    for sentences in (SENTENCES, tuple(SENTENCES), np.array(SENTENCES), np.array(SENTENCES, dtype=object)):
        assert np.array_equal(transformer.transform(sentences), codes)
    assert transformer.get_feature_names_out().tolist() == ["code0", "code1"]
    drawn = CodeTransformer(model_dir, sample=True, seed=3).fit_transform(SENTENCES)
    assert np.array_equal(drawn, LatentSpace.load(model_dir).encode(SENTENCES, sample=True, seed=3))


def test_copies_hold_parameters_only(model_dir: Path) -> None:
    fitted = CodeTransformer(model_dir, seed=4, batch_size=2).fit(SENTENCES)
    copy = clone(fitted)
    assert copy.get_params() == fitted.get_params()
    with pytest.raises(NotFittedError):
        copy.transform(SENTENCES)
    stored = io.BytesIO()
    joblib.dump(fitted, stored)
    assert stored.tell() < 2000  # no weights
    stored.seek(0)
    assert np.array_equal(joblib.load(stored).transform(SENTENCES), fitted.transform(SENTENCES))


def test_a_changed_parameter_is_heeded(model_dir: Path, tmp_path: Path) -> None:
    transformer = CodeTransformer(model_dir).fit(SENTENCES)
    before = transformer.transform(SENTENCES)
    other = write_model(tmp_path / "other")
    LatentSpace.load(other).save_pretrained(tmp_path / "third")
    transformer.set_params(model_dir=tmp_path / "third", sample=True)
    assert not np.array_equal(transformer.fit(SENTENCES).transform(SENTENCES), before)
    transformer.set_params(model_dir=tmp_path / "gone/nowhere/else")
    with pytest.raises(ZentenceError, match="neither a model directory"):
        transformer.transform(SENTENCES)


def test_it_is_a_step_of_a_pipeline(model_dir: Path) -> None:
    pipeline = make_pipeline(CodeTransformer(model_dir), LogisticRegression(C=100.0))
    assert pipeline.fit(SENTENCES, LABELS).predict(SENTENCES).shape == (6,)
    assert cross_val_score(pipeline, SENTENCES, LABELS, cv=2).shape == (2,)
    assert pipeline[:-1].get_feature_names_out().tolist() == ["code0", "code1"]


def test_what_is_no_column_of_text_is_refused(model_dir: Path, tmp_path: Path) -> None:
    transformer = CodeTransformer(model_dir)
    for wrong, message in (
        ("a cat", "not one string"),
        ([["a cat"]], "Row 0 is not a sentence but list"),
        ([], "no sent"),
    ):
        with pytest.raises(ZentenceError, match=message):
            transformer.fit(wrong)
    with pytest.raises(ZentenceError, match="language model"):
        CodeTransformer(write_model(tmp_path / "lm", language_model=True)).fit(SENTENCES)


def test_without_scikit_learn_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.base", None)
    monkeypatch.delitem(sys.modules, "zentence.latent.transformer")
    with pytest.raises(ZentenceError, match="pip install scikit-learn"):
        importlib.import_module("zentence.latent.transformer")


def test_the_package_needs_neither_scikit_learn_nor_the_hub() -> None:
    code = """
import sys, zentence.latent.space, zentence.latent.hub
sys.exit(bool({"sklearn", "huggingface_hub"} & set(sys.modules)))
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
