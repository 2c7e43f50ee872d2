"""Two processes (torchrun, gloo) compute what one computes."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "zentence"]
TOLERANCE = 1e-5  # relative, against the largest entry of a tensor: sums in another order, float32


@pytest.fixture
def command(files: list[str], tiny: Any) -> list[str]:
    """A run without dropout, whose masks would depend on the process."""
    changes = {
        "decoder__input_dropout": 0.0,
        "decoder__output_dropout": 0.0,
        "stages__0__corruption__word_dropout": 0.3,
        "training__validate_every": 0.5,
        "training__log_every": 5,
    }
    return ["train", *files, *tiny(**changes)]


def events(folder: Path, kind: str) -> list[dict[str, Any]]:
    lines = map(json.loads, (folder / "log.jsonl").read_text(encoding="utf-8").splitlines())
    return [event for event in lines if event["event"] == kind]


def check_weights(folders: tuple[Path, Path]) -> None:
    one, two = (load_file(folder / "model.safetensors") for folder in folders)
    assert set(one) == set(two)
    for name in one:
        np.testing.assert_allclose(two[name], one[name], rtol=0.0, atol=TOLERANCE * np.abs(one[name]).max())


def check_figures(folders: tuple[Path, Path]) -> None:
    one, two = (json.loads((folder / "results.json").read_text(encoding="utf-8")) for folder in folders)
    assert [(row["name"], row["count"], row["kind"]) for row in two] == [
        (row["name"], row["count"], row["kind"]) for row in one
    ]
    for first, second in zip(one, two, strict=True):
        assert second["value"] == pytest.approx(first["value"], rel=1e-5, abs=1e-5), first["name"]
    names = {"step": ("loss", "rate", "distortion", "tokens"), "validation": ("iw_nll", "elbo_nll", "active_units")}
    for kind in names:
        logged, again = (events(folder, kind) for folder in folders)
        assert [event["tick"] for event in again] == [event["tick"] for event in logged]
        for first, second in zip(logged, again, strict=True):
            for name in names[kind]:
                assert second[name] == pytest.approx(first[name], rel=1e-5, abs=1e-5), (kind, name)


def test_two_processes_agree_with_one(zentence: Any, command: list[str], tmp_path: Path) -> None:
    one, two = folders = tmp_path / "one", tmp_path / "two"
    zentence(*command, "--out", one)
    shown = zentence(*command, "--out", two, "--json", command=TORCHRUN, timeout=180)
    assert {row["name"] for row in shown.json} >= {"iw_nll", "source_nll"}  # one process speaks
    check_weights(folders)
    check_figures(folders)
    more = ["--resume", "--max-steps", 25]
    shown = zentence(*command, "--out", two, *more, expect=2)
    assert shown.err == "zentence: This run was started with 2 processes: resume it with as many\n"
    shown = zentence(*command, "--out", one, *more, command=TORCHRUN, timeout=180, expect=None)
    assert shown.code != 0
    spoken = [line for line in shown.err.splitlines() if line.startswith("zentence: ")]  # beside what torchrun says
    assert spoken == ["zentence: This run was started with 1 process: resume it with as many"]
