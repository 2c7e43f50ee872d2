import json
import signal
import time
from pathlib import Path
from typing import Any

import pytest

RECIPE = """
[encoder]
name = "recurrent"
embedding_size = 8
hidden_size = 12
dropout = 0.2

[posterior]
name = "gaussian"
size = 4

[prior]
name = "standard_normal"

[decoder]
name = "recurrent"
embedding_size = 8
hidden_size = 12
tied = false
input_dropout = 0.3
output_dropout = 0.3
recurrent_dropout = 0.2

[optimizer]
name = "adamw"
learning_rate = 0.1
weight_decay = 0.01
average = 0.9
schedule = { name = "cosine", warmup_share = 0.1 }
plateau = { patience = 1, factor = 0.8, stop_after = 100 }

[training]
batch_tokens = 256
validate_every = 0.2
log_every = 1
checkpoint_seconds = 0.0
tensorboard = "no"
threads = 1

[evaluation]
samples = 2

[[stages]]
name = "first"
epochs = 2
objective = { name = "autoencoder" }
corruption = { word_dropout = 0.3, unknown_inputs = 0.1 }

[[stages]]
name = "second"
epochs = 3
reset = ["decoder"]
objective = { name = "elbo", rate_rule = { name = "free_bits", total_target = 2.0 } }
corruption = { word_dropout = { name = "linear", start = 0.5, end = 0.0 } }
"""


@pytest.fixture(scope="session")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two stages with all that a restart could forget: momenta, averages, dropout, word dropout, decays, a reset."""
    path = tmp_path_factory.mktemp("recipes") / "two-stages.toml"
    path.write_text(RECIPE, encoding="utf-8")
    return path


class Run:
    """Runs of the recipe by the command, each in a process of its own."""

    def __init__(self, zentence: Any, files: list[str], recipe: Path) -> None:
        self.zentence, self.command = zentence, ["train", *files, "--recipe", str(recipe)]

    def start(self, folder: Path, *options: object, **process: Any) -> Any:
        """Start a run and return its process."""
        return self.zentence.start(*self.command, "--out", folder, *options, **process)

    def stop(self, folder: Path, tick: int, number: int, *options: object, delay: float = 0.0) -> tuple[int, str, str]:
        """Start a run, send it a signal when it has logged a step, and wait for its end."""
        with self.start(folder, *options) as process:
            while last_tick(folder) < tick and process.poll() is None:
                time.sleep(0.002)
            time.sleep(delay)
            process.send_signal(number)
            out, err = process.communicate(timeout=120)
        return process.returncode, out, err


def last_tick(folder: Path) -> int:
    """Return the last step in a run's log; -1 before it has one."""
    try:
        lines = (folder / "log.jsonl").read_bytes().splitlines()[-1:]
        return int(json.loads(lines[0])["tick"]) if lines else -1
    except (OSError, ValueError):
        return -1  # not there yet, or the last line is half written


@pytest.fixture(scope="session")
def run(zentence: Any, files: list[str], recipe: Path) -> Run:
    return Run(zentence, files, recipe)


@pytest.fixture(scope="session")
def uninterrupted(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model directory of a run that nobody disturbed."""
    folder = tmp_path_factory.mktemp("uninterrupted") / "model"
    run.zentence(*run.command, "--out", folder)
    return folder


@pytest.fixture(scope="session")
def halfway(run: Run, uninterrupted: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model directory of a run that was killed in its second stage."""
    for _ in range(5):
        folder = tmp_path_factory.mktemp("halfway") / "model"
        code, _, err = run.stop(folder, 50, signal.SIGKILL)
        if code == -signal.SIGKILL and last_tick(folder) < last_tick(uninterrupted):
            break
        assert code == 0, err  # it was quicker than we: once more
    assert len(list((folder / "checkpoints").glob("step-*.json"))) >= 2
    return folder
