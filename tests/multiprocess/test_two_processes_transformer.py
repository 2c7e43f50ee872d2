"""Two processes (torchrun, gloo) train a transformer as one does, also in parts, and resume to the same bits."""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

pytest.importorskip("transformers", reason="transformers is not installed (extra 'transformers')")

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "zentence"]
TOLERANCE = 1e-4  # relative, against the largest entry of a tensor: Adam's first steps divide rounding by its own size
SETTINGS = [
    *("corpus.bpe_size=400", "posterior.size=4", "optimizer.learning_rate=0.001", "training.batch_tokens=512"),
    *(
        f"{part}.{change}"
        for part in ("encoder", "decoder")
        for change in ("layers=2", "hidden_size=32", "dropout=0.0")
    ),
    *("training.tensorboard=no", "training.threads=1", "training.max_steps=8", "training.log_every=2"),
    *("training.checkpoint_seconds=0", "training.validate_every=0.5", "evaluation.samples=5"),
]


@pytest.fixture
def command(files: list[str]) -> list[str]:
    """A run without dropout, whose masks would depend on the process."""
    changes = [word for setting in SETTINGS for word in ("--set", setting)]
    return ["train", *files, "--recipe", "optimus-mini", *changes]


def forget_the_end(folder: Path) -> None:
    """Leave a finished run as it was one checkpoint earlier."""
    newest = sorted((folder / "checkpoints").glob("step-*.json"))[-1]
    for path in (newest, newest.with_suffix(".safetensors"), folder / "model.safetensors", folder / "results.json"):
        path.unlink()


def test_two_processes_agree_with_one_and_resume_exactly(zentence: Any, command: list[str], tmp_path: Path) -> None:
    one, two, again = tmp_path / "one", tmp_path / "two", tmp_path / "again"
    zentence(*command, "--out", one)
    spread = [*command, "--set", "training.accumulate=2"]
    zentence(*spread, "--out", two, command=TORCHRUN, timeout=240)
    weights, others = (load_file(folder / "model.safetensors") for folder in (one, two))
    assert set(weights) == set(others)
    for name, tensor in weights.items():
        near = max(TOLERANCE * float(np.abs(tensor).max()), 1e-7)  # biases of keys have no gradient but rounding
        np.testing.assert_allclose(others[name], tensor, rtol=0.0, atol=near, err_msg=name)
    rows, spread_rows = (json.loads((folder / "results.json").read_text(encoding="utf-8")) for folder in (one, two))
    for first, second in zip(rows, spread_rows, strict=True):
        assert second["value"] == pytest.approx(first["value"], rel=1e-4, abs=1e-4), first["name"]
    shutil.copytree(two, again)
    forget_the_end(again)
    zentence(*spread, "--out", again, "--resume", command=TORCHRUN, timeout=240)
    assert (again / "model.safetensors").read_bytes() == (two / "model.safetensors").read_bytes()
