"""The one training loop."""

import math
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from zentence import distributed
from zentence.checkpoint import Checkpoint, load_best, load_into, save_best, save_checkpoint, tensors_of
from zentence.errors import ZentenceError
from zentence.machine import give_back_memory
from zentence.noise import Noise, derive_key
from zentence.schedules import Schedule
from zentence.settings import OptimizerSettings, StageSettings, TrainingSettings
from zentence.training.averaging import WeightAverage
from zentence.training.optimizers import load_optimizer, optimizer_tensors, set_learning_rate
from zentence.training.stages import StagePlan
from zentence.training.state import TrainState
from zentence.training.tracker import Tracker
from zentence.training.trainable import BatchSource, Trainable
from zentence.training.updates import NonFiniteLossError, UpdateRule

Event = dict[str, Any]
Emit = Callable[[Event], None]


class InterruptedTraining(Exception):  # noqa: N818 - not an error: the user asked for it
    """Training was stopped from outside; everything is saved."""


@dataclass
class StageRun:
    """A stage in progress: what the loop needs, and nothing about what it trains."""

    trainable: Trainable
    optimizer: torch.optim.Optimizer
    update_rule: UpdateRule
    learning_rate: Schedule
    optimizer_settings: OptimizerSettings
    stage: StageSettings
    plan: StagePlan
    training: TrainingSettings
    batches: BatchSource
    device: torch.device
    state: TrainState
    folder: Path  # of the checkpoints
    fingerprint: dict[str, Any]  # what a resumed run must agree with
    validate: Callable[[], dict[str, float]]
    describe: Callable[[Any], str]
    emit: Emit
    interrupted: Callable[[], bool]
    tracker: Tracker = field(default_factory=Tracker)
    saved_at: float = field(default_factory=time.monotonic)
    average: WeightAverage | None = field(init=False)

    def __post_init__(self) -> None:
        decay = self.optimizer_settings.average
        self.average = WeightAverage(self.trainable.model, decay) if decay > 0.0 else None

    def restore(self, checkpoint: Checkpoint) -> None:
        """Take up a stage where a checkpoint left it."""
        groups: dict[str, dict[str, torch.Tensor]] = {"trainable": {}, "optimizer": {}, "average": {}}
        for name, tensor in checkpoint.tensors.items():
            group, _, rest = name.partition("/")
            groups[group][rest] = tensor
        load_into(self.trainable.module(), groups["trainable"], "the checkpoint")
        load_optimizer(self.optimizer, groups["optimizer"])
        if self.average is not None:
            self.average.load(groups["average"])
        if rule_state := checkpoint.state.get("update_rule"):
            self.update_rule.restore(rule_state)

    def save(self) -> None:
        """Write a checkpoint (main process only)."""
        self.saved_at = time.monotonic()
        if not distributed.is_main():
            return
        tensors = {f"trainable/{k}": v for k, v in tensors_of(self.trainable.module()).items()}
        tensors |= {f"optimizer/{k}": v for k, v in optimizer_tensors(self.optimizer).items()}
        if self.average is not None:
            tensors |= {f"average/{k}": v for k, v in self.average.tensors().items()}
        state = {**self.fingerprint, **self.state.as_json(), "update_rule": self.update_rule.state()}
        save_checkpoint(self.folder, self.state.tick, Checkpoint(state, tensors))


def train_stage(run: StageRun) -> None:
    """Train until the stage is over; at the end the model has the stage's best weights."""
    state, seed = run.state, run.training.seed
    validate_every = max(1, round(run.training.validate_every * len(run.batches)))
    run.trainable.module().train()
    no_time = time_is_up(run)
    while state.update < run.plan.steps and not state.stage_over and not no_time:
        started = time.monotonic()
        batch = run.batches.batch(state.epoch, state.position).to(run.device)
        rate = run.optimizer_settings.learning_rate * run.learning_rate(state.update) * state.learning_rate_factor
        set_learning_rate(run.optimizer, rate)
        torch.manual_seed(derive_key(seed, "step", state.tick, distributed.rank()))
        noise = Noise(derive_key(seed, "noise", state.tick), batch.index)
        try:
            terms, loss = run.update_rule(batch, state.update, noise)
        except NonFiniteLossError as error:
            where = f"The loss is not finite at step {state.tick + 1} (sentences: {run.describe(error.batch)})"
            raise ZentenceError(f"{where}. {_after_non_finite(run)}") from None
        state.advance(len(run.batches))
        if run.average is not None:
            run.average.update(state.update)
        state.seconds += time.monotonic() - started
        run.tracker.record(terms, loss, batch)
        no_time = time_is_up(run)
        last = no_time or state.update == run.plan.steps
        if state.tick % run.training.log_every == 0 or last:
            run.emit({**_place(run), **run.tracker.summary(), "learning_rate": rate})
            _warn_of_collapse(run)
        if state.update % validate_every == 0 or last:
            _validate(run)
            run.save()
        _save_if_due(run)
    if state.best is not None:
        load_best(run.folder, state.best, run.trainable.model)


def time_is_up(run: StageRun) -> bool:
    """Say whether the run has had all its time; the main process's clock decides for all."""
    limit = run.training.max_minutes
    if limit is None:
        return False
    own = distributed.is_main() and run.state.seconds >= 60.0 * limit
    return distributed.total_number(float(own)) > 0


def _place(run: StageRun, event: str = "step") -> Event:
    state = run.state
    return {
        "event": event,
        "stage": run.stage.name,
        "tick": state.tick,
        "update": state.update,
        "steps": run.plan.steps,
        "epoch": round(state.epoch + state.position / len(run.batches), 3),
        "seconds": round(state.seconds, 3),
    }


def _validate(run: StageRun) -> None:
    """Measure, keep the best weights, decay the learning rate on a plateau, stop when nothing improves."""
    state, plateau = run.state, run.optimizer_settings.plateau
    with nullcontext() if run.average is None else run.average.in_place():
        run.trainable.module().eval()
        figures = run.validate()
        run.trainable.module().train()
        value = figures[run.trainable.selection]
        if not math.isfinite(value):
            where = f"{run.trainable.selection} on validation is not finite at step {state.tick}"
            raise ZentenceError(f"{where}. {_after_non_finite(run)}")
        improved = state.best_value is None or value < state.best_value
        if improved and distributed.is_main():
            state.best = save_best(run.folder, state.tick, run.trainable.model)
    give_back_memory()
    run.update_rule.after_validation(figures)
    if improved:
        state.best_value, state.without_improvement = value, 0
        state.best = distributed.gather(state.best)[0]
    else:
        state.without_improvement += 1
    run.emit({**_place(run, "validation"), **figures, "selection": run.trainable.selection, "improved": improved})
    if run.stage.early_stopping is not None and state.without_improvement >= run.stage.early_stopping:
        state.stage_over = True
    if plateau is None or state.epoch < plateau.not_before_epoch or state.without_improvement < plateau.patience:
        return
    state.decays += 1
    state.without_improvement = 0
    state.learning_rate_factor *= plateau.factor
    state.stage_over = state.stage_over or state.decays >= plateau.stop_after
    if plateau.reload_best and state.best is not None:
        load_best(run.folder, state.best, run.trainable.model)
        if run.average is not None:
            run.average.restart()
    run.emit({**_place(run, "decay"), "factor": state.learning_rate_factor, "decays": state.decays})


def _save_if_due(run: StageRun) -> None:
    """Save by the clock, and when the user interrupts; several processes decide together, at the log's pace."""
    if distributed.world() > 1 and run.state.tick % run.training.log_every != 0:
        return
    interrupted = distributed.total_number(float(run.interrupted())) > 0
    due = time.monotonic() - run.saved_at >= run.training.checkpoint_seconds
    if interrupted or distributed.total_number(float(due and distributed.is_main())) > 0:
        run.save()
    if interrupted:
        raise InterruptedTraining


def _warn_of_collapse(run: StageRun) -> None:
    if (warning := run.tracker.collapse_warning(run.state.update / run.plan.steps)) is not None:
        run.emit({**_place(run, "warning"), "message": warning})


def _after_non_finite(run: StageRun) -> str:
    saved = sorted(path.stem for path in run.folder.glob("step-*.json"))
    return f"Last good checkpoint: {saved[-1] if saved else 'none yet'}. Lower the learning rate or the clip norm."
