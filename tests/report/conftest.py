"""Model directories made by hand: an untrained model, and figures that are what a test says they are."""

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from zentence.build import build_model
from zentence.checkpoint import save_model, save_settings
from zentence.corpora.vocabulary import build_vocabulary
from zentence.report import Report, write_report
from zentence.settings import CorpusSettings
from zentence.testing.tiny import tiny_settings

WORDS = (
    "a",
    "the",
    "man",
    "woman",
    "dog",
    "cat",
    "sits",
    "runs",
    "eats",
    "on",
    "under",
    "red",
    "blue",
    "old",
    "park",
    ".",
)


def sentences(count: int, words: Sequence[str] = WORDS, seed: int = 0) -> list[str]:
    random = np.random.default_rng(seed)
    return [" ".join(random.choice(words, size=random.integers(4, 12))) for _ in range(count)]


def histogram(center: float) -> dict[str, list[float]]:
    counts, edges = np.histogram(np.random.default_rng(0).normal(center, 1.0, 50), 10)
    return {"edges": edges.tolist(), "counts": counts.tolist()}


def make_figure(
    name: str, value: float, kind: str = "estimate", split: str = "valid", **details: Any
) -> dict[str, Any]:
    common = {"unit": "nats", "standard_error": 0.25, "count": 30, "samples": None, "seed": 0}
    return {
        **common,
        "name": name,
        "value": value,
        "kind": kind,
        "split": split,
        "provenance": {"zentence": "0.1.0"},
        "details": details,
    }


def every_figure() -> list[dict[str, Any]]:
    """Return figures with all details that a report draws."""
    return [
        make_figure("elbo_nll", 30.0, "upper_bound", histogram=histogram(30.0)),
        make_figure(
            "iw_nll", 29.0, "upper_bound", histogram=histogram(29.0), k_curve=[[1, 30.0], [10, 29.4], [100, 29.0]]
        ),
        make_figure("rate", 3.0, per_dimension=[2.0, 1.0]),
        make_figure("distortion", 27.0),
        make_figure("mutual_information", 2.5, M=30, log_M=3.4, saturated=False),
        {**make_figure("active_units", 2, of=2, threshold=0.01, variances=[0.5, 0.2]), "standard_error": None},
        make_figure("shuffled_code_gap", 4.0),
        make_figure(
            "melbo_nll",
            28.0,
            "upper_bound",
            curve=[[5, 26.0, 0.5], [30, 28.0, 0.3]],
            extrapolation={"slope": 1.1, "intercept": 24.2},
            meets={"nll": 30.0, "n": 190.0},
        ),
        make_figure("log_likelihood_pairs", 4.0, same=histogram(-27.0), other=histogram(-31.0)),
        make_figure("log_posterior_pairs", 9.0, same=histogram(1.0), other=histogram(-8.0)),
    ]


def events() -> list[dict[str, Any]]:
    """Return the log of a short run."""
    ledger = {"sentences": 60, "words": 500}
    steps = [
        {
            "event": "step",
            "tick": tick,
            "distortion": 40.0 - tick,
            "rate": 0.3 * tick,
            "beta": 0.1 * tick,
            "multiplier": 1.0 - 0.1 * tick,
            "active_units": 2,
        }
        for tick in range(1, 11)
    ]
    validation = {"event": "validation", "selection": "iw_nll"}
    return [
        {"event": "start", "tick": 0, "parameters": 1234, "corpus": {"splits": {"train": ledger}}},
        *steps,
        {**validation, "tick": 5, "iw_nll": 33.0, "rate": 1.5, "distortion": 32.0},
        {**validation, "tick": 10, "iw_nll": 30.0, "rate": 3.0, "distortion": 28.0},
        {"event": "end", "tick": 10, "seconds": 60.0},
    ]


def build_run(
    folder: Path,
    results: list[dict[str, Any]],
    log: list[dict[str, Any]],
    *,
    text: Sequence[str] = (),
    language_model: bool = False,
    labels: str = "auto",
) -> Path:
    """Make a model directory of an untrained model; `text` lists its sentences, the first 30 for validation."""
    folder.mkdir(parents=True)
    lines = list(text) or sentences(90)
    files = {"train": lines[30:], "valid": lines[:30]}
    changes = [f"corpus.labels={labels}"]
    for split, mine in files.items():
        path = folder / f"{split}.txt"
        path.write_text("\n".join(mine) + "\n", encoding="utf-8")
        changes.append(f"corpus.{split}={json.dumps([str(path)])}")
    settings = tiny_settings(changes, language_model=language_model)
    words = Counter(word for line in lines for word in line.rpartition("\t")[2].split())
    vocabulary = build_vocabulary(words, CorpusSettings())
    torch.manual_seed(0)
    save_settings(folder, settings)
    save_model(folder, build_model(settings, len(vocabulary)))
    vocabulary.save(folder / "tokenizer.json")
    (folder / "results.json").write_text(json.dumps(results), encoding="utf-8")
    if log:
        (folder / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in log), encoding="utf-8")
    return folder


@pytest.fixture
def make_run(tmp_path: Path) -> Any:
    """A function that makes a model directory, by default with one figure and no log."""

    def make(
        name: str = "run", results: Sequence[dict[str, Any]] = (), log: Sequence[dict[str, Any]] = (), **options: Any
    ) -> Path:
        rows = list(results) or [make_figure("elbo_nll", 30.0, "upper_bound")]
        return build_run(tmp_path / name, rows, list(log), **options)

    return make


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Report, list[tuple[str, int, int]]]:
    """A run with every figure, the report on it, and the progress it made."""
    folder = tmp_path_factory.mktemp("whole")
    steps: list[tuple[str, int, int]] = []
    run = build_run(folder / "run", every_figure(), events())
    report = write_report([run], folder / "page.html", threads=1, progress=lambda *step: steps.append(step))
    return run, report, steps


@pytest.fixture
def figure() -> Any:
    """A function that returns one figure as results.json holds it."""
    return make_figure
