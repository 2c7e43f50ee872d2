"""In which precision a run computes, and what it says of it."""

from pathlib import Path

import pytest
import torch

import zentence
from zentence.checkpoint import load_settings_of
from zentence.errors import ZentenceError
from zentence.machine import supports_bfloat16
from zentence.testing import tiny_settings
from zentence.training import run


def train(captions: Path, out: Path, precision: str, *further: str) -> str:
    """Train a tiny model and return the precision that its directory names."""
    settings = tiny_settings(["training.batch_sentences=20", f"training.precision={precision}", *further])
    zentence.train(settings, captions / "train.txt", valid=str(captions / "valid.txt"), out=out)
    return load_settings_of(out).training.precision


def test_auto_is_float32_where_the_machine_is_not_made_for_less(
    captions: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "has_bfloat16_units", lambda _device: False)
    assert train(captions, tmp_path / "a", "auto", "training.max_steps=3") == "float32"
    settings = tiny_settings(["training.batch_sentences=20", "training.precision=auto", "training.max_steps=3"])
    files = {"valid": captions / "valid.txt", "out": tmp_path / "a", "resume": True}
    assert zentence.train(settings, captions / "train.txt", **files).already_finished  # `auto` again means the same
    monkeypatch.setattr(run, "has_bfloat16_units", lambda _device: True)
    monkeypatch.setattr(run, "supports_bfloat16", lambda _device: False)  # the flags promise what the probe refutes
    assert train(captions, tmp_path / "b", "auto", "training.max_steps=3") == "float32"
    with pytest.raises(ZentenceError, match=r"a probe failed\): use training.precision=float32"):
        train(captions, tmp_path / "c", "bfloat16")


def test_bfloat16_trains_nearly_as_float32_and_stores_float32(captions: Path, tmp_path: Path) -> None:
    if not supports_bfloat16(torch.device("cpu")):
        pytest.skip("bfloat16 does not work on this processor")
    assert train(captions, tmp_path / "low", "bfloat16") == "bfloat16"
    assert train(captions, tmp_path / "full", "float32") == "float32"
    low, full = (zentence.LatentSpace.load(tmp_path / name) for name in ("low", "full"))
    assert {p.dtype for p in low.model.parameters()} == {torch.float32}
    texts = (captions / "valid.txt").read_text().splitlines()[:50]
    found, expected = low.score(texts).mean(), full.score(texts).mean()
    assert abs(found - expected) < 0.05 * expected
