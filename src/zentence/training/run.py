"""A whole run: corpus, stages, checkpoints, figures. `zentence train` and `zentence.train` both end up here."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from zentence import distributed
from zentence.build import build_model, build_objective, check_positions, complete, load_pretrained, with_lengths
from zentence.checkpoint import (
    given_vocabulary,
    inherit,
    initialise_from,
    load_checkpoint,
    load_settings_of,
    save_model,
    save_settings,
)
from zentence.corpora import Batches, TokenStore
from zentence.corpora.prepare import Corpus, prepare
from zentence.errors import ZentenceError
from zentence.evaluation.figures import compute_figures, evaluation_batches
from zentence.evaluation.information import active_units, estimate_information
from zentence.evaluation.measurement import Measurement, read_results, write_results
from zentence.evaluation.policy import SamplePolicy
from zentence.evaluation.suite import evaluate_split
from zentence.machine import choose_device, has_bfloat16_units, prepare_process, supports_bfloat16
from zentence.noise import Noise, derive_key
from zentence.schedules import build_schedule
from zentence.settings import Settings
from zentence.training.directory import check_directory, check_same_settings, claim_directory, default_directory
from zentence.training.events import Callback, Event, catch_interrupts, open_logs
from zentence.training.loop import InterruptedTraining, StageRun, time_is_up, train_stage
from zentence.training.optimizers import build_optimizer, choose_trained
from zentence.training.stages import StagePlan, plan_stages
from zentence.training.state import TrainState
from zentence.training.trainable import LatentTrainable
from zentence.training.updates import UpdateRule, complete_updates, find_update
from zentence.types import Batch

Files = Sequence[str | Path] | str | Path


@dataclass(frozen=True)
class RunResult:
    """Where a run's model is, and what was measured on its validation split."""

    folder: Path
    measurements: list[Measurement]
    already_finished: bool = False


def train(
    settings: Settings,
    corpus: Files = (),
    *,
    valid: Files = (),
    test: Files = (),
    out: str | Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    callbacks: Sequence[Callback] = (),
) -> RunResult:
    """Train a model as settings say; the same as `zentence train`. Callbacks receive every event as a dictionary."""
    settings = complete_updates(complete(inherit(_with_files(settings, corpus, valid, test, out))))
    folder = Path(settings.out or default_directory(settings.corpus.train))
    distributed.start_processes()
    prepare_process(settings.training.threads)
    device = choose_device(settings.training.device)
    settings = _with_precision(settings, device)
    autocast = torch.bfloat16 if settings.training.precision == "bfloat16" else None
    with ExitStack() as stack:
        check_directory(folder, resume=resume, overwrite=overwrite)
        if resume and (folder / "settings.toml").is_file():
            stored = complete_updates(complete(load_settings_of(folder)))
            settings = _with_lengths_of(stored, settings)
            check_same_settings(stored, settings)
        text = prepare_shared(settings, callbacks, folder if resume else None)
        settings = with_lengths(settings, *_length_moments(text.splits["train"]))
        run = _Run(settings, folder, text, device, autocast, callbacks, stack)
        return run.go(resume=resume, overwrite=overwrite)


def _with_files(
    settings: Settings,
    corpus: Files,
    valid: Files,
    test: Files,
    out: str | Path | None,
) -> Settings:
    """Return settings with the files given as arguments, where any are."""
    groups = {"train": corpus, "valid": valid, "test": test}
    given = {split: [files] if isinstance(files, (str, Path)) else list(files) for split, files in groups.items()}
    changes = {split: tuple(str(path) for path in paths) for split, paths in given.items() if paths}
    updated = settings.model_copy(update={"corpus": settings.corpus.model_copy(update=changes)})
    if not updated.corpus.train:
        raise ZentenceError("No training text: give a file")
    return updated if out is None else updated.model_copy(update={"out": str(out)})


def _length_moments(store: TokenStore) -> tuple[float, float]:
    """Return mean and standard deviation of the lengths of a split's sentences, in words."""
    counts = store.length_counts
    lengths = np.arange(len(counts))
    mean = float(np.average(lengths, weights=counts))
    return mean, float(np.sqrt(np.average((lengths - mean) ** 2, weights=counts)))


def _with_lengths_of(stored: Settings, settings: Settings) -> Settings:
    """Return settings with the lengths that the stored run took from its text, where settings leave them open."""
    mean, spread = (stored.prior.options.get(name) for name in ("length_mean", "length_spread"))
    return settings if mean is None or spread is None else with_lengths(settings, mean, spread)


def _with_precision(settings: Settings, device: torch.device) -> Settings:
    """Return settings that name the precision in which this machine will compute."""
    asked = settings.training.precision
    if asked == "float32" or (asked == "auto" and not has_bfloat16_units(device)):
        chosen = "float32"
    elif supports_bfloat16(device):
        chosen = "bfloat16"
    elif asked == "auto":
        chosen = "float32"
    else:
        raise ZentenceError("bfloat16 does not work on this machine (a probe failed): use training.precision=float32")
    return settings.model_copy(update={"training": settings.training.model_copy(update={"precision": chosen})})


def prepare_shared(settings: Settings, callbacks: Sequence[Callback], stored: Path | None = None) -> Corpus:
    """Prepare the corpus: the main process writes the cache, the others then read it.

    `stored` is the model directory of a run that goes on.
    """

    def progress(done: int, total: int) -> None:
        if distributed.is_main():
            for callback in callbacks:
                callback({"event": "reading", "done": done, "total": total})

    files = settings.corpus
    vocabulary = given_vocabulary(settings, stored)
    work = partial(prepare, files, files.train, files.valid, files.test, vocabulary=vocabulary, progress=progress)
    if distributed.is_main():
        result = work()
        distributed.barrier()
        return result
    distributed.barrier()
    return work()


class _Run:
    """The stages of a run, one after the other."""

    def __init__(
        self,
        settings: Settings,
        folder: Path,
        corpus: Corpus,
        device: torch.device,
        autocast: torch.dtype | None,
        callbacks: Sequence[Callback],
        stack: ExitStack,
    ) -> None:
        self.settings, self.folder, self.corpus = settings, folder, corpus
        self.device, self.autocast = device, autocast
        self.stack = stack
        self.callbacks = list(callbacks) if distributed.is_main() else []
        self.model = build_model(settings, *corpus.vocabulary.sizes).to(device)
        check_positions(self.model, corpus.splits)
        training = settings.training
        tokens = training.batch_tokens or (2048 if training.batch_sentences is None else None)
        self.batches = Batches(
            corpus.splits["train"],
            sentences=training.batch_sentences,
            tokens=tokens,
            seed=training.seed,
            rank=distributed.rank(),
            world=distributed.world(),
        )
        self.plans = plan_stages(settings, len(self.batches), corpus.splits["train"].ledger.predicted)
        self.fingerprint = {
            "processes": distributed.world(),
            "vocabulary": corpus.vocabulary.hash,
            "batches": len(self.batches),
            "training text": corpus.splits["train"].folder.name,  # named by its content
            "validation text": corpus.splits["valid"].folder.name,
        }

    def emit(self, event: Event) -> None:
        """Tell every callback."""
        for callback in self.callbacks:
            callback(event)

    def go(self, *, resume: bool, overwrite: bool) -> RunResult:
        """Train all stages that are not done, then measure."""
        checkpoint, warnings = load_checkpoint(self.folder / "checkpoints") if resume else (None, [])
        state = TrainState()
        if checkpoint is not None:
            content = {name: value for name, value in checkpoint.state.items() if name != "update_rule"}
            self._check_fingerprint({name: content.pop(name, None) for name in self.fingerprint})
            state = TrainState.from_json(content)
            if self._finished(state):
                return RunResult(self.folder, read_results(self.folder / "results.json"), already_finished=True)
        elif self.settings.init_from is not None:
            source, reset = Path(self.settings.init_from), self.settings.stages[0].reset
            initialise_from(source, self.model, self.corpus.vocabulary, reset)
        else:
            load_pretrained(self.model, self.corpus.vocabulary)
        claim_directory(self.folder, overwrite=overwrite, tick=state.tick)
        if distributed.is_main():
            save_settings(self.folder, self.settings)
            self.corpus.vocabulary.save(self.folder / "tokenizer.json")
        self._open_logs(state.tick)
        self._announce(state, warnings, resumed=checkpoint is not None)
        with catch_interrupts() as interrupted:
            for number in range(state.stage, len(self.plans)):
                run = self._begin_stage(number, state, fresh=checkpoint is None, interrupted=interrupted)
                if checkpoint is not None:
                    run.restore(checkpoint)
                    checkpoint = None
                self._announce_stage(run)
                train_stage(run)
                if time_is_up(run):
                    break
            if interrupted():
                raise InterruptedTraining
        try:
            return self._finish(state)
        except KeyboardInterrupt:  # the weights are in the last checkpoint
            raise InterruptedTraining from None

    def _announce_stage(self, run: StageRun) -> None:
        self.emit(
            {
                "event": "stage",
                "stage": run.stage.name,
                "number": run.state.stage + 1,
                "of": len(self.plans),
                "steps": run.plan.steps,
                "objective": run.stage.objective.name,
                "tick": run.state.tick,
            }
        )

    def _check_fingerprint(self, found: dict[str, Any]) -> None:
        if found["processes"] != self.fingerprint["processes"]:
            count = "1 process" if found["processes"] == 1 else f"{found['processes']} processes"
            raise ZentenceError(f"This run was started with {count}: resume it with as many")
        for name in ("vocabulary", "batches", "training text", "validation text"):
            if found[name] not in (None, self.fingerprint[name]):
                what = name if name == "validation text" else "training text"
                raise ZentenceError(f"The {what} has changed since this run began: start anew in another --out")

    def _finished(self, state: TrainState) -> bool:
        last = state.stage == len(self.plans) - 1 and (state.update >= self.plans[-1].steps or state.stage_over)
        return last and (self.folder / "results.json").is_file() and (self.folder / "model.safetensors").is_file()

    def _open_logs(self, tick: int) -> None:
        if distributed.is_main():
            wanted = self.settings.training.tensorboard
            self.callbacks = open_logs(self.stack, self.folder, tick, wanted, self.callbacks)

    def _announce(self, state: TrainState, warnings: list[str], resumed: bool) -> None:
        parameters = sum(p.numel() for p in self.model.parameters())
        stages = [{"name": s.name, "steps": p.steps} for s, p in zip(self.settings.stages, self.plans, strict=True)]
        self.emit(
            {
                "event": "start",
                "folder": str(self.folder),
                "resumed": resumed,
                "tick": state.tick,
                "parameters": parameters,
                "device": str(self.device),
                "stages": stages,
                "corpus": self.corpus.summary(),
            }
        )
        for message in [*self.corpus.warnings, *warnings]:
            self.emit({"event": "warning", "tick": state.tick, "message": message})

    def _begin_stage(self, number: int, state: TrainState, fresh: bool, interrupted: Callable[[], bool]) -> StageRun:
        stage, plan = self.settings.stages[number], self.plans[number]
        if number != state.stage:
            state.begin_stage(number)
            fresh = True
        if fresh:
            torch.manual_seed(derive_key(self.settings.training.seed, "reset", number))
            for part in stage.reset:
                self.model.reset_part(part)
        word_dropout = build_schedule("word_dropout", stage.corruption.word_dropout, plan.epoch_steps, plan.steps)
        objective = build_objective(stage, plan.epoch_steps, plan.steps).to(self.device)
        share, hidden = stage.corruption.unknown_inputs, stage.corruption.unknown_where
        trainable = LatentTrainable(self.model, objective, word_dropout, share, self.autocast, hidden=hidden)
        optimizer_settings = self.settings.optimizer_of(stage)
        choose_trained(self.model, optimizer_settings)
        optimizer = build_optimizer(self.model, optimizer_settings)
        update_class, options = find_update(f"stages.{number}.update", stage.update)
        rule = update_class(options, trainable, optimizer, optimizer_settings, self._fresh_batch)
        rule.accumulate = self.settings.training.accumulate
        return StageRun(
            trainable=trainable,
            optimizer=optimizer,
            update_rule=rule,
            learning_rate=build_schedule("schedule", optimizer_settings.schedule, plan.epoch_steps, plan.steps),
            optimizer_settings=optimizer_settings,
            stage=stage,
            plan=plan,
            training=self.settings.training,
            batches=self.batches,
            device=self.device,
            state=state,
            folder=self.folder / "checkpoints",
            fingerprint=self.fingerprint,
            validate=partial(self._validation_figures, trainable, plan, rule),
            describe=self._describe,
            emit=self.emit,
            interrupted=interrupted,
        )

    def _fresh_batch(self, number: int) -> tuple[Batch, Noise]:
        """Return the n-th batch of passes over the training split beside those of the loop, and its noise."""
        passes, position = divmod(number, len(self.batches))
        batch = self.batches.batch(-1 - passes, position).to(self.device)
        return batch, Noise(derive_key(self.settings.training.seed, "inner noise", number), batch.index)

    def _describe(self, batch: Batch) -> str:
        rows = [self.corpus.vocabulary.decode(row.tolist()) for row in batch.target.ids[:2]]
        return "; ".join(f"{number}: {text[:60]!r}" for number, text in zip(batch.index.tolist(), rows, strict=False))

    @torch.no_grad()
    def _validation_figures(self, trainable: LatentTrainable, plan: StagePlan, rule: UpdateRule) -> dict[str, float]:
        """Return means over the validation sentences used for selection; the noise is the same every time."""
        chosen, options = trainable.selection, self.settings.evaluation
        store, limit = self.corpus.splits["valid"], options.selection_sentences
        samples = options.selection_samples if chosen == "iw_nll" else 1
        seed = self.settings.training.seed
        figures = compute_figures(
            self.model,
            store,
            policy=SamplePolicy(samples),
            seed=seed,
            limit=limit,
            information_sentences=limit,
            device=self.device,
        )
        result = {name: float(values.mean()) for name, values in figures.values.items() if name != "eos"}
        if figures.centers is not None:
            result["active_units"] = float(active_units(figures.centers)[0])
        if "mutual_information" in rule.wants and figures.features is not None:
            estimate = estimate_information(self.model, figures.features.to(self.device), seed)
            result["mutual_information"] = 0.0 if estimate is None else estimate[0].value
        if chosen == "loss":
            result["loss"] = self._validation_loss(trainable, plan, store, limit)
        return result

    def _validation_loss(self, trainable: LatentTrainable, plan: StagePlan, store: TokenStore, limit: int) -> float:
        key, total, count = derive_key(self.settings.training.seed, "validation"), 0.0, 0
        for batch in evaluation_batches(store, limit):
            moved = batch.to(self.device)
            total += float(trainable(moved, plan.steps, Noise(key, moved.index)).loss) * batch.size
            count += batch.size
        return distributed.total_number(total) / distributed.total_number(count)

    def _finish(self, state: TrainState) -> RunResult:
        """Write the model, measure it on validation, write the results."""
        if distributed.is_main():
            save_model(self.folder, self.model)
        self.model.eval()
        measurements: list[Measurement] = []
        for split in [name for name in self.corpus.splits if name == "valid" or name.startswith("valid/")]:
            measurements += evaluate_split(
                self.model,
                self.corpus.splits[split],
                self.corpus.vocabulary,
                self.settings,
                split=split,
                samples=self.settings.evaluation.samples,
                seed=self.settings.training.seed,
                source_nll=self.corpus.source_nll(split),
                folder=self.folder if distributed.is_main() else None,
                progress=lambda done, total, s=split: self.emit(  # type: ignore[misc]
                    {"event": "evaluating", "split": s, "done": done, "total": total}
                ),
            )
        if distributed.is_main():
            write_results(self.folder / "results.json", measurements)
        self.emit({"event": "end", "folder": str(self.folder), "tick": state.tick, "seconds": round(state.seconds, 1)})
        distributed.barrier()
        return RunResult(self.folder, measurements)
