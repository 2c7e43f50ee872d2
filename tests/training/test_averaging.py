"""A running average of weights: its formula, and that it is what training validates and keeps."""

import json
from pathlib import Path

import pytest
import torch
from torch import nn

import zentence
from zentence.checkpoint import load_model, read_tensors, tensors_of
from zentence.errors import ZentenceError
from zentence.testing import tiny_settings
from zentence.training.averaging import WeightAverage


def test_the_average_is_its_recursion_with_a_short_memory_at_first() -> None:
    torch.manual_seed(0)
    model = nn.Linear(3, 2).double()
    model.bias.requires_grad_(False)
    average, expected, decays = WeightAverage(model, 0.5), model.weight.detach().clone(), []
    for n in range(1, 20):
        with torch.no_grad():
            model.weight.add_(torch.randn(2, 3, dtype=torch.float64))
        average.update(n)
        decays.append(min(0.5, (1 + n) / (10 + n)))
        expected = decays[-1] * expected + (1 - decays[-1]) * model.weight.detach()
    assert decays[0] == 2 / 11 and decays[-1] == 0.5
    last = model.weight.detach().clone()
    with average.in_place():
        assert torch.allclose(model.weight, expected, atol=1e-12)
        assert average.tensors().keys() == {"0"}  # what is not trained has none
    assert torch.equal(model.weight, last)
    average.restart()
    with average.in_place():
        assert torch.equal(model.weight, last)


def test_an_error_while_the_average_is_in_place_brings_the_weights_back() -> None:
    model = nn.Linear(2, 2)
    average, before = WeightAverage(model, 0.9), model.weight.detach().clone()
    with torch.no_grad():
        model.weight.add_(1.0)
    with pytest.raises(RuntimeError), average.in_place():
        assert torch.equal(model.weight, before)
        raise RuntimeError
    assert torch.equal(model.weight, before + 1.0)


def test_an_average_of_another_model_is_refused() -> None:
    with pytest.raises(ZentenceError, match="does not fit these settings"):
        WeightAverage(nn.Linear(2, 2), 0.9).load(WeightAverage(nn.Linear(2, 3), 0.9).tensors())


def test_training_validates_and_keeps_the_average(captions: Path, tmp_path: Path) -> None:
    """The model in the directory is the average in the last checkpoint, not the weights beside it."""
    decay = ["optimizer.average=0.9", "training.batch_sentences=20", "stages.0.epochs=1"]
    chosen = tiny_settings(decay, language_model=True)
    events: list[dict[str, float]] = []
    files = {"valid": [captions / "valid.txt"], "out": tmp_path / "run"}
    zentence.train(chosen, captions / "train.txt", callbacks=[events.append], **files)  # type: ignore[arg-type]
    model = load_model(tmp_path / "run")[0]
    stored = read_tensors(max((tmp_path / "run" / "checkpoints").glob("step-*.safetensors")))
    for number, (name, parameter) in enumerate(model.named_parameters()):
        assert torch.equal(parameter, stored[f"average/{number}"])
        assert not torch.equal(parameter, stored[f"trainable/model.{name}"])
    assert len(tensors_of(model)) == number + 1
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    validated = [event["nll"] for event in events if event["event"] == "validation"]
    assert next(m["value"] for m in results if m["name"] == "nll") == pytest.approx(validated[-1], rel=1e-6)
