"""Layers that are computed again in the backward pass give the gradients of layers that are kept."""

from typing import Any

import pytest
import torch

from zentence.build import build_model, complete
from zentence.decoders.generation import Generation, generate
from zentence.model import LatentLM
from zentence.settings import override, settings_from
from zentence.testing import random_batch

transformers = pytest.importorskip("transformers", reason="transformers is not installed (extra 'transformers')")

SMALL = {"name": "transformer", "layers": 3, "hidden_size": 16, "heads": 4, "positions": 24}
SHAPES = {
    "gpt2, both": [],
    "gpt2, memory": ["decoder.embedding=false"],
    "gpt2, embedding": ["decoder.memory=false"],
    "llama, grouped": ["decoder.architecture=llama", "decoder.key_value_heads=2"],
    "distilbert": ["encoder.architecture=distilbert"],
}


def model_of(overrides: list[str], recompute: bool, dropout: float) -> LatentLM:
    part = {**SMALL, "recompute": recompute, "dropout": dropout}
    content: dict[str, Any] = {"encoder": part, "posterior": {"name": "gaussian", "size": 2}, "decoder": dict(part)}
    return build_model(complete(settings_from(override(content, overrides))), 11).double().train()


def runs_of(network: Any, layers: Any) -> list[int]:
    """Return a list that grows by one whenever the first layer's feed-forward part begins."""
    runs: list[int] = []
    inner = next(module for name, module in layers[0].named_modules() if name in ("mlp", "ffn", "intermediate"))
    inner.register_forward_pre_hook(lambda *_: runs.append(1))
    return runs


@pytest.mark.parametrize("overrides", SHAPES.values(), ids=SHAPES.keys())
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_gradients_are_those_of_kept_layers(overrides: list[str], dropout: float) -> None:
    found = []
    for recompute in (False, True):
        model, batch = model_of(overrides, recompute, dropout), random_batch([5, 3, 4])
        runs = runs_of(model.decoder.network, model.decoder.last_layers(3))
        torch.manual_seed(7)
        z = model.infer(batch.source).center[None].expand(2, -1, -1) * torch.tensor([1.0, 2.0]).view(2, 1, 1)
        loss = model.log_likelihood(z, batch).sum()
        loss.backward()
        assert len(runs) == (2 if recompute else 1)
        found.append((loss.detach(), {name: p.grad for name, p in model.named_parameters() if p.grad is not None}))
    (loss, kept), (again, recomputed) = found
    assert torch.equal(loss, again) and set(kept) == set(recomputed)
    assert any("memory_map" in name or "embedding_map" in name for name in kept)
    for name, gradient in kept.items():
        assert torch.allclose(recomputed[name], gradient, atol=1e-12), name


def test_evaluation_computes_once_and_writes_the_same() -> None:
    kept, again = (model_of([], recompute, 0.0).eval() for recompute in (False, True))
    runs = runs_of(again.decoder.network, again.decoder.last_layers(3))
    batch, z = random_batch([5, 3]), torch.randn(1, 2, 2, dtype=torch.float64)
    again.log_likelihood(z, batch).sum().backward()
    assert len(runs) == 1
    written = [generate(model.decoder, z, 2, Generation(max_words=8)) for model in (kept, again)]
    assert written[0] == written[1]
