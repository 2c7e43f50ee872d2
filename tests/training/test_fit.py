"""Fits of anything by the one loop: interrupted and resumed bit by bit, refused in one line, shown to people."""

import io
import json
import os
import signal
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

from zentence.errors import ZentenceError
from zentence.noise import Noise
from zentence.parts import Options, Part
from zentence.training.fit import FitResult, FitSettings, check_fit, fit, load_fit, read_fit
from zentence.training.loop import InterruptedTraining
from zentence.training.progress import Display
from zentence.training.updates import UpdateRule
from zentence.types import Terms

SETTINGS = FitSettings(
    steps=25, learning_rate=0.05, schedule=Part(name="cosine"), validate_every=4, log_every=1, checkpoint_seconds=1000
)


class Pairs(NamedTuple):
    """Points and the numbers to predict from them."""

    points: Tensor
    targets: Tensor
    index: Tensor  # type: ignore[assignment]
    weight: float = 1.0

    @property
    def size(self) -> int:
        return len(self.index)

    def to(self, device: torch.device) -> "Pairs":
        return self._replace(points=self.points.to(device), targets=self.targets.to(device))


class Source:
    """Seven batches of points on a plane, in an order of their own in each pass."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(5)
        self.points = torch.randn(21, 3, generator=generator)
        self.targets = self.points @ torch.tensor([1.0, -2.0, 0.5]) + 0.3

    def __len__(self) -> int:
        return 7

    def batch(self, epoch: int, position: int) -> Pairs:
        rows = torch.randperm(21, generator=torch.Generator().manual_seed(100 + epoch))[3 * position : 3 * position + 3]
        return Pairs(self.points[rows], self.targets[rows], rows)


class Plane(nn.Module):
    """Regression with everything that a restart could forget: dropout, noise, a buffer that counts."""

    selection = "error"
    counted: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.model = nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.2), nn.Linear(8, 1))
        for number, parameter in enumerate(self.model.parameters()):
            nn.init.normal_(parameter, generator=torch.Generator().manual_seed(number))
        self.register_buffer("counted", torch.zeros(()))

    def forward(self, batch: Pairs, step: int, noise: Noise) -> Terms:
        del step
        errors = (self.model(batch.points + 0.1 * noise.normal(1, 3)[0])[:, 0] - batch.targets).square()
        return Terms(errors.mean() + 0.01 * torch.tanh(self.counted), {"error": errors.detach()})

    def after_update(self, terms: Terms) -> None:
        self.counted += 1.0

    def module(self) -> nn.Module:
        return self


class Halves(UpdateRule):
    """Moves one half of the parameters a step, in turn; remembers whose turn it is, and uses further batches."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.turn = 0

    def __call__(self, batch: Any, step: int, noise: Noise) -> tuple[Terms, Tensor]:
        self.turn += 1
        other, other_noise = self.fresh_batch(self.turn)
        self.move(self.parameters[self.turn % 2 :: 2], other, step, other_noise)
        return self.move(self.parameters[1 - self.turn % 2 :: 2], batch, step, noise)

    def state(self) -> dict[str, Any]:
        return {"turn": self.turn}

    def restore(self, state: dict[str, Any]) -> None:
        self.turn = state["turn"]


def run_fit(folder: Path, plane: Plane | None = None, **changes: Any) -> tuple[FitResult, Plane]:
    plane, source = plane or Plane(), Source()

    @torch.no_grad()
    def validate() -> dict[str, float]:
        return {"error": float((plane.model(source.points)[:, 0] - source.targets).square().mean())}

    options: dict[str, Any] = {
        "settings": SETTINGS,
        "fingerprint": {"text": "a", "sizes": (1, 2)},
        "resume": False,
        "overwrite": False,
    }
    return fit("plane", plane, source, folder=folder, validate=validate, **{**options, **changes}), plane


def events(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "log.jsonl").read_text(encoding="utf-8").splitlines()]


def losses(folder: Path) -> list[tuple[int, float]]:
    return [(event["tick"], event["loss"]) for event in events(folder) if event["event"] == "step"]


def validations(folder: Path) -> list[float]:
    return [event["error"] for event in events(folder) if event["event"] == "validation"]


def stop_at(tick: int, how: type[BaseException] = KeyboardInterrupt) -> Any:
    def callback(event: dict[str, Any]) -> None:
        if event["event"] == "step" and event["tick"] == tick:
            raise how

    return callback


@pytest.mark.parametrize("update", [None, partial(Halves, Options())])
def test_a_resumed_fit_is_bit_identical(tmp_path: Path, update: Any) -> None:
    whole, halves = tmp_path / "whole", tmp_path / "halves"
    result, plane = run_fit(whole, update=update)
    for tick in (3, 10, 19):  # before the first checkpoint, between two, and after one
        with pytest.raises(KeyboardInterrupt):
            run_fit(halves, update=update, resume=True, callbacks=[stop_at(tick)])
    again, resumed = run_fit(halves, update=update, resume=True)
    assert (halves / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
    assert losses(halves) == losses(whole)
    assert [tick for tick, _ in losses(whole)] == list(range(1, 26))
    assert validations(halves) == validations(whole)
    assert len(validations(whole)) == 7  # at 4, 8, … 24, and at the end
    assert again.state.best_value == result.state.best_value == min(validations(whole))
    assert float(resumed.counted) == float(plane.counted)
    assert not list(halves.rglob("*.tmp"))


def test_learns_and_keeps_the_best_weights(tmp_path: Path) -> None:
    folder = tmp_path / "fit"
    _, plane = run_fit(folder, settings=SETTINGS.model_copy(update={"steps": 200, "early_stopping": 50}))
    source = Source()
    with torch.no_grad():
        found = float((plane.model(source.points)[:, 0] - source.targets).square().mean())
    assert found == pytest.approx(min(validations(folder)))
    assert found < 0.1 * float(source.targets.var())
    fresh = Plane()
    load_fit(folder, fresh.model)
    assert all(torch.equal(a, b) for a, b in zip(fresh.model.parameters(), plane.model.parameters(), strict=True))
    assert read_fit(folder, "plane") == {"text": "a", "sizes": [1, 2]}


def test_facts_that_may_change_are_kept_beside_the_fingerprint(tmp_path: Path) -> None:
    run_fit(tmp_path / "fit", about={"file": "here"}, callbacks=[])
    run_fit(tmp_path / "fit", about={"file": "there"}, resume=True, settings=SETTINGS.model_copy(update={"steps": 26}))
    assert read_fit(tmp_path / "fit", "plane") == {"file": "there", "text": "a", "sizes": [1, 2]}


def test_early_stopping(tmp_path: Path) -> None:
    settings = SETTINGS.model_copy(update={"early_stopping": 2, "learning_rate": 1e-12, "validate_every": 3})
    plane = Plane()
    plane.selection = "constant"
    result = fit(
        "plane",
        plane,
        Source(),
        settings=settings,
        folder=tmp_path / "fit",
        fingerprint={},
        validate=lambda: {"constant": 1.0},
        resume=False,
        overwrite=False,
    )
    assert result.state.update == 9  # the best, and two that are no better
    assert result.state.stage_over


def test_an_interrupt_saves_the_step_it_falls_in(tmp_path: Path) -> None:
    def interrupt(event: dict[str, Any]) -> None:
        if event["event"] == "step" and event["tick"] == 6:
            os.kill(os.getpid(), signal.SIGINT)

    folder = tmp_path / "fit"
    with pytest.raises(InterruptedTraining):
        run_fit(folder, callbacks=[interrupt])
    assert (folder / "checkpoints" / "step-000000006.json").is_file()
    with pytest.raises(ZentenceError, match="training has not finished"):
        read_fit(folder, "plane")
    run_fit(folder, resume=True)
    run_fit(tmp_path / "whole")
    assert (folder / "model.safetensors").read_bytes() == (tmp_path / "whole" / "model.safetensors").read_bytes()


def test_a_finished_fit_is_read_and_a_longer_one_goes_on(tmp_path: Path) -> None:
    folder = tmp_path / "fit"
    constant = SETTINGS.model_copy(update={"schedule": 1.0})
    _, first = run_fit(folder, settings=constant)
    again, second = run_fit(folder, settings=constant, resume=True)
    assert again.already_finished
    assert all(torch.equal(a, b) for a, b in zip(first.model.parameters(), second.model.parameters(), strict=True))
    longer, _ = run_fit(folder, settings=constant.model_copy(update={"steps": 40}), resume=True)
    assert not longer.already_finished
    assert [tick for tick, _ in losses(folder)] == list(range(1, 41))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"resume": True, "overwrite": True}, "give one of the two"),
        ({}, "exists: go on with --resume, start anew with --overwrite, or choose another --out"),
        (
            {"resume": True, "fingerprint": {"text": "b", "sizes": [1, 2]}},
            r'--resume with changed fingerprint: text \(was "a", now "b"\)',
        ),
        (
            {"resume": True, "settings": SETTINGS.model_copy(update={"seed": 1})},
            r"--resume with changed settings: seed \(was 0, now 1\)",
        ),
    ],
)
def test_refusals_are_one_line_and_change_nothing(tmp_path: Path, changes: dict[str, Any], expected: str) -> None:
    folder = tmp_path / "fit"
    run_fit(folder)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    with pytest.raises(ZentenceError, match=expected) as caught:
        run_fit(folder, **changes)
    assert "\n" not in str(caught.value)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_overwrite_starts_anew(tmp_path: Path) -> None:
    folder = tmp_path / "fit"
    run_fit(folder, fingerprint={"text": "b"})
    run_fit(folder, overwrite=True)
    assert read_fit(folder, "plane")["text"] == "a"
    assert len(losses(folder)) == 25


def test_other_directories_are_not_touched(tmp_path: Path) -> None:
    (tmp_path / "settings.toml").write_text("format = 1\n", encoding="utf-8")
    for options in ({"resume": True, "overwrite": False}, {"resume": False, "overwrite": True}):
        with pytest.raises(ZentenceError, match="holds a model of `zentence train`: choose another --out"):
            check_fit(tmp_path, **options)
    with pytest.raises(ZentenceError, match="No such directory"):
        read_fit(tmp_path / "nowhere", "plane")
    run_fit(tmp_path / "fit")
    with pytest.raises(ZentenceError, match="holds no dialog: train one with `zentence dialog train`"):
        read_fit(tmp_path / "fit", "dialog")
    (tmp_path / "fit" / "fit.json").write_text("{", encoding="utf-8")
    with pytest.raises(ZentenceError, match="is damaged"):
        read_fit(tmp_path / "fit", "plane")


def test_a_loss_that_is_no_number_names_the_rows(tmp_path: Path) -> None:
    plane = Plane()
    with torch.no_grad():
        plane.model[0].weight.fill_(float("nan"))
    with pytest.raises(ZentenceError, match=r"not finite at step 1 \(sentences: \d+, \d+, \d+\)"):
        run_fit(tmp_path / "fit", plane)


def test_people_see_what_is_trained_and_how_far(tmp_path: Path) -> None:
    stream = io.StringIO()
    with Display(stream=stream) as display:
        run_fit(tmp_path / "fit", callbacks=[display])
    lines = stream.getvalue().splitlines()
    assert lines[0] == f"folder {tmp_path / 'fit'}"
    assert lines[1] == "model 41 parameters  device cpu  steps 25"
    assert lines[2].split() == ["stage", "plane", "1/1", "steps", "25"]
    assert sum(line.startswith("validation") and "error" in line for line in lines) == 7
    assert "?" not in stream.getvalue()
