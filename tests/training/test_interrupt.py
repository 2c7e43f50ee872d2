"""Runs that are stopped: by Ctrl-C, by a full disk, by a loss that is not a number."""

import resource
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import pytest


def weights(folder: Path) -> bytes:
    return (folder / "model.safetensors").read_bytes()


def checkpoints(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (folder / "checkpoints").glob("*")}


@pytest.mark.parametrize(("number", "tick"), [(signal.SIGINT, 23), (signal.SIGTERM, 41)])
def test_ctrl_c_saves(
    run: Any, preloaded: Any, uninterrupted: Path, tmp_path: Path, number: signal.Signals, tick: int
) -> None:
    folder = tmp_path / "model"
    options = ["--set", "training.checkpoint_seconds=1000"]
    code, out, err = run.stop(folder, tick, number, *options)
    assert code == 130
    assert out == ""
    last = err.splitlines()[-1]
    assert last == f"Saved. Go on with the same command and --resume (model directory: {folder})."
    assert "Traceback" not in err
    saved = max((folder / "checkpoints").glob("step-*.json"))
    assert int(saved.stem.removeprefix("step-")) >= tick
    shown = preloaded(*run.command, "--out", folder, *options, "--resume")
    assert f"resumed at step {int(saved.stem.removeprefix('step-'))}" in shown.err
    assert weights(folder) == weights(uninterrupted)


def test_ctrl_c_while_measuring(run: Any, preloaded: Any, uninterrupted: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    options = ["--set", "evaluation.samples=100000"]
    with run.start(folder, *options) as process:
        while not (folder / "model.safetensors").exists():
            assert process.poll() is None
            time.sleep(0.002)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err.splitlines()[-1].startswith("Saved. Go on with the same command and --resume")
    assert "Traceback" not in err
    assert weights(folder) == weights(uninterrupted)
    assert not (folder / "results.json").exists()


@pytest.mark.parametrize("limit", [4_000, 80_000])
def test_full_disk(run: Any, preloaded: Any, halfway: Path, uninterrupted: Path, tmp_path: Path, limit: int) -> None:
    """Files cannot grow beyond a limit: not even the log fits, or only checkpoints do not."""
    folder = Path(shutil.copytree(halfway, tmp_path / "model"))
    before = checkpoints(folder)
    options = ["--resume", "--quiet"]

    def fill_the_disk() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    with run.start(folder, *options, preexec_fn=fill_the_disk) as process:
        _, err = process.communicate(timeout=60)
    assert process.returncode == 2
    *warnings, message = err.splitlines()
    assert all(line.startswith("warning: valid has only") for line in warnings)
    assert message.startswith(f"zentence: Cannot write {folder}/")
    assert message.endswith("File too large")
    newest = max(name for name in before if name.endswith(".json"))
    after = checkpoints(folder)
    assert after[newest] == before[newest]
    assert after[newest.replace(".json", ".safetensors")] == before[newest.replace(".json", ".safetensors")]
    preloaded(*run.command, "--out", folder, *options)
    assert weights(folder) == weights(uninterrupted)


def test_full_disk_for_the_first_checkpoint(run: Any, preloaded: Any, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    limits = (80_000, 80_000)
    process = run.start(folder, "--quiet", preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limits))
    _, err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert err.splitlines()[-1].startswith(f"zentence: Cannot write {folder}/checkpoints/step-000000001.safetensors:")
    assert checkpoints(folder) == {}


SGD = ["--set", "optimizer.name=sgd", "--set", "optimizer.learning_rate=1e30", "--set", "optimizer.clip=1e30"]


def test_loss_that_is_not_finite(run: Any, preloaded: Any, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shown = preloaded(*run.command, *SGD, "--out", folder, "--quiet", expect=2)
    message = shown.err.splitlines()[-1]
    assert message.startswith("zentence: The loss is not finite at step 2 (sentences: ")
    assert "Last good checkpoint: step-000000001." in message
    assert [line for line in shown.err.splitlines() if not line.startswith("warning: valid")] == [message]
    assert (folder / "checkpoints" / "step-000000001.safetensors").is_file()


def test_validation_that_is_not_finite(preloaded: Any, files: list[str], tiny: Any, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shown = preloaded("train", *files, *tiny(training__max_steps=1), *SGD, "--out", folder, "--quiet", expect=2)
    message = shown.err.splitlines()[-1]
    assert message.startswith("zentence: iw_nll on validation is not finite at step 1. Last good checkpoint: none yet.")
    assert "Traceback" not in shown.err
    assert not (folder / "model.safetensors").exists()
