"""Anything beside a corpus' own model, trained by the one loop: a GAN on codes, a dialog model, a classifier.

`fit` runs one stage in a directory of its own, which is refused, resumed and overwritten as a model directory is:

- `fit.json` says what is trained, with which settings, on what (the fingerprint);
- `checkpoints/`, `log.jsonl` and `tensorboard/` are those of training;
- `model.safetensors` holds the best weights, once training is over.

What the trainable does not train (a frozen model) stays out of its `module()`: else every checkpoint would hold it.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import Field
from safetensors.torch import save as save_tensors
from torch import nn

from zentence.checkpoint import Checkpoint, load_checkpoint, load_into, read_tensors, tensors_of
from zentence.errors import ZentenceError
from zentence.files import write_atomically
from zentence.machine import prepare_process
from zentence.noise import Noise, derive_key
from zentence.parts import Options, Part, plain
from zentence.schedules import build_schedule
from zentence.settings import Average, NonNegative, OptimizerSettings, StageSettings, TrainingSettings
from zentence.training.directory import check_directory, claim_directory
from zentence.training.events import Callback, Event, catch_interrupts, open_logs
from zentence.training.loop import InterruptedTraining, StageRun, train_stage
from zentence.training.optimizers import build_optimizer, trained_parameters
from zentence.training.stages import StagePlan
from zentence.training.state import TrainState
from zentence.training.trainable import BatchSource, Rows, Trainable
from zentence.training.updates import FreshBatch, Joint, UpdateRule

FORMAT = 1
RECORD, WEIGHTS = "fit.json", "model.safetensors"
MAY_CHANGE = ("steps", "log_every", "checkpoint_seconds", "tensorboard")  # on resuming
UpdateBuilder = Callable[[Trainable, torch.optim.Optimizer, OptimizerSettings, FreshBatch], UpdateRule]


class FitSettings(Options):
    """Length, optimiser and bookkeeping of a fit."""

    steps: int = Field(2000, ge=1, description="Updates.")
    learning_rate: float = Field(1e-3, gt=0.0, description="Base learning rate.")
    schedule: NonNegative | Part = Field(1.0, description="Factor of the learning rate: a number or a schedule.")
    betas: tuple[Average, Average] = Field((0.9, 0.999), description="Adam's averaging constants.")
    weight_decay: float = Field(0.0, ge=0.0, description="Decoupled weight decay (AdamW).")
    clip: float | None = Field(5.0, gt=0.0, description="Largest norm of the gradient; none: no clipping.")
    seed: int = Field(0, ge=0, lt=2**31, description="Everything random follows from it.")
    validate_every: int = Field(200, ge=1, description="Updates between validations.")
    log_every: int = Field(20, ge=1, description="Updates between log lines.")
    checkpoint_seconds: float = Field(120.0, ge=0.0, description="Time between checkpoints; also after validations.")
    early_stopping: int | None = Field(None, ge=1, description="End after this many validations without improvement.")
    tensorboard: Literal["auto", "yes", "no"] = Field("no", description="Write TensorBoard files; auto: if installed.")

    def optimizer(self) -> OptimizerSettings:
        """Return the part of the settings that the optimiser reads."""
        names = ("learning_rate", "schedule", "betas", "weight_decay", "clip")
        return OptimizerSettings(name="adamw", **{name: getattr(self, name) for name in names})


@dataclass(frozen=True)
class FitResult:
    """Where a fit stands at its end; the trainable's model has the best weights."""

    state: TrainState
    already_finished: bool = False


def check_fit(folder: Path, *, resume: bool, overwrite: bool) -> None:
    """Raise if a fit must not, or cannot, write to a directory; call it before the work that precedes a fit."""
    if (folder / "settings.toml").exists() or (folder / "tokenizer.json").exists():
        raise ZentenceError(f"{folder} holds a model of `zentence train`: choose another --out")
    check_directory(folder, resume=resume, overwrite=overwrite)


def fit(
    name: str,
    trainable: Trainable,
    batches: BatchSource,
    *,
    settings: FitSettings,
    folder: Path,
    fingerprint: dict[str, Any],
    validate: Callable[[], dict[str, float]],
    resume: bool,
    overwrite: bool,
    callbacks: Sequence[Callback] = (),
    update: UpdateBuilder | None = None,
    about: Mapping[str, Any] | None = None,
) -> FitResult:
    """Train what `trainable` trains and leave it with its best weights, also written to `folder`.

    `name` says what it is, in progress and in fit.json. `fingerprint` (plain JSON values) is what a resumed run must
    agree with: data, frozen model, options of the parts; `about` are further facts that it need not agree with, such
    as paths. `read_fit` reads both back. `validate` returns figures (it needs its own `torch.no_grad`), of which
    `trainable.selection`, smaller is better, selects the weights. Raises InterruptedTraining when the user interrupts:
    all is saved then.
    """
    check_fit(folder, resume=resume, overwrite=overwrite)
    prepare_process()
    with ExitStack() as stack:
        run = _Fit(name, trainable, batches, settings, folder, _plain_json(fingerprint), _plain_json(about or {}))
        return run.go(stack, validate, update or partial(Joint, Joint.Options()), callbacks, resume, overwrite)


def read_fit(folder: Path, name: str) -> dict[str, Any]:
    """Return what a finished fit was told about itself; raise if the directory holds none of that name."""
    if not folder.is_dir():
        raise ZentenceError(f"No such directory: {folder}")
    record = _read_record(folder)
    if record is None or record["name"] != name:
        raise ZentenceError(f"{folder} holds no {name}: train one with `zentence {name} train`")
    if not (folder / WEIGHTS).is_file():
        raise ZentenceError(f"{folder} is incomplete: training has not finished (go on with --resume)")
    return {**record.get("about", {}), **record["fingerprint"]}


def load_fit(folder: Path, module: nn.Module) -> None:
    """Give a module the weights that a finished fit wrote."""
    load_into(module, read_tensors(folder / WEIGHTS), str(folder / WEIGHTS))
    module.eval()


def _plain_json(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return content as it reads when it comes back from a file."""
    result: dict[str, Any] = json.loads(json.dumps(dict(content)))
    return result


def _read_record(folder: Path) -> dict[str, Any] | None:
    path = folder / RECORD
    if not path.is_file():
        return None
    try:
        record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if record["format"] > FORMAT:
            raise ZentenceError(f"{path} was written by a newer zentence: install it")
        if not isinstance(record["name"], str) or not isinstance(record["fingerprint"], dict):
            raise TypeError
    except (OSError, ValueError, KeyError, TypeError):
        raise ZentenceError(f"{path} is damaged: train anew with --overwrite") from None
    return record


class _Fit:
    """One stage in a directory of its own."""

    def __init__(
        self,
        name: str,
        trainable: Trainable,
        batches: BatchSource,
        settings: FitSettings,
        folder: Path,
        fingerprint: dict[str, Any],
        about: dict[str, Any],
    ) -> None:
        self.name, self.trainable, self.batches, self.settings, self.folder = name, trainable, batches, settings, folder
        kept = {key: value for key, value in plain(settings).items() if key not in MAY_CHANGE}
        self.record = {"name": name, "settings": kept, "fingerprint": fingerprint}
        self.about = about
        self.callbacks: list[Callback] = []
        self.device = next(iter(trainable.module().parameters())).device

    def emit(self, event: Event) -> None:
        """Tell every callback."""
        for callback in self.callbacks:
            callback(event)

    def go(
        self,
        stack: ExitStack,
        validate: Callable[[], dict[str, float]],
        update: UpdateBuilder,
        callbacks: Sequence[Callback],
        resume: bool,
        overwrite: bool,
    ) -> FitResult:
        """Train, or go on training, and write the weights."""
        checkpoint, warnings = load_checkpoint(self.folder / "checkpoints") if resume else (None, [])
        state = TrainState() if checkpoint is None else self._state_of(checkpoint)
        if checkpoint is not None and self._over(state) and (self.folder / WEIGHTS).is_file():
            load_fit(self.folder, self.trainable.model)
            return FitResult(state, already_finished=True)
        run = self._stage(state, validate, update)
        if checkpoint is not None:
            run.restore(checkpoint)
        claim_directory(self.folder, overwrite=overwrite, tick=state.tick)
        content = {"format": FORMAT, **self.record, "about": self.about}
        write_atomically(self.folder / RECORD, json.dumps(content, indent=1, ensure_ascii=False) + "\n")
        self.callbacks = open_logs(stack, self.folder, state.tick, self.settings.tensorboard, callbacks)
        self._announce(state, warnings, resumed=checkpoint is not None)
        with catch_interrupts() as interrupted:
            run.interrupted = interrupted
            train_stage(run)
            if interrupted():
                raise InterruptedTraining
        write_atomically(self.folder / WEIGHTS, save_tensors(tensors_of(self.trainable.model)))
        self.trainable.module().eval()
        self.emit({"event": "end", "folder": str(self.folder), "tick": state.tick, "seconds": round(state.seconds, 1)})
        return FitResult(state)

    def _state_of(self, checkpoint: Checkpoint) -> TrainState:
        content = {name: value for name, value in checkpoint.state.items() if name != "update_rule"}
        found = content.pop("fit", None)
        if not isinstance(found, dict) or found.get("name") != self.name:
            raise ZentenceError(f"{self.folder} holds another run, not one of {self.name}: choose another --out")
        for table in ("settings", "fingerprint"):
            before, now = found[table], self.record[table]
            assert isinstance(now, dict)
            for key in sorted({*before, *now}):
                if before.get(key) != now.get(key):
                    changed = f"{key} (was {_short(before.get(key))}, now {_short(now.get(key))})"
                    raise ZentenceError(f"--resume with changed {table}: {changed}. Train in another --out.")
        return TrainState.from_json(content)

    def _over(self, state: TrainState) -> bool:
        return state.update >= self.settings.steps or state.stage_over

    def _stage(self, state: TrainState, validate: Callable[[], dict[str, float]], update: UpdateBuilder) -> StageRun:
        settings, passes = self.settings, float(len(self.batches))
        optimizer_settings = settings.optimizer()
        optimizer = build_optimizer(self.trainable.model, optimizer_settings)
        return StageRun(
            trainable=self.trainable,
            optimizer=optimizer,
            update_rule=update(self.trainable, optimizer, optimizer_settings, self._fresh_batch),
            learning_rate=build_schedule("schedule", settings.schedule, passes, settings.steps),
            optimizer_settings=optimizer_settings,
            stage=StageSettings(name=self.name, early_stopping=settings.early_stopping),
            plan=StagePlan(settings.steps, passes),
            training=TrainingSettings(
                seed=settings.seed,
                validate_every=settings.validate_every / passes,
                log_every=settings.log_every,
                checkpoint_seconds=settings.checkpoint_seconds,
            ),
            batches=self.batches,
            device=self.device,
            state=state,
            folder=self.folder / "checkpoints",
            fingerprint={"fit": self.record},
            validate=validate,
            describe=_describe,
            emit=self.emit,
            interrupted=lambda: False,
        )

    def _fresh_batch(self, number: int) -> tuple[Rows, Noise]:
        """Return the n-th batch of passes beside those of the loop, and its noise."""
        passes, position = divmod(number, len(self.batches))
        batch = self.batches.batch(-1 - passes, position).to(self.device)
        return batch, Noise(derive_key(self.settings.seed, "inner noise", number), batch.index)

    def _announce(self, state: TrainState, warnings: list[str], resumed: bool) -> None:
        trained = sum(p.numel() for p in trained_parameters(self.trainable.model))
        self.emit(
            {
                "event": "start",
                "folder": str(self.folder),
                "resumed": resumed,
                "tick": state.tick,
                "parameters": trained,
                "device": str(self.device),
                "stages": [{"name": self.name, "steps": self.settings.steps}],
            }
        )
        for message in warnings:
            self.emit({"event": "warning", "tick": state.tick, "message": message})
        self.emit(
            {
                "event": "stage",
                "stage": self.name,
                "number": 1,
                "of": 1,
                "steps": self.settings.steps,
                "tick": state.tick,
            }
        )


def _describe(batch: Rows) -> str:
    return ", ".join(str(number) for number in batch.index[:4].tolist()) + (" …" if batch.size > 4 else "")


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:59] + "…"
