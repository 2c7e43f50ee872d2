"""Models and batches small enough to integrate over, or to train in a second."""

from collections.abc import Sequence

import numpy as np
import torch

from zentence.build import build_model, complete
from zentence.corpora import collate
from zentence.model import LatentLM
from zentence.settings import Settings, override, settings_from
from zentence.types import Batch


def tiny_settings(overrides: Sequence[str] = (), *, language_model: bool = False) -> Settings:
    """Return settings of a model with some hundred parameters, changed as `--set` would."""
    content = {
        "encoder": {"name": "recurrent", "embedding_size": 5, "hidden_size": 6},
        "posterior": {"name": "gaussian", "size": 2},
        "decoder": {"name": "recurrent", "embedding_size": 5, "hidden_size": 6, "tied": False},
        "training": {"batch_sentences": 4, "tensorboard": "no", "threads": 1},
        "stages": [{"epochs": 2.0, "objective": {"name": "likelihood" if language_model else "elbo"}}],
    }
    if language_model:
        content["encoder"] = {"name": "none"}
        content["decoder"] = {**content["decoder"], "initial_state": "learned"}  # type: ignore[dict-item]
    return complete(settings_from(override(content, overrides)))


def tiny_model(
    overrides: Sequence[str] = (),
    *,
    vocabulary: int = 11,
    language_model: bool = False,
    spread: float = 0.0,
) -> LatentLM:
    """Return a float64 model in evaluation mode; `spread` > 0 gives its weights that standard deviation."""
    model = build_model(tiny_settings(overrides, language_model=language_model), vocabulary).double().eval()
    if spread > 0.0:
        generator = torch.Generator().manual_seed(1)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64) * spread)
    return model


def random_batch(lengths: Sequence[int], vocabulary: int = 11, seed: int = 0) -> Batch:
    """Return a batch of random sentences with the given numbers of words."""
    random = np.random.default_rng(seed)
    sentences = [random.integers(4, vocabulary, size=length) for length in lengths]
    return collate(sentences, np.arange(len(lengths)))
