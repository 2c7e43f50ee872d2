"""Codes as features for scikit-learn, which is imported with this module and by nothing else here."""

from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zentence.errors import ZentenceError
from zentence.latent.space import Codes, LatentSpace

try:
    _base: Any = import_module("sklearn.base")
    _validation: Any = import_module("sklearn.utils.validation")
except ImportError:
    raise ZentenceError("CodeTransformer needs scikit-learn: pip install scikit-learn") from None


class CodeTransformer(_base.TransformerMixin, _base.BaseEstimator):  # type: ignore[misc]
    """Turns sentences into codes [N, D]: a step of a scikit-learn pipeline.

    `model_dir` is a model directory, or a model's name on the Hub. Nothing is learnt by `fit`, which reads the model.
    Copies, also those sent to other processes, hold its name only and read it again when they need it.

    >>> make_pipeline(CodeTransformer("runs/my"), LogisticRegression()).fit(sentences, labels)
    """

    def __init__(
        self, model_dir: str | Path, *, sample: bool = False, seed: int = 0, batch_size: int = 128, device: str = "auto"
    ) -> None:
        self.model_dir = model_dir
        self.sample = sample
        self.seed = seed
        self.batch_size = batch_size
        self.device = device

    def fit(self, X: Iterable[str], y: Any = None) -> "CodeTransformer":  # noqa: ARG002
        """Read the model and check the sentences' form."""
        _sentences(X)
        space = self._space()
        if not space.model.has_code:
            raise ZentenceError(f"{self.model_dir} is a language model: it has no codes")
        self.size_ = space.size
        return self

    def transform(self, X: Iterable[str]) -> Codes:
        """Return the codes [N, D] of sentences."""
        _validation.check_is_fitted(self, "size_")
        return self._space().encode(_sentences(X), sample=self.sample, seed=self.seed, batch_size=self.batch_size)

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:  # noqa: ARG002
        """Return the columns' names: code0, code1, …."""
        _validation.check_is_fitted(self, "size_")
        return np.array([f"code{d}" for d in range(self.size_)], dtype=object)

    def _space(self) -> LatentSpace:
        """Return the model, read when it is first needed or when a parameter has changed."""
        wanted = (str(self.model_dir), self.device)
        if getattr(self, "_loaded", None) is None or self._loaded[0] != wanted:
            self._loaded: tuple[tuple[str, str], LatentSpace] = (
                wanted,
                LatentSpace.from_pretrained(self.model_dir, device=self.device),
            )
        return self._loaded[1]

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if name != "_loaded"}

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string, tags.input_tags.two_d_array, tags.requires_fit = True, False, True
        return tags


def _sentences(X: Iterable[str]) -> list[str]:
    if isinstance(X, str):
        raise ZentenceError("Give a list of sentences, not one string")
    sentences = list(X)
    wrong = next((i for i, text in enumerate(sentences) if not isinstance(text, str)), None)
    if wrong is not None:
        raise ZentenceError(
            f"Row {wrong} is not a sentence but {type(sentences[wrong]).__name__}: give one column of text"
        )
    if not sentences:
        raise ZentenceError("There is no sentence")
    return sentences
